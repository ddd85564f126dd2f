// The probe: what it measures, with a real file and with engines that fail on purpose.

#include "devices/real/probe.hpp"

#include <gmock/gmock.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "devices/real/aligned_buffer.hpp"
#include "tests/devices/real/target_file.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::atomic<bool> kNeverStop{false};

/// Completes every request in turn, one every `kStepNs` of a clock of its own, `depth` outstanding;
/// fails the request `fail_at`.
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
                         const std::atomic<bool>& stop = kNeverStop) {
    Progress progress("probe", 1);
    return probe(target, engine, grid, stop, progress);
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
  EXPECT_FALSE(result.partial());
  for (const ProbePoint& point : result.points) {
    EXPECT_NEAR(point.iops, 1e6, 1);  // a request a microsecond
    EXPECT_NEAR(point.mb_s, point.bytes, 1e-3 * point.bytes);
    EXPECT_DOUBLE_EQ(point.latency.mean_us, point.depth);
    EXPECT_DOUBLE_EQ(point.latency.p99_us, point.depth);
    EXPECT_GE(point.latency.requests, point.depth + 8);
    EXPECT_FALSE(point.read_latency);
  }
  EXPECT_EQ(result.points[1].bytes, block_);
  EXPECT_EQ(result.points[1].depth, 4u);
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
  grid.seconds = 0;  // the least number of requests a point
  (void)run(target, counting, grid);
  SteppingEngine engine;
  engine.fail_at = counting.total - 2;
  const ProbeResult result = run(target, engine, grid);
  EXPECT_EQ(result.points.size(), 3u);
  EXPECT_TRUE(result.partial());
  const std::string json = probe_json(result, grid, target, {"steps", {}}, "", "test");
  const nlohmann::json parsed = nlohmann::json::parse(json);
  EXPECT_EQ(parsed["partial"], true);
  EXPECT_THAT(parsed["ended_by"].get<std::string>(),
              AllOf(HasSubstr(path_), HasSubstr("read of"), HasSubstr("Input/output error")));
  EXPECT_EQ(parsed["points"].size(), 3u);
  EXPECT_EQ(parsed["points_wanted"], 4);
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
  const EngineChoice choice = choose_engine(target, "");
  ProbeGrid grid = small_grid();
  if (choice.name == "sync") grid.depths = {1};
  const AlignedBuffer memory(grid.memory_bytes(), target.alignment().memory_bytes);
  const auto engine =
      Chosen<IoEngine>::by_name(choice.name).make({target, memory.bytes(), grid.greatest_depth()});
  const ProbeResult result = run(target, *engine, grid);
  ASSERT_EQ(result.points.size(), grid.points());
  for (const ProbePoint& point : result.points) {
    EXPECT_GT(point.iops, 0);
    EXPECT_GT(point.latency.p50_us, 0);
    EXPECT_LE(point.latency.p50_us, point.latency.p99_us);
    EXPECT_LE(point.latency.p99_us, point.latency.max_us);
  }
  const auto json = nlohmann::json::parse(
      probe_json(result, grid, target, choice, engine->notes(), "kvreplay test"));
  EXPECT_EQ(json["partial"], false);
  EXPECT_EQ(json["engine"]["name"], choice.name);
  EXPECT_EQ(json["target"]["size_bytes"], kBytes);
  EXPECT_THAT(json["target"]["direct_io_proof"], testing::AnyOf("/proc/thread-self/io", "mincore"));
  EXPECT_FALSE(json["host"]["kernel"].get<std::string>().empty());
  EXPECT_GT(json["points"][0]["iops"], 0);
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
