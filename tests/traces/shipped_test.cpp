#include "traces/shipped.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

TEST(ShippedTest, NamesAreFiles) {
  for (const ShippedTrace& trace : shipped_traces()) {
    EXPECT_TRUE(std::filesystem::exists(trace.file));
    EXPECT_EQ(find_trace(trace.name, {}), trace.file);
  }
  EXPECT_THAT(find_trace("story", {}), EndsWith("traces/data/smollm2-135m-story-3k.kvtrace.h5"));
  EXPECT_THAT(find_trace("dialogue", {}), EndsWith("smollm2-135m-dialogue-6k.kvtrace.h5"));
  EXPECT_EQ(find_trace("smollm2-135m-story-3k", {}), find_trace("story", {}));
  EXPECT_EQ(find_trace("chat-4k-qwen2.5-coder-1.5b", {}), find_trace("chat", {}));
}

TEST(ShippedTest, PathsAreTakenAsTheyAre) {
  for (const char* path : {"story.kvtrace.h5", "./story", "data/story", "/none/at/all"}) {
    EXPECT_EQ(find_trace(path, {}), path);
  }
}

TEST(ShippedTest, AnUnknownNameNamesTheNearest) {
  EXPECT_THAT(user_error_of([] {
                (void)find_trace("stroy", {"TRACE", ""});
              }),
              AllOf(HasSubstr("TRACE"), HasSubstr("'stroy'"), HasSubstr("story")));
  // Every trace is of this model.
  EXPECT_THAT(user_error_of([] { (void)find_trace("smollm2", {}); }), HasSubstr("dialogue, story"));
}

}  // namespace
}  // namespace kvreplay
