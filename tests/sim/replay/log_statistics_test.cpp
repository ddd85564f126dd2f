#include "sim/replay/log_statistics.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "sim/replay/experiment_request.hpp"
#include "sim/replay/replay.hpp"
#include "tests/support/synthetic_trace.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// Access logs of quest on a synthetic trace of two layers.
class LogStatisticsTest : public testing::Test {
 protected:
  LogStatisticsTest() {
    write_synthetic_trace(folder_.file("a.kvtrace.h5"), {.prompt = 128, .decode = 12});
    const json members = {
        {"title", "test"},
        {"trace", "a.kvtrace.h5"},
        {"system", "quest"},
        {"model", "smollm2-135m"},
        {"platform", "oneplus12"},
        {"device", "ufs40"},
        {"batch", 1},
        {"set", {{"system.stream.dense_layers", 0}, {"system.selection.budget_tokens", 32}}},
        {"warm_up_steps", 2}};
    std::ofstream(folder_.file("test.json")) << members;
    const ExperimentRequest request{folder_.file("test.json"), {}};
    std::filesystem::create_directory(folder_.file("logs"));
    ReplayOptions options;
    options.access_log_folder = folder_.file("logs");
    options.record_tokens = true;
    static_cast<void>(replay(request.load(), options));
  }

  TemporaryFolder folder_;
};

TEST_F(LogStatisticsTest, OfAllLayersOrOfEach) {
  const std::vector<std::string> files = access_logs_at(folder_.file("logs"));
  ASSERT_EQ(files.size(), 1U);
  EXPECT_EQ(access_logs_at(files.front()), files);
  const AccessLog log = read_access_log(files.front());
  const TraceReader trace(folder_.file("a.kvtrace.h5"));
  const std::vector<LogStatistics> each = log_statistics(log, &trace, true);
  const std::vector<LogStatistics> all = log_statistics(log, &trace, false);
  ASSERT_EQ(each.size(), 2U);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all.front().layer, "all");
  EXPECT_EQ(each.back().layer, "1");
  for (std::size_t i = 0; i < all.front().fields.size(); ++i) {
    const Mean& sum = all.front().fields[i].mean;
    EXPECT_EQ(sum.count, each[0].fields[i].mean.count + each[1].fields[i].mean.count);
    EXPECT_DOUBLE_EQ(sum.sum, each[0].fields[i].mean.sum + each[1].fields[i].mean.sum);
  }
  EXPECT_EQ(all.front().fields.front().name, "key_variance");
  EXPECT_GT(all.front().fields.front().mean.value(), 0);
}

TEST_F(LogStatisticsTest, WithoutATraceThereIsNoVariance) {
  const AccessLog log = read_access_log(access_logs_at(folder_.file("logs")).front());
  const std::vector<LogStatistics> rows = log_statistics(log, nullptr, false);
  const json parsed = json::parse(statistics_json(rows));
  EXPECT_TRUE(parsed[0]["key_variance"].is_null());
  EXPECT_EQ(parsed[0]["system"], "quest");
  EXPECT_GT(parsed[0]["sequence_read_bytes"], 0);
  const std::string table = statistics_table(rows);
  EXPECT_THAT(table, testing::StartsWith("system  layer  key_variance  selected_within_1  "));
  EXPECT_THAT(table, HasSubstr("\nquest     all             -  "));
}

TEST_F(LogStatisticsTest, AFolderWithoutLogs) {
  EXPECT_THAT(user_error_of([&] { static_cast<void>(access_logs_at(folder_.path().string())); }),
              HasSubstr("holds no access log"));
}

}  // namespace
}  // namespace kvreplay
