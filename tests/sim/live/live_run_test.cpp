// A live run against the closed loop, against stage 2, and against a replay of what it recorded.

#include "sim/live/live_run.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/build_info.hpp"
#include "policies/adapters/adapt.hpp"
#include "policies/decide/trace_adapters.hpp"
#include "sim/live/live_target.hpp"
#include "sim/models/closed_loop.hpp"
#include "sim/models/record.hpp"
#include "tests/support/random_model.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kPrompt = 120;
constexpr std::int64_t kSteps = 40;

/// What small budgets mean for each system, as in configs/experiments/all_systems.json.
ConfigNode small(ConfigNode node) {
  const auto set = [&](const char* role, const char* name, const char* value) {
    if (node.at(role).has(name)) node = node.with(std::string(role) + "." + name, value);
  };
  set("selection", "budget_tokens", "24");
  set("selection", "budget_share", "0.2");
  set("grouping", "tokens_per_cluster", "8");
  set("grouping", "window_tokens", "16");
  set("grouping", "outlier_chunks", "2");
  set("grouping", "max_buffered_tokens", "6");
  set("stream", "sink_tokens", "2");
  set("stream", "recent_tokens", "8");
  set("stream", "window_queries", "16");
  set("scoring", "sigma", "3");
  set("cache", "capacity_groups", "12");
  set("cache", "capacity_bytes", "1500");
  set("cache", "capacity_blocks", "4");
  if (node.at("cache").at("part").text() == "token_blocks") {
    node = node.with("cache.block_tokens", "8");
  }
  if (node.at("grouping").at("part").text() == "global") {
    node = node.with("grouping.period_tokens", "16");
  }
  return node;
}

SystemSpec system_named(const std::string& name) {
  const std::string file = source_folder() + "/configs/systems/" + name + ".json";
  return as_live_runs_it(SystemSpec::parse(small(ConfigNode::load(file)), name));
}

/// An engine that serves requests at once until a certain one, which ends as told.
class FailingEngine final : public IoEngine {
 public:
  explicit FailingEngine(const Context& context) : context_(context) {}

  static inline std::int64_t left = 0;     // good requests of the kind
  static inline bool writes = false;       // which kind
  static inline std::int64_t outcome = 0;  // of the bad one: -errno, or bytes

 private:
  void begin(std::uint32_t slot, const IoRequest& request) override {
    const auto [offset, bytes, write] = request.command;
    std::byte* at = context_.memory.data() + request.memory_offset;
    const int file = context_.target.descriptor();
    std::int64_t result = write ? ::pwrite(file, at, bytes, static_cast<off_t>(offset))
                                : ::pread(file, at, bytes, static_cast<off_t>(offset));
    if (write == writes && left-- == 0) result = outcome;
    done_.push_back({slot, result, monotonic_ns()});
  }
  void await(std::int64_t, std::vector<IoResult>& results) override {
    results.insert(results.end(), done_.begin(), done_.end());
    done_.clear();
  }

  Context context_;
  std::vector<IoResult> done_;
};

const Registered<IoEngine> kFailing({
    .name = "failing",
    .help = "a test's",
    .source = "ours",
    .parameters = {},
    .make = [](const Arguments&, const IoEngine::Context& context) -> std::unique_ptr<IoEngine> {
      return std::make_unique<FailingEngine>(context);
    },
});

class LiveRunTest : public testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    write_random_model(folder_->file("random.kvmodel"), {.layers = 4});
    model_ = std::make_shared<const Model>(folder_->file("random.kvmodel"));
    Random random(5);
    ids_.clear();
    for (std::int64_t i = 0; i < kPrompt + kSteps; ++i) {
      ids_.push_back(static_cast<std::int32_t>(random.below(101)));
    }
    const auto record = [&](const std::string& name, std::uint64_t seed) {
      Random other(seed);
      std::vector<std::int32_t> ids;
      for (std::int64_t i = 0; i < 200; ++i) {
        ids.push_back(static_cast<std::int32_t>(other.below(101)));
      }
      record_trace(*model_,
                   {.ids = ids,
                    .prompt_tokens = 180,
                    .steps = 20,
                    .text_source = name,

                    .show_progress = false},
                   folder_->file(name));
    };
    record("other.kvtrace.h5", 7);
    record("own.kvtrace.h5", 8);
    adapt_trace(TraceReader(folder_->file("other.kvtrace.h5")),
                TraceReader(folder_->file("own.kvtrace.h5")), {.rank = 48},
                folder_->file("adapted.kvtrace.h5"));
    trace_ = std::make_unique<TraceReader>(folder_->file("adapted.kvtrace.h5"));
    adapters_ = std::make_shared<TraceAdapters>(*trace_, "a system");
  }
  static void TearDownTestSuite() {
    adapters_.reset();
    trace_.reset();
    model_.reset();
    folder_.reset();
  }

  std::shared_ptr<const BlockTarget> target(std::uint64_t bytes = 16 << 20) {
    std::filesystem::remove(folder_->file("target"));
    try {
      return std::make_shared<const BlockTarget>(
          BlockTarget::create(folder_->file("target"), bytes));
    } catch (const UserError&) {
      return nullptr;
    }
  }
  static LiveOptions options() {
    return {.text = {.ids = ids_, .source = "random", .sha256 = {}},
            .prompt_tokens = kPrompt,
            .steps = kSteps,
            .query_window = 16,
            .threads = 2,
            .check = true};
  }
  static LiveResult run(const SystemSpec& system, const std::shared_ptr<const BlockTarget>& on,
                        const LiveOptions& live, const LiveRequest& request = {}) {
    std::atomic<bool> stop{false};
    return run_live_on(model_, system, on, request, live, adapters_, stop).result;
  }
  static ClosedLoopRun closed_loop(const SystemSpec& system, const std::vector<std::int32_t>& ids) {
    const NamedDecideSpec named{system.name, system.decide};
    return run_closed_loop(*model_, {&named, 1},
                           {.ids = ids,
                            .prompt_tokens = kPrompt,
                            .steps = kSteps,
                            .query_window = 16,
                            .adapters = adapters_.get(),
                            .threads = 2})
        .systems.front();
  }

  static inline std::unique_ptr<TemporaryFolder> folder_;
  static inline std::shared_ptr<const Model> model_;
  static inline std::vector<std::int32_t> ids_;
  static inline std::unique_ptr<TraceReader> trace_;
  static inline std::shared_ptr<const TraceAdapters> adapters_;
};

/// The systems of all_systems whose entries are outside memory.
std::vector<std::string> systems_on_a_target() {
  return {"flexgen",
          "quest",
          "clusterkv",
          "pqcache",
          "shadowkv",
          "infinigen",
          "infinigen_star",
          "infinigen_star_ru",
          "loki",
          "kvswap",
          "kvswap_no_reuse",
          "kvswap_no_rolling_buffer",
          "kvswap_per_head",
          "kvswap_exact_keys",
          "dynakv",
          "dynakv_local",
          "dynakv_static",
          "dynakv_global",
          "token_exact",
          "cross_dynakv_fifo",
          "cross_clusterkv_s3fifo_dual_head",
          "cross_kvswap_fp8"};
}

/// What decisions are of a log, as text of the first difference; "" where there is none.
std::string difference(const AccessLog& a, const AccessLog& b) {
  if (a.steps != b.steps || a.layers.size() != b.layers.size()) return "shape";
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    for (std::size_t s = 0; s < a.layers[i].streams.size(); ++s) {
      const StreamLog& x = a.layers[i].streams[s];
      const StreamLog& y = b.layers[i].streams[s];
      const std::string where = "layer " + std::to_string(i) + " stream " + std::to_string(s);
      if (x.event_kind != y.event_kind || x.event_group != y.event_group ||
          x.event_tokens != y.event_tokens || x.event_begin != y.event_begin) {
        return where + ": events";
      }
      if (x.picked != y.picked || x.last_picked != y.last_picked ||
          x.last_tokens != y.last_tokens) {
        return where + ": picks";
      }
      if (x.requested != y.requested) return where + ": requests";
      if (x.attended_count != y.attended_count) return where + ": attended tokens";
    }
  }
  return "";
}

/// Every third system, or with LONG_TESTS all of them.
bool is_taken(const std::string& name) {
  const std::vector<std::string> all = systems_on_a_target();
  const auto place = std::find(all.begin(), all.end(), name) - all.begin();
  return place % 3 == 0 || std::getenv("LONG_TESTS") != nullptr;
}

TEST_P(LiveRunTest, IsTheClosedLoopAndReadsWhatStageTwoPlans) {
  if (!is_taken(GetParam())) GTEST_SKIP() << "takes LONG_TESTS=1";
  const auto on = target();
  if (!on) GTEST_SKIP() << "no direct I/O in the temporary folder (set TMPDIR)";
  const SystemSpec system = system_named(GetParam());
  // check: every entry that is read, and all extents.
  const LiveResult live = run(system, on, options());
  const ClosedLoopRun loop = closed_loop(system, ids_);
  EXPECT_EQ(live.likeliest, loop.likeliest);
  EXPECT_EQ(live.log_probability, loop.log_probability);
  EXPECT_GT(live.checked_entries, 0);
  ASSERT_EQ(std::ssize(live.steps), kSteps);
  std::int64_t read = 0;
  for (const StepTiming& step : live.steps) read += step.read_bytes;
  EXPECT_GT(read, 0);
}

TEST_P(LiveRunTest, GeneratesAndAReplayOfItsTraceDecidesAlike) {
  if (!is_taken(GetParam())) GTEST_SKIP() << "takes LONG_TESTS=1";
  const auto on = target();
  if (!on) GTEST_SKIP() << "no direct I/O in the temporary folder (set TMPDIR)";
  const SystemSpec system = system_named(GetParam());
  LiveOptions live_options = options();
  live_options.sampling = SamplingOptions{.temperature = 0};
  const LiveResult generated = run(system, on, live_options);
  const std::vector<std::int32_t> said(generated.ids.begin() + kPrompt + 1, generated.ids.end());
  EXPECT_EQ(said,
            std::vector<std::int32_t>(generated.likeliest.begin(), generated.likeliest.end() - 1));
  EXPECT_EQ(closed_loop(system, generated.ids).likeliest, generated.likeliest);

  const std::string recorded = folder_->file("recorded.kvtrace.h5");
  const std::string file = folder_->file("replayed.kvtrace.h5");
  std::filesystem::remove(recorded);
  std::filesystem::remove(file);
  live_options.record = recorded;
  live_options.created_utc = "1970-01-01T00:00:00Z";
  const LiveResult live = run(system, target(), live_options);
  adapt_trace(TraceReader(folder_->file("other.kvtrace.h5")), TraceReader(recorded), {.rank = 48},
              file);
  const NamedDecideSpec named{system.name, system.decide};
  const std::vector<AccessLog> logs = decide(TraceReader(file), {&named, 1}, {});
  EXPECT_EQ(difference(live.log, logs.front()), "");
  const std::vector<std::int32_t> ids = TraceReader(file).token_ids();
  EXPECT_EQ(ids, live.ids);
}

INSTANTIATE_TEST_SUITE_P(Systems, LiveRunTest, testing::ValuesIn(systems_on_a_target()),
                         [](const auto& instance) { return instance.param; });

using LiveTest = LiveRunTest;

TEST_F(LiveTest, InMemoryIsTheClosedLoopToo) {
  for (const char* name : {"in_memory", "streaming_llm", "kivi_4"}) {
    SCOPED_TRACE(name);
    const std::string file = source_folder() + "/configs/systems/" + name + ".json";
    ConfigNode node = ConfigNode::load(file);
    if (std::string(name) == "kivi_4") {
      node = node.with("precision.group_size", "16").with("precision.residual_tokens", "32");
    }
    const SystemSpec system = SystemSpec::parse(node, name);
    const LiveResult live = run(system, nullptr, options());
    const ClosedLoopRun loop = closed_loop(system, ids_);
    EXPECT_EQ(live.likeliest, loop.likeliest);
    EXPECT_EQ(live.log_probability, loop.log_probability);
  }
}

TEST_F(LiveTest, ItsTraceTellsHowAttentionEntersTheResidualStream) {
  const std::string path = source_folder() + "/configs/systems/streaming_llm.json";
  const SystemSpec system = SystemSpec::parse(
      ConfigNode::load(path).with("retention.window_tokens", "40"), "streaming_llm");
  LiveOptions live = options();
  live.record = folder_->file("lived.kvtrace.h5");
  live.created_utc = "1970-01-01T00:00:00Z";
  (void)run(system, nullptr, live);
  const std::string followed = folder_->file("followed.kvtrace.h5");
  record_trace(*model_,
               {.ids = ids_,
                .prompt_tokens = kPrompt,
                .steps = kSteps,
                .query_window = 16,
                .show_progress = false},
               followed);
  const TraceReader own(live.record);
  const TraceReader full(followed);
  own.verify();
  for (std::int64_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    const OutputWeights a = own.load_output_weights(i).value();
    const OutputWeights b = full.load_output_weights(i).value();
    EXPECT_EQ(a.sketch, b.sketch);
    ASSERT_EQ(a.residual_norm.size(), 16U + kSteps);
    // The prompt is under full attention in both; the steps are those of the system.
    EXPECT_TRUE(
        std::equal(a.residual_norm.begin(), a.residual_norm.begin() + 16, b.residual_norm.begin()));
    EXPECT_FALSE(std::equal(a.residual_norm.begin() + 16, a.residual_norm.end(),
                            b.residual_norm.begin() + 16));
    for (std::size_t k = 16; k < a.residual_norm.size(); ++k) {
      EXPECT_NEAR(a.residual_norm[k] / b.residual_norm[k], 1, 0.5);
    }
  }
}

TEST_F(LiveTest, EveryEngineDepthAndThreadCountSaysTheSame) {
  const auto on = target();
  if (!on) GTEST_SKIP() << "no direct I/O in the temporary folder (set TMPDIR)";
  const SystemSpec system = system_named("dynakv");
  const LiveResult reference = run(system, on, options());
  for (const char* engine : {"sync", "threads"}) {
    SCOPED_TRACE(engine);
    LiveOptions other = options();
    other.threads = 1;
    const LiveResult live = run(
        system, target(), other,
        {.engine = engine,
         .limits = {.logical_block_bytes = 4096, .max_transfer_bytes = 8192, .queue_depth = 2}});
    EXPECT_EQ(live.log_probability, reference.log_probability);
    EXPECT_EQ(difference(live.log, reference.log), "");
  }
}

TEST_F(LiveTest, ATargetThatIsTooSmallIsNamed) {
  const auto small_target = target(1 << 20);
  if (!small_target) GTEST_SKIP() << "no direct I/O in the temporary folder (set TMPDIR)";
  EXPECT_THAT(user_error_of([&] { run(system_named("flexgen"), small_target, options()); }),
              testing::AllOf(testing::HasSubstr("target"), testing::HasSubstr("too small")));
}

TEST_F(LiveTest, AFileThatIsCutShortEndsTheRunWithItsName) {
  const auto on = target();
  if (!on) GTEST_SKIP() << "no direct I/O in the temporary folder (set TMPDIR)";
  const LiveIo::Options io{.engine = "sync", .limits = {.queue_depth = 1}};
  LiveOptions cut = options();
  cut.on_token = [&](std::int32_t) { std::filesystem::resize_file(on->descriptor_path(), 0); };
  EXPECT_THAT(
      user_error_of([&] { (void)run_live(*model_, system_named("flexgen"), on.get(), io, cut); }),
      testing::AnyOf(testing::HasSubstr("transferred only"), testing::HasSubstr("failed"),
                     testing::HasSubstr("came back with other bytes")));
}

TEST_F(LiveTest, AFailedRequestEndsTheRunWithItsName) {
  const auto on = target();
  if (!on) GTEST_SKIP() << "no direct I/O in the temporary folder (set TMPDIR)";
  struct Fault {
    const char* system;
    bool writes;
    std::int64_t good;
    std::int64_t outcome;
    const char* says;
  };
  for (const Fault& fault : {Fault{"quest", false, 9, -EIO, "Input/output error"},
                             Fault{"quest", false, 9, 100, "transferred only 100"},
                             Fault{"quest", true, 0, -ENOSPC, "No space left"},
                             Fault{"dynakv", true, 30, -EIO, "Input/output error"},
                             Fault{"dynakv_global", false, 200, -EIO, "Input/output error"}}) {
    SCOPED_TRACE(fault.says);
    FailingEngine::left = fault.good;
    FailingEngine::writes = fault.writes;
    FailingEngine::outcome = fault.outcome;
    LiveIo::Options io{.engine = "failing", .limits = {}};
    LiveOptions live = options();
    live.adapters = adapters_.get();
    EXPECT_THAT(user_error_of([&] {
                  (void)run_live(*model_, system_named(fault.system), on.get(), io, live);
                }),
                testing::AllOf(testing::HasSubstr("target"), testing::HasSubstr(fault.says)));
  }
}

TEST_F(LiveTest, AStopKeepsTheStepsThatEnded) {
  const auto on = target();
  if (!on) GTEST_SKIP() << "no direct I/O in the temporary folder (set TMPDIR)";
  std::atomic<bool> stop{false};
  LiveIo::Options io{.engine = "sync", .limits = {.queue_depth = 1}};
  LiveOptions stopped = options();
  stopped.stop = &stop;
  std::int64_t tokens = 0;
  stopped.on_token = [&](std::int32_t) {
    if (++tokens == 5) stop = true;
  };
  const LiveResult live = run_live(*model_, system_named("quest"), on.get(), io, stopped);
  EXPECT_EQ(live.steps.size(), 5u);
  EXPECT_TRUE(live.interrupted);
}

TEST_F(LiveTest, WhatLiveCannotStoreIsRefused) {
  const auto on = target();
  if (!on) GTEST_SKIP() << "no direct I/O in the temporary folder (set TMPDIR)";
  const auto error = [&](const char* member, const char* json) {
    const std::string file = source_folder() + "/configs/systems/quest.json";
    const SystemSpec system =
        SystemSpec::parse(small(ConfigNode::load(file)).with(member, json), "quest");
    return user_error_of([&] { run(system, on, options()); });
  };
  EXPECT_THAT(error("precision", R"({"part": "kivi", "group_size": 16, "residual_tokens": 32})"),
              testing::HasSubstr("low_rank_keys"));
  EXPECT_THAT(error("retention", R"({"part": "sinks_and_window"})"),
              testing::HasSubstr("evicts only"));
  EXPECT_THAT(error("cache", R"({"part": "belady", "capacity_groups": 4})"),
              testing::HasSubstr("future"));
  EXPECT_THAT(error("layout", R"({"part": "packed"})"), testing::HasSubstr("dual_head"));
}

}  // namespace
}  // namespace kvreplay
