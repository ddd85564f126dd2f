// The probe: what it measures, with a real file and with engines that fail on purpose.

#include "devices/real/probe.hpp"

#include <gmock/gmock.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/devices/real/target_file.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::atomic<bool> kGoOn{false};

/// Completes the requests in order, one every `kStepNs` of a clock of its own, with `depth`
/// outstanding. The request `fail_at` fails.
class SteppingEngine final : public IoEngine {
 public:
  static constexpr std::int64_t kStepNs = 1000;

  [[nodiscard]] IoReport run(const IoSource& source, std::uint32_t depth) override {
    IoReport report;
    for (std::uint64_t index = 0;; ++index) {
      const std::optional<IoRequest> request = source(index);
      if (!request) return report;
      requests.push_back(*request);
      if (++total == fail_at) {
        report.failure = IoFailure{request->command, EIO, 0};
        return report;
      }
      const auto done = static_cast<std::int64_t>(index + 1) * kStepNs;
      const std::int64_t submitted = std::max<std::int64_t>(0, done - depth * kStepNs);
      report.completions.push_back({index, submitted, done, request->command.write});
    }
  }
  [[nodiscard]] std::string notes() const override { return "steps"; }

  std::vector<IoRequest> requests;
  std::uint64_t total = 0;
  std::uint64_t fail_at = 0;

 private:
  void begin(std::uint32_t /*slot*/, const IoRequest& /*request*/) override { ADD_FAILURE(); }
  void await(std::int64_t /*until_ns*/, std::vector<IoResult>& /*results*/) override {
    ADD_FAILURE();
  }
};

class ProbeTest : public test::TargetFile {
 protected:
  ProbeGrid small_grid() const {
    ProbeGrid grid;
    grid.sizes_bytes = {block_, 8 * block_};
    grid.depths = {1, 4};
    grid.seconds = 0.01;
    return grid;
  }
  static ProbeResult run(const BlockTarget& target, IoEngine& engine, const ProbeGrid& grid,
                         const std::atomic<bool>& stop = kGoOn) {
    return probe(target, engine, grid, stop);
  }
};

TEST(Summary, PercentilesAreOfTheRequestsThemselves) {
  std::vector<std::int64_t> latencies;
  for (std::int64_t i = 1000; i > 0; --i) latencies.push_back(i * 1000);
  const LatencySummary summary = summarise(latencies);
  EXPECT_EQ(summary.requests, 1000u);
  EXPECT_DOUBLE_EQ(summary.mean_us, 500.5);
  EXPECT_DOUBLE_EQ(summary.p50_us, 500);
  EXPECT_DOUBLE_EQ(summary.p90_us, 900);
  EXPECT_DOUBLE_EQ(summary.p95_us, 950);
  EXPECT_DOUBLE_EQ(summary.p99_us, 990);
  EXPECT_DOUBLE_EQ(summary.p999_us, 999);
  EXPECT_DOUBLE_EQ(summary.max_us, 1000);
  EXPECT_DOUBLE_EQ(summarise({7000}).p50_us, 7);
  EXPECT_EQ(summarise({}).requests, 0u);
}

TEST_F(ProbeTest, RateAndLatencyAreThoseOfTheEngine) {
  const BlockTarget target = BlockTarget::open(path_);
  SteppingEngine engine;
  const ProbeResult result = run(target, engine, small_grid());
  ASSERT_EQ(result.points.size(), 4u);
  EXPECT_TRUE(result.complete());
  for (const ProbePoint& point : result.points) {
    EXPECT_NEAR(point.iops, 1e6, 1);  // one request per microsecond
    EXPECT_NEAR(point.mb_s, point.bytes, 1e-3 * point.bytes);
    EXPECT_DOUBLE_EQ(point.latency.mean_us, point.depth);
    EXPECT_DOUBLE_EQ(point.latency.p99_us, point.depth);
    EXPECT_GE(point.latency.requests, point.depth + 8);
    EXPECT_FALSE(point.read_latency);
  }
  EXPECT_EQ(result.points[1].bytes, block_);
  EXPECT_EQ(result.points[1].depth, 4u);
}

/// Where there are few requests, completes all outstanding ones together with the last one of the
/// source.
class TogetherEngine final : public IoEngine {
 public:
  [[nodiscard]] IoReport run(const IoSource& source, std::uint32_t depth) override {
    IoReport report = steps_.run(source, depth);
    for (IoCompletion& completion : report.completions) {
      if (report.completions.size() > depth) break;
      completion.completed_ns = report.completions.back().completed_ns;
    }
    return report;
  }

 private:
  void begin(std::uint32_t /*slot*/, const IoRequest& /*request*/) override { ADD_FAILURE(); }
  void await(std::int64_t /*until_ns*/, std::vector<IoResult>& /*results*/) override {
    ADD_FAILURE();
  }

  SteppingEngine steps_;
};

TEST_F(ProbeTest, ABurstTellsWhetherTheFirstAreDoneFirst) {
  const BlockTarget target = BlockTarget::open(path_);
  SteppingEngine in_order;
  const ProbeResult ordered = run(target, in_order, small_grid());
  for (const ProbePoint& point : ordered.points) {
    EXPECT_EQ(point.burst.has_value(), point.depth == 4 && point.bytes == 8 * block_);
  }
  ASSERT_TRUE(ordered.points.back().burst);
  EXPECT_GE(ordered.points.back().burst->rounds, 3u);
  EXPECT_DOUBLE_EQ(ordered.points.back().burst->first_half_ms, 0.002);  // of 4 us each
  EXPECT_DOUBLE_EQ(ordered.points.back().burst->all_ms, 0.004);
  EXPECT_DOUBLE_EQ(ordered.points.back().burst->half_alone_ms, 0.002);
  EXPECT_DOUBLE_EQ(ordered.points.back().burst->mixing().value(), 0);

  TogetherEngine together;
  const ProbeResult mixed = run(target, together, small_grid());
  ASSERT_TRUE(mixed.points.back().burst);
  EXPECT_DOUBLE_EQ(mixed.points.back().burst->mixing().value(), 1);
  EXPECT_DOUBLE_EQ(to_json(mixed.points.back()).at("burst").at("mixing").get<double>(), 1);
  EXPECT_FALSE(to_json(mixed.points.front()).contains("burst"));
}

TEST(BurstTest, TellsNothingOfADeviceThatDoesAllAtOnce) {
  // By hand: (first half - half alone) / (all - half alone).
  EXPECT_DOUBLE_EQ((Burst{3, 4, 7, 8}).mixing().value(), 0.75);
  EXPECT_FALSE((Burst{3, 8, 8, 8}).mixing());
  EXPECT_FALSE((Burst{3, 7, 8, 9}).mixing());
}

TEST_F(ProbeTest, WritesMakeNoBurst) {
  const BlockTarget target = BlockTarget::open_destructive(path_);
  SteppingEngine engine;
  ProbeGrid grid = small_grid();
  grid.write_shares = {1, 0.5};
  for (const ProbePoint& point : run(target, engine, grid).points) EXPECT_FALSE(point.burst);
}

TEST_F(ProbeTest, ABurstThatFailsKeepsItsPoint) {
  const BlockTarget target = BlockTarget::open(path_);
  SteppingEngine counting;
  ProbeGrid grid = small_grid();
  grid.seconds = 0;
  (void)run(target, counting, grid);
  SteppingEngine engine;
  engine.fail_at = counting.total;  // in the third round
  const ProbeResult result = run(target, engine, grid);
  EXPECT_EQ(result.points.size(), 4u);
  EXPECT_FALSE(result.complete());
  ASSERT_TRUE(result.points.back().burst);
  EXPECT_EQ(result.points.back().burst->rounds, 2u);
}

TEST_F(ProbeTest, RequestsAreAlignedCoverTheTargetAndStayInMemory) {
  const BlockTarget target = BlockTarget::open_destructive(path_);
  SteppingEngine engine;
  ProbeGrid grid = small_grid();
  grid.sizes_bytes = {8 * block_};
  grid.depths = {4};
  grid.write_shares = {0.25};
  const ProbeResult result = run(target, engine, grid);
  std::uint64_t writes = 0;
  std::vector<int> eighths(8);
  for (const IoRequest& request : engine.requests) {
    EXPECT_NO_THROW(target.check(request.command));
    EXPECT_LE(request.memory_offset + request.command.bytes, grid.memory_bytes());
    writes += request.command.write ? 1 : 0;
    ++eighths[request.command.offset * 8 / kBytes];
  }
  const auto count = static_cast<double>(engine.requests.size());
  ASSERT_GT(count, 1000);
  EXPECT_NEAR(static_cast<double>(writes) / count, 0.25, 0.06);
  for (const int in_eighth : eighths) EXPECT_NEAR(in_eighth / count, 0.125, 0.05);
  ASSERT_TRUE(result.points[0].read_latency && result.points[0].write_latency);
  EXPECT_EQ(result.points[0].read_latency->requests + result.points[0].write_latency->requests,
            result.points[0].latency.requests);
}

TEST_F(ProbeTest, MoreMemoryThanTheDepthsIsUsedInTurn) {
  const BlockTarget target = BlockTarget::open(path_);
  for (const std::size_t buffers : {0, 3, 4, 10}) {
    SteppingEngine engine;
    ProbeGrid grid = small_grid();
    grid.sizes_bytes = {8 * block_};
    grid.depths = {4};
    grid.min_memory_bytes = buffers * 8 * block_;
    (void)run(target, engine, grid);
    const std::size_t used = std::max<std::size_t>(buffers, 4);
    EXPECT_EQ(grid.memory_bytes(), used * 8 * block_);
    for (std::size_t i = 0; i < 3 * used; ++i) {
      EXPECT_EQ(engine.requests[i].memory_offset, i % used * 8 * block_);
    }
  }
}

TEST_F(ProbeTest, InSequenceEachRequestFollowsTheLast) {
  const BlockTarget target = BlockTarget::open(path_);
  SteppingEngine engine;
  ProbeGrid grid = small_grid();
  grid.patterns = {Pattern::kSequential};
  grid.sizes_bytes = {8 * block_};
  grid.depths = {4};
  (void)run(target, engine, grid);
  for (std::size_t i = 0; i < engine.requests.size(); ++i) {
    EXPECT_EQ(engine.requests[i].command.offset, i * 8 * block_ % kBytes);
  }
}

TEST_F(ProbeTest, AFailureKeepsThePointsBeforeIt) {
  const BlockTarget target = BlockTarget::open(path_);
  SteppingEngine counting;
  ProbeGrid grid = small_grid();
  grid.seconds = 0;  // the least number of requests per point
  (void)run(target, counting, grid);
  SteppingEngine engine;
  engine.fail_at = counting.total - 3 * (4 + 2) - 2;  // before the bursts
  const ProbeResult result = run(target, engine, grid);
  EXPECT_EQ(result.points.size(), 3u);
  EXPECT_FALSE(result.complete());
  ASSERT_TRUE(result.failure);
  EXPECT_THAT(std::string(result.failure->to_error(target.path()).what()),
              AllOf(HasSubstr(path_), HasSubstr("read of"), HasSubstr("Input/output error")));
}

TEST(ProbeDocument, SaysWhetherItIsComplete) {
  const nlohmann::ordered_json setting{{"target", {{"path", "/dev/x"}}}, {"points_wanted", 4}};
  const std::vector<nlohmann::ordered_json> points(3, {{"iops", 1.0}});
  const auto document = [&](const std::string& ended_by) {
    return nlohmann::json::parse(probe_document(setting, points, {ended_by, {{"z", 40}}}, "test"));
  };
  EXPECT_EQ(document("")["complete"], true);
  EXPECT_FALSE(document("").contains("ended_by"));
  const auto cut_short = document("the link was lost");
  EXPECT_EQ(cut_short["complete"], false);
  EXPECT_EQ(cut_short["ended_by"], "the link was lost");
  EXPECT_EQ(cut_short["points"].size(), 3u);
  EXPECT_EQ(cut_short["points_wanted"], 4);
  EXPECT_EQ(cut_short["host"]["temperatures_after"][0]["celsius"], 40.0);
}

TEST_F(ProbeTest, AnInterruptKeepsThePointsBeforeIt) {
  const BlockTarget target = BlockTarget::open(path_);
  const std::atomic<bool> stop{true};
  SteppingEngine engine;
  const ProbeResult result = run(target, engine, small_grid(), stop);
  EXPECT_TRUE(result.points.empty());
  EXPECT_TRUE(result.interrupted);
  EXPECT_TRUE(engine.requests.empty());
}

TEST_F(ProbeTest, RefusesWhatTheTargetCannotDoBeforeTheFirstRequest) {
  const BlockTarget target = BlockTarget::open(path_);
  SteppingEngine engine;
  const auto error_of = [&](std::uint32_t bytes, double write_share) {
    ProbeGrid grid = small_grid();
    grid.sizes_bytes.push_back(bytes);
    grid.write_shares = {0, write_share};
    return user_error_of([&] { (void)run(target, engine, grid); });
  };
  EXPECT_THAT(error_of(block_ + 1, 0), HasSubstr("is not aligned"));
  EXPECT_THAT(error_of(2 * kBytes, 0), HasSubstr("passes its end"));
  EXPECT_THAT(error_of(block_, 0.5), HasSubstr("--allow-destructive"));
  EXPECT_TRUE(engine.requests.empty());
}

TEST_F(ProbeTest, ARealFileWithTheEngineOfTheSystem) {
  const BlockTarget target = BlockTarget::open(path_);
  nlohmann::ordered_json setting;
  std::vector<nlohmann::ordered_json> points;
  const ProbeSink sink{[&](const auto& json) { setting = json; },
                       [&](const auto& json) { points.push_back(json); }};
  const ProbeEnd end = run_probe(target, {small_grid(), "", Pages::kOrdinary}, kGoOn, sink);
  EXPECT_EQ(end.ended_by, "");
  ASSERT_EQ(points.size(), setting["points_wanted"]);
  for (const auto& point : points) {
    EXPECT_GT(point["iops"], 0);
    EXPECT_GT(point["p50_us"], 0);
    EXPECT_LE(point["p50_us"], point["p99_us"]);
    EXPECT_LE(point["p99_us"], point["max_us"]);
  }
  EXPECT_EQ(setting["engine"]["name"], choose_engine(target, "").name);
  EXPECT_EQ(setting["target"]["size_bytes"], kBytes);
  EXPECT_THAT(setting["target"]["direct_io_proof"],
              testing::AnyOf("/proc/thread-self/io", "mincore"));
  EXPECT_FALSE(setting["host"]["kernel"].get<std::string>().empty());
}

TEST_F(ProbeTest, MoreMemoryThanThereIsIsToldBeforeTheFirstRequest) {
  const BlockTarget target = BlockTarget::open(path_);
  ProbeRequest request{small_grid(), engine_preference().back(), Pages::kOrdinary};
  request.grid.sizes_bytes.push_back(64 << 20);
  request.grid.depths.push_back(1 << 24);  // 1 PiB
  const ProbeSink sink{[](const auto&) { ADD_FAILURE(); }, [](const auto&) { ADD_FAILURE(); }};
  EXPECT_THAT(user_error_of([&] { (void)run_probe(target, request, kGoOn, sink); }),
              AllOf(HasSubstr("--size, --depth: found 67108864 bytes in 16777216 requests"),
                    HasSubstr("1125899906842624 bytes of memory; allowed: ")));
}

TEST(Host, TemperaturesOfTheZonesThatTell) {
  const TemporaryFolder folder;
  const auto zone = [&](const std::string& name) {
    std::filesystem::create_directory(folder.file(name));
    return folder.file(name);
  };
  std::ofstream(zone("thermal_zone1") + "/type") << "ufs\n";
  std::ofstream(folder.file("thermal_zone1/temp")) << "41500\n";
  std::ofstream(zone("thermal_zone0") + "/type") << "asleep\n";  // no temp
  std::ofstream(zone("cooling_device0") + "/temp") << "1\n";
  const std::vector<Temperature> found = temperatures(folder.path().string());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].zone, "ufs");
  EXPECT_DOUBLE_EQ(found[0].celsius, 41.5);
  EXPECT_TRUE(temperatures(folder.file("none")).empty());
}

TEST(Host, KnowsFileSystemAndFreeSpace) {
  EXPECT_THAT(file_system_of("/proc"), HasSubstr("proc"));
  EXPECT_EQ(file_system_of("/no/such/path"), "");
  EXPECT_GT(free_bytes("/"), 0u);
  EXPECT_FALSE(free_bytes("/no/such/path"));
  EXPECT_GT(host_facts().page_bytes, 0);
}

}  // namespace
}  // namespace kvreplay
