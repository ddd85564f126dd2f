#include "base/parameters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const Parameter kCount = integer_parameter("group_tokens", "tokens", 16, {1, 64}, "help");
const Parameter kShare = real_parameter("share", "", 0.5, {0, 1}, "help");
const Parameter kRule = choice_parameter("rule", {"page", "cluster"}, "page", "help");
const Parameter kLabel = text_parameter("label", "none", "help");
const Parameter kOn = flag_parameter("on", true, "help");
const std::vector<Parameter> kAll = {kCount, kShare, kRule, kLabel, kOn};

std::string refusal(const Parameter& parameter, const Value& value) {
  Arguments arguments;
  arguments.set_place({"file.json", "/part"});
  return user_error_of([&] { arguments.set(parameter, {value, "", false}); });
}

TEST(ParametersTest, DefaultsFillEveryParameter) {
  const Arguments arguments = Arguments::defaults(kAll, {"f", "/p"});
  EXPECT_EQ(arguments.integer("group_tokens"), 16);
  EXPECT_EQ(arguments.real("share"), 0.5);
  EXPECT_EQ(arguments.text("rule"), "page");
  EXPECT_EQ(arguments.text("label"), "none");
  EXPECT_TRUE(arguments.flag("on"));
  EXPECT_EQ(arguments.all().size(), kAll.size());
  for (const auto& [name, argument] : arguments.all()) EXPECT_TRUE(argument.is_default) << name;
}

TEST(ParametersTest, ARequiredParameterHasNoDefault) {
  const std::vector<Parameter> required = {
      integer_parameter("budget_tokens", "tokens", std::nullopt, {1, 9}, "help")};
  const std::string error = user_error_of([&] {
    (void)Arguments::defaults(required, {"f.json", "/p"});
  });
  EXPECT_EQ(error,
            "f.json: /p: required parameter 'budget_tokens' is missing; allowed: integer from 1 to "
            "9 tokens");
}

TEST(ParametersTest, TakesBoundsAndRefusesBeyond) {
  Arguments arguments;
  for (const std::int64_t inside : {1, 64}) {
    arguments.set(kCount, {inside, "source", false});
    EXPECT_EQ(arguments.integer("group_tokens"), inside);
    EXPECT_EQ(arguments.all().at("group_tokens").source, "source");
    EXPECT_FALSE(arguments.all().at("group_tokens").is_default);
  }
  for (const std::int64_t outside : {0, 65, -1}) {
    EXPECT_EQ(refusal(kCount, outside), "file.json: /part/group_tokens: found integer " +
                                            std::to_string(outside) +
                                            "; allowed: integer from 1 to 64 tokens");
  }
}

TEST(ParametersTest, RefusesWhatIsNotFinite) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity(), -0.001, 1.001}) {
    EXPECT_THAT(refusal(kShare, bad), StartsWith("file.json: /part/share: found real"));
  }
  const Parameter any = real_parameter(
      "any", "", 0.0,
      {-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()}, "help");
  EXPECT_THAT(refusal(any, std::numeric_limits<double>::infinity()), HasSubstr("allowed: real"));
}

TEST(ParametersTest, TypesMustMatch) {
  EXPECT_THAT(refusal(kCount, 16.0), HasSubstr("found real 16"));
  EXPECT_THAT(refusal(kCount, std::string("16")), HasSubstr("found text 16"));
  EXPECT_THAT(refusal(kCount, true), HasSubstr("found flag true"));
  EXPECT_THAT(refusal(kOn, std::int64_t{1}), HasSubstr("allowed: true or false"));
  EXPECT_THAT(refusal(kLabel, std::int64_t{1}), HasSubstr("allowed: text"));
  EXPECT_THAT(refusal(kRule, false), HasSubstr("allowed: one of page, cluster"));
}

TEST(ParametersTest, AnIntegerServesAsAReal) {
  Arguments arguments;
  arguments.set(kShare, {std::int64_t{1}, "", false});
  EXPECT_EQ(arguments.real("share"), 1.0);
}

TEST(ParametersTest, ChoicesOfferTheNearest) {
  EXPECT_EQ(refusal(kRule, std::string("pages")),
            "file.json: /part/rule: unknown rule 'pages' (did you mean 'page'?); allowed: page, "
            "cluster");
}

TEST(ParametersTest, AskingForWhatWasNotDeclaredIsABug) {
  const Arguments arguments = Arguments::defaults(kAll, {});
  EXPECT_THROW((void)arguments.integer("absent"), std::logic_error);
  EXPECT_ANY_THROW((void)arguments.integer("share"));
}

TEST(ParametersTest, TextReadsBackAsTheSameValue) {
  for (const double value : {0.1, 1.0 / 3, 1e300, 5e-324, -2.5, 16.0}) {
    EXPECT_EQ(std::strtod(to_text(Value{value}).c_str(), nullptr), value);
  }
  EXPECT_EQ(to_text(Value{std::int64_t{-7}}), "-7");
  EXPECT_EQ(to_text(Value{true}), "true");
  EXPECT_EQ(to_text(Value{std::string("a b")}), "a b");
}

TEST(ParametersTest, AllowedTextSaysTypeRangeAndUnit) {
  EXPECT_EQ(allowed_text(kCount), "integer from 1 to 64 tokens");
  EXPECT_EQ(allowed_text(kShare), "real from 0 to 1");
  const Parameter open =
      real_parameter("x", "us", 1.0, {0, std::numeric_limits<double>::infinity()}, "help");
  EXPECT_EQ(allowed_text(open), "real from 0 us");
}

}  // namespace
}  // namespace kvreplay
