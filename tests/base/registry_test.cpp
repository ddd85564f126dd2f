#include "base/registry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Shape {
  static constexpr std::string_view kRole = "test shape";
  struct Context {
    int scale = 1;
  };
  virtual ~Shape() = default;
  [[nodiscard]] virtual std::int64_t area() const = 0;
};

struct Square : Shape {
  explicit Square(std::int64_t given) : side(given) {}
  [[nodiscard]] std::int64_t area() const override { return side * side; }
  std::int64_t side;
};

const Registered<Shape> kSquare{
    {"square",
     "All sides alike.",
     "ours",
     {integer_parameter("side", "mm", 2, {1, 100}, "Side.")},
     [](const Arguments& arguments, const Shape::Context& context) -> std::unique_ptr<Shape> {
       return std::make_unique<Square>(arguments.integer("side") * context.scale);
     }}};
const Registered<Shape> kDot{
    {"dot",
     "No side.",
     "ours",
     {},
     [](const Arguments&, const Shape::Context&) -> std::unique_ptr<Shape> {
       return std::make_unique<Square>(0);
     }}};

TEST(RegistryTest, MakesAPartFromAConfig) {
  const auto chosen =
      PartConfig<Shape>::parse(ConfigNode::parse(R"({"part": "square", "side": 3})", "f.json"));
  EXPECT_EQ(chosen.name(), "square");
  EXPECT_EQ(chosen.make({2})->area(), 36);
  EXPECT_EQ(PartConfig<Shape>::by_name("square").make({1})->area(), 4);
}

TEST(RegistryTest, ListsItsParts) {
  EXPECT_THAT(Registry<Shape>::instance().names(), ElementsAre("dot", "square"));
  const PartInfo& info = part_catalogue().at({"test shape", "square"});
  EXPECT_EQ(info.help, "All sides alike.");
  ASSERT_EQ(info.parameters.size(), 1U);
  EXPECT_EQ(info.parameters[0].name, "side");
  EXPECT_EQ(info.stage, std::nullopt);
}

struct Colour {
  static constexpr std::string_view kRole = "test colour";
  static constexpr Stage kStage = Stage::kPlace;
  static constexpr std::string_view kDefaultPart = "grey";
  struct Context {};
};

const Registered<Colour> kGrey{
    {"grey", "None.", "ours", {}, [](const Arguments&, const Colour::Context&) {
       return std::make_unique<Colour>();
     }}};
const Registered<Colour> kRed{
    {"red", "Warm.", "ours", {}, [](const Arguments&, const Colour::Context&) {
       return std::make_unique<Colour>();
     }}};

TEST(RegistryTest, KnowsTheStageOfARole) {
  EXPECT_EQ(part_catalogue().at({"test colour", "red"}).stage, Stage::kPlace);
  static_assert(stage_of<Colour>() == Stage::kPlace);
  static_assert(!stage_of<Shape>());
}

TEST(RegistryTest, AMemberMayBeLeftOutWhereTheRoleHasADefault) {
  const auto colour = [](std::string_view text) {
    return PartConfig<Colour>::parse_member(ConfigNode::parse(text, "f.json")).name();
  };
  EXPECT_EQ(colour(R"({"test colour": {"part": "red"}})"), "red");
  EXPECT_EQ(colour("{}"), "grey");
  const ConfigNode empty = ConfigNode::parse("{}", "f.json");
  EXPECT_EQ(PartConfig<Shape>::parse_member(empty, "dot").name(), "dot");
  EXPECT_THAT(user_error_of([&] { (void)PartConfig<Shape>::parse_member(empty); }),
              HasSubstr("test shape"));
}

TEST(RegistryTest, ErrorsNameThePlace) {
  const auto error = [](std::string_view text) {
    return user_error_of(
        [&] { (void)PartConfig<Shape>::parse(ConfigNode::parse(text, "f.json")); });
  };
  EXPECT_EQ(error(R"({"part": "sqare"})"),
            "f.json: /part: unknown test shape 'sqare' (did you mean 'square'?); allowed: dot, "
            "square");
  EXPECT_THAT(error(R"({"part": "square", "sides": 3})"), HasSubstr("did you mean 'side'?"));
  EXPECT_THAT(error(R"({"part": "square", "side": 0})"), HasSubstr("f.json: /side: "));
  EXPECT_THAT(error(R"({"side": 3})"), HasSubstr("'part' is missing"));
}

TEST(RegistryTest, TwoPartsOfOneNameAreABug) {
  EXPECT_THROW(Registry<Shape>::instance().add({"dot", "", "", {}, {}}), std::logic_error);
}

TEST(RegistryTest, APartRegisteredTwiceIsToldWithBothPlaces) {
  ASSERT_TRUE(twice_registered_parts().empty());
  const Registered<Colour> again{{"red", "Warm, too.", "ours", {}, {}}};
  ASSERT_EQ(twice_registered_parts().size(), 1U);
  const std::string line = twice_registered_parts().front();
  twice_registered_parts().clear();
  EXPECT_THAT(line, HasSubstr("two parts of role test colour are named red"));
  EXPECT_THAT(line, testing::ContainsRegex("registry_test.cpp:[0-9]+ and .*registry_test.cpp:"));
  // The first one stays.
  EXPECT_EQ(part_catalogue().at({"test colour", "red"}).help, "Warm.");
}

}  // namespace
}  // namespace kvreplay
