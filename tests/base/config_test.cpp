#include "base/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

ConfigNode parse(std::string_view text) {
  return ConfigNode::parse(text, "f.json");
}

TEST(ConfigTest, KnowsWhereItStands) {
  const ConfigNode node = parse(R"({"a": {"b": [1, {"c": "x"}]}})");
  const ConfigNode inner = node.at("a").at("b").items()[1].at("c");
  EXPECT_EQ(inner.text(), "x");
  EXPECT_EQ(inner.place().file, "f.json");
  EXPECT_EQ(inner.place().within, "/a/b/1/c");
}

TEST(ConfigTest, ANodeOutlivesItsRoot) {
  const ConfigNode inner = parse(R"({"a": {"b": "text"}})").at("a").at("b");
  EXPECT_EQ(inner.text(), "text");
}

TEST(ConfigTest, CommentsAreAllowed) {
  EXPECT_EQ(parse("{\n// why\n\"a\": \"b\" /* and */ }").at("a").text(), "b");
}

TEST(ConfigTest, SyntaxErrorsNameTheLine) {
  EXPECT_THAT(user_error_of([] { (void)parse("{\n\"a\": 1,\n\"b\" 2}"); }),
              AllOf(StartsWith("f.json: not valid JSON"), HasSubstr("line 3")));
  EXPECT_THAT(user_error_of([] { (void)parse(""); }), StartsWith("f.json: not valid JSON"));
}

TEST(ConfigTest, LoadsAFileAndNamesOneThatIsAbsent) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("a.json")) << R"({"a": "b"})";
  EXPECT_EQ(ConfigNode::load(folder.file("a.json")).at("a").text(), "b");
  EXPECT_THAT(user_error_of([&] { (void)ConfigNode::load(folder.file("b.json")); }),
              AllOf(HasSubstr("b.json"), HasSubstr("cannot be opened")));
  EXPECT_THAT(user_error_of([&] { (void)ConfigNode::load(folder.path().string()); }),
              HasSubstr(folder.path().string()));
}

TEST(ConfigTest, AllThatIsMissingIsSaidAtOnce) {
  const std::vector<std::string> members{"title", "part"};
  const std::vector<Parameter> parameters{
      integer_parameter("layers", "", std::nullopt, {1, 9}, "."),
      integer_parameter("heads", "", 4, {1, 9}, "."),
      real_parameter("share", "", std::nullopt, {0, 1}, ".")};
  const auto error = [&](std::string_view text) {
    return user_error_of([&] { check_complete(parse(text), members, parameters); });
  };
  EXPECT_EQ(error("{}"),
            "f.json: required members 'title', 'part', 'layers' and 'share' are missing; allowed: "
            "layers integer from 1 to 9, share real from 0 to 1");
  EXPECT_EQ(error(R"({"title": 1, "part": 1, "layers": 1})"),
            "f.json: required parameter 'share' is missing; allowed: real from 0 to 1");
  EXPECT_EQ(error(R"({"part": 1, "layers": 1, "share": 1})"),
            "f.json: required member 'title' is missing");
  EXPECT_THAT(error("[]"), HasSubstr("an object"));
  check_complete(parse(R"({"title": 1, "part": 1, "layers": 1, "share": 1})"), members, parameters);
}

TEST(ConfigTest, OnABaseWhatIsOwnComesFirst) {
  const ConfigNode base = ConfigNode::parse(
      R"({"name": "b", "title": "Base", "notes": "old", "depth": {"value": 4, "source": "s"},
          "rate": 7, "cache": {"size": 1, "way": 2}, "list": [1, 2]})",
      "base.json");
  const ConfigNode own = ConfigNode::parse(
      R"({"base": "b", "depth": 8, "cache": {"way": 3}, "list": [5]})", "own.json");
  const ConfigNode merged = own.on_base(base);
  EXPECT_FALSE(merged.has("base"));
  EXPECT_FALSE(merged.has("name"));
  EXPECT_EQ(merged.at("title").text(), "Base (b) with other cache, depth, list");
  EXPECT_EQ(merged.at("notes").text(), "Of b: old");
  EXPECT_EQ(std::get<std::int64_t>(merged.at("depth").argument().value), 8);
  EXPECT_EQ(merged.at("depth").argument().source, "");  // the source was of the base's number
  EXPECT_EQ(merged.at("list").items().size(), 1U);
  EXPECT_EQ(std::get<std::int64_t>(merged.at("cache").at("size").argument().value), 1);
  EXPECT_EQ(std::get<std::int64_t>(merged.at("cache").at("way").argument().value), 3);
  // Each member knows the file it stands in.
  EXPECT_EQ(merged.place().file, "own.json");
  EXPECT_EQ(merged.at("depth").place().file, "own.json");
  EXPECT_EQ(merged.at("rate").place().file, "base.json");
  EXPECT_EQ(merged.at("cache").at("size").place().file, "base.json");
  EXPECT_EQ(merged.at("cache").at("way").place().file, "own.json");
  const std::vector<Parameter> parameters{integer_parameter("depth", "", std::nullopt, {1, 9}, "."),
                                          integer_parameter("rate", "", std::nullopt, {1, 5}, ".")};
  const std::vector<std::string> others{"title", "notes", "cache", "list"};
  EXPECT_THAT(user_error_of([&] { (void)parse_arguments(merged, parameters, others); }),
              StartsWith("base.json: /rate: "));
  EXPECT_THAT(
      user_error_of([&] { (void)parse_arguments(merged.with("rate", "9"), parameters, others); }),
      HasSubstr("/rate: "));
}

TEST(ConfigTest, AHeaderIsTheSameInEveryKindOfFile) {
  const ConfigHeader header = ConfigHeader::parse(
      parse(R"({"title": "T", "source": "S", "notes": "N", "rate": 3})"), "file");
  EXPECT_EQ(header.name, "file");
  EXPECT_EQ(header.title, "T");
  EXPECT_EQ(header.source, "S");
  EXPECT_EQ(header.notes, "N");
  EXPECT_EQ(ConfigHeader::parse(parse(R"({"title": "T", "name": "own"})"), "file").name, "own");
  EXPECT_THAT(user_error_of([] { (void)ConfigHeader::parse(parse("{}"), "file"); }),
              HasSubstr("'title' is missing"));
}

TEST(ConfigTest, WrongKindsAreRefusedWithTheirPath) {
  const ConfigNode node = parse(R"({"a": {"n": 3}, "list": [1]})");
  const auto error = [](const auto& work) { return user_error_of(work); };
  EXPECT_EQ(error([&] { (void)node.at("b"); }), "f.json: required member 'b' is missing");
  EXPECT_EQ(error([&] { (void)node.at("a").at("n").at("x"); }),
            "f.json: /a/n: found number 3; allowed: an object");
  EXPECT_EQ(error([&] { (void)node.at("a").at("n").text(); }),
            "f.json: /a/n: found number 3; allowed: text");
  EXPECT_EQ(error([&] { (void)node.at("list").keys(); }),
            "f.json: /list: found array [1]; allowed: an object");
  EXPECT_THAT(error([&] { (void)node.at("list").argument(); }), StartsWith("f.json: /list: found"));
}

TEST(ConfigTest, ASingleValueIsItsOwnList) {
  const ConfigNode node = parse(R"({"a": 1, "b": [1, 2, 3]})");
  ASSERT_EQ(node.at("a").items().size(), 1U);
  EXPECT_EQ(node.at("a").items()[0].place().within, "/a");
  EXPECT_EQ(node.at("b").items().size(), 3U);
  EXPECT_EQ(node.at("b").items()[2].place().within, "/b/2");
}

TEST(ConfigTest, Arguments) {
  const ConfigNode node = parse(
      R"({"i": 3, "r": 2.5, "f": true, "t": "x", "s": {"value": 4, "source": "a paper, 4.3"}})");
  EXPECT_EQ(std::get<std::int64_t>(node.at("i").argument().value), 3);
  EXPECT_EQ(std::get<double>(node.at("r").argument().value), 2.5);
  EXPECT_TRUE(std::get<bool>(node.at("f").argument().value));
  EXPECT_EQ(std::get<std::string>(node.at("t").argument().value), "x");
  EXPECT_EQ(std::get<std::int64_t>(node.at("s").argument().value), 4);
  EXPECT_EQ(node.at("s").argument().source, "a paper, 4.3");
  EXPECT_EQ(node.at("i").argument().source, "");
  EXPECT_THAT(user_error_of([] { (void)parse(R"({"value": 1, "sauce": "x"})").argument(); }),
              HasSubstr("did you mean 'source'"));
  EXPECT_THAT(user_error_of([] { (void)parse(R"({"value": null})").argument(); }),
              HasSubstr("found null"));
}

TEST(ConfigTest, AllowOnlyRefusesUnknownMembersButComments) {
  const std::vector<std::string> allowed = {"part", "group_tokens"};
  EXPECT_NO_THROW(parse(R"({"part": 1, "_note": "free"})").allow_only(allowed));
  EXPECT_THAT(
      user_error_of([&] { parse(R"({"a": {"group_token": 1}})").at("a").allow_only(allowed); }),
      AllOf(StartsWith("f.json: /a: unknown member 'group_token'"),
            HasSubstr("did you mean 'group_tokens'?")));
}

TEST(ConfigTest, ParseArgumentsChecksNamesTypesAndRanges) {
  const std::vector<Parameter> parameters = {
      integer_parameter("group_tokens", "tokens", 16, {1, 64}, ""),
      real_parameter("share", "", std::nullopt, {0, 1}, "")};
  const std::vector<std::string> others = {"part"};
  const Arguments arguments = parse_arguments(
      parse(R"({"part": "page", "share": {"value": 1, "source": "s"}})"), parameters, others);
  EXPECT_EQ(arguments.integer("group_tokens"), 16);
  EXPECT_TRUE(arguments.all().at("group_tokens").is_default);
  EXPECT_EQ(arguments.real("share"), 1.0);
  EXPECT_EQ(arguments.all().at("share").source, "s");
  EXPECT_EQ(arguments.place("share").within, "/share");

  const auto error = [&](std::string_view text) {
    return user_error_of([&] { (void)parse_arguments(parse(text), parameters, others); });
  };
  EXPECT_THAT(error(R"({"group_tokens": 4})"), HasSubstr("required parameter 'share' is missing"));
  EXPECT_THAT(error(R"({"share": 2})"), StartsWith("f.json: /share: found"));
  EXPECT_THAT(error(R"({"share": 0.5, "group_tokens": 4.5})"), HasSubstr("/group_tokens"));
  EXPECT_THAT(error(R"({"share": 0.5, "shares": 1})"), HasSubstr("did you mean 'share'?"));
  EXPECT_THAT(error("[]"), HasSubstr("an object"));
}

TEST(ConfigTest, WithReplacesAMemberAndLeavesTheOriginal) {
  const ConfigNode node =
      parse(R"({"cache": {"size": {"value": 1, "source": "s"}, "part": "lru"}})");
  const ConfigNode changed = node.with("cache.size", "8").with("cache.part", "fifo");
  EXPECT_EQ(std::get<std::int64_t>(changed.at("cache").at("size").argument().value), 8);
  EXPECT_EQ(changed.at("cache").at("size").argument().source, "");
  EXPECT_EQ(changed.at("cache").at("part").text(), "fifo");
  EXPECT_EQ(node.at("cache").at("part").text(), "lru");
  EXPECT_EQ(node.with("cache.new", "[1, 2]").at("cache").at("new").items().size(), 2U);
  EXPECT_THAT(user_error_of([&] { (void)node.with("cash.size", "1"); }), HasSubstr("cash.size"));
  EXPECT_THAT(user_error_of([&] { (void)node.with("cache.part.x", "1"); }),
              AllOf(HasSubstr("cache.part.x"), HasSubstr("f.json")));
}

}  // namespace
}  // namespace kvreplay
