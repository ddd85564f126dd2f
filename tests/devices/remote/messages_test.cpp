// What an agent may say, and what is no event.

#include "devices/remote/messages.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

std::string nested(std::size_t depth) {
  return R"({"event":"point","point":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
}

TEST(Event, NestsAsDeepAsOursAndNoDeeper) {
  EXPECT_EQ(parse_event(nested(16))["event"], "point");
  for (const std::size_t depth : {std::size_t{64}, std::size_t{1} << 20}) {
    EXPECT_THAT(user_error_of([&] { (void)parse_event(nested(depth)); }),
                HasSubstr("nests too deep"));
  }
}

TEST(Event, IsAnObjectWithAName) {
  for (const char* payload : {"", "x", "[]", "5", "{}", R"({"event": 5})", R"({"verb": "hello"})",
                              "\xff", R"({"event": "alive"} x)"}) {
    EXPECT_THAT(user_error_of([&] { (void)parse_event(payload); }), HasSubstr("no event"))
        << payload;
  }
}

TEST(Event, IsShortUnlessItIsAPieceOfAText) {
  const std::string text(kMaxEventBytes, 'x');
  for (const char* piece : {"measurement", "steps"}) {
    EXPECT_EQ(parse_event(Json{{"event", piece}, {"text", text}}.dump())["text"], text);
  }
  EXPECT_THAT(user_error_of([&] {
                (void)parse_event(Json{{"event", "error"}, {"message", text}}.dump());
              }),
              HasSubstr("up to 65536"));
}

TEST(Event, HasNoControlCharacters) {
  const Json event = parse_event(Json{
      {"event", "error"},
      {"message", "a\x1b[2J\nb\x7f \xc3\xa9"},
      {"more", {{"x", {"\t"}}}}}.dump());
  EXPECT_EQ(event["message"], "a [2J b  \xc3\xa9");
  EXPECT_EQ(event["more"]["x"][0], " ");
}

Json valid_setting() {
  return {{"target", {{"path", "/x"}, {"size_bytes", 4096}}},
          {"host", Json::object()},
          {"engine", {{"name", "aio"}, {"refused", {{{"engine", "io_uring"}, {"reason", "no"}}}}}},
          {"points_wanted", 1}};
}

TEST(Setting, HasWhatIsUsedAndNothingElse) {
  EXPECT_NO_THROW(check_setting(valid_setting(), "board"));
  const auto refused = [](const char* pointer, const Json& value, const char* says) {
    Json setting = valid_setting();
    setting[Json::json_pointer(pointer)] = value;
    EXPECT_THAT(user_error_of([&] { check_setting(setting, "board"); }), HasSubstr(says));
  };
  refused("/complete", true, "complete");
  refused("/host", 5, "board: /host");
  refused("/target/size_bytes", -1, "/target/size_bytes");
  refused("/engine/name", nullptr, "/engine/name");
  refused("/engine/refused/0/reason", 5, "reason");
  refused("/engine/refused", 5, "/engine/refused");
  refused("/points_wanted", 0, "/points_wanted");
}

}  // namespace
}  // namespace kvreplay
