#include "base/config_folder.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ConfigFolderTest : public testing::Test {
 protected:
  ConfigFolderTest() : configs_(folder_.path().string()) {
    std::filesystem::create_directories(folder_.file("things/papers"));
    write("things/big.json", R"({"title": "Big", "size": 9, "speed": 2})");
    write("things/papers/old.json", R"({"title": "Old", "size": 1})");
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.file(name)) << text;
  }
  [[nodiscard]] std::int64_t size_in(const std::string& file) const {
    return std::get<std::int64_t>(
        configs_.load("things", folder_.file(file)).at("size").argument().value);
  }

  TemporaryFolder folder_;
  ConfigFolder configs_;
};

TEST_F(ConfigFolderTest, NamesHoldFolders) {
  EXPECT_THAT(configs_.names("things"), ElementsAre("big", "papers/old"));
  EXPECT_EQ(configs_.file("things", "papers/old", {}), folder_.file("things/papers/old.json"));
  EXPECT_THAT(user_error_of([&] { (void)configs_.file("things", "old", {}); }),
              HasSubstr("did you mean 'papers/old'?"));
  EXPECT_THAT(user_error_of([&] { (void)configs_.file("things", "papers/odl", {}); }),
              HasSubstr("did you mean 'papers/old'?"));
}

TEST_F(ConfigFolderTest, AFileIsNamedWithOrWithoutItsEnding) {
  write("mine.json", "{}");
  EXPECT_EQ(configs_.file("things", folder_.file("mine.json"), {}), folder_.file("mine.json"));
  EXPECT_EQ(configs_.file("things", folder_.file("mine"), {}), folder_.file("mine.json"));
  EXPECT_EQ(configs_.file("things", "./absent", {}), "./absent");
}

TEST_F(ConfigFolderTest, ABaseIsANameOrAFileBesideTheOwn) {
  write("named.json", R"({"base": "big", "speed": 5})");
  EXPECT_EQ(size_in("named.json"), 9);
  write("beside.json", R"({"base": "./named.json", "speed": 6})");
  EXPECT_EQ(size_in("beside.json"), 9);
  write("old.json", R"({"base": "papers/old"})");
  EXPECT_EQ(size_in("old.json"), 1);
  EXPECT_EQ(configs_.find("things", "big", {}).at("title").text(), "Big");
}

TEST_F(ConfigFolderTest, BadBases) {
  const auto error = [&](const std::string& text) {
    write("bad.json", text);
    return user_error_of([&] { (void)configs_.load("things", folder_.file("bad.json")); });
  };
  EXPECT_THAT(error(R"({"base": "bug"})"),
              AllOf(HasSubstr("bad.json: /base: "), HasSubstr("did you mean 'big'")));
  EXPECT_THAT(error(R"({"base": "./bad.json"})"), HasSubstr("leads back to this file"));
  write("other.json", R"({"base": "./bad.json"})");
  EXPECT_THAT(error(R"({"base": "./other.json"})"),
              AllOf(HasSubstr("other.json: /base"), HasSubstr("leads back")));
  EXPECT_THAT(error(R"({"base": 3})"), HasSubstr("/base: found number 3"));
}

}  // namespace
}  // namespace kvreplay
