#include "sim/time/timeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "sim/time/time_plan.hpp"
#include "tests/devices/flash/flash_spec.hpp"
#include "tests/sim/sim_specs.hpp"

namespace kvreplay {
namespace {

using nlohmann::json;

/// Reads that grow with the step, and writes.
IoPlan plan_of_steps(std::int64_t steps) {
  IoPlan plan{"test", tiny_model().kv_kinds(), 100, steps, 0, {}};
  LayerPlan& layer = plan.layers.emplace_back();
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto bytes = static_cast<std::uint64_t>(step + 1) * 8192;
    add_step(layer, {{0, bytes}, {1 << 19, 4096}}, {{900'000, 4096}}, 20);
    layer.compute.score_flops.back() = 1000;
  }
  layer.io.region_bytes = 1 << 20;
  layer.dram.entries_bytes = (100 + steps) * 128;
  return plan;
}

PartConfig<Pipeline> pipeline(const std::string& text) {
  return PartConfig<Pipeline>::parse(ConfigNode::parse(text, "test.json"));
}

const std::vector<std::string> kPipelines{R"({"part": "serial"})", R"({"part": "layer_prefetch"})",
                                          R"({"part": "layer_prefetch", "depth": 3})",
                                          R"({"part": "two_stage", "index_on_flash": false})"};

Timing timeline_on(const std::string& text, std::int64_t batch, Timeline* timeline) {
  return time_plan(plan_of_steps(5), tiny_model(), tiny_platform(), test::flash(), pipeline(text),
                   {.batch = batch, .timed_steps = 0, .timeline = timeline});
}

struct Span {
  double begin;
  double end;
  json event;
};

/// By thread, in order of their begin; of spans that begin together, the longest first.
std::map<std::int64_t, std::vector<Span>> spans_of(const json& events) {
  std::map<std::int64_t, std::vector<Span>> spans;
  for (const json& event : events) {
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts");
    spans[event.at("tid")].push_back({begin, begin + event.at("dur").get<double>(), event});
  }
  for (auto& [thread, list] : spans) {
    std::stable_sort(list.begin(), list.end(), [](const Span& a, const Span& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
  }
  return spans;
}

constexpr double kRounding = 1e-6;  // of microseconds in binary

TEST(Timeline, ChangesNoTiming) {
  for (const std::string& text : kPipelines) {
    const Timing without = timeline_on(text, 2, nullptr);
    Timeline timeline(2);
    const Timing with = timeline_on(text, 2, &timeline);
    ASSERT_EQ(with.steps.size(), without.steps.size());
    for (std::size_t i = 0; i < with.steps.size(); ++i) {
      EXPECT_EQ(with.steps[i].latency_ns, without.steps[i].latency_ns);
      EXPECT_EQ(with.steps[i].busy_io_ns, without.steps[i].busy_io_ns);
    }
  }
}

TEST(Timeline, ShowsTheStepsOfTheResults) {
  for (const std::string& text : kPipelines) {
    for (const std::int64_t batch : {1, 3}) {
      SCOPED_TRACE(text);
      Timeline timeline(3);
      const Timing timing = timeline_on(text, batch, &timeline);
      const json document =
          json::parse(trace_event_json(std::vector<CellTimeline>{{"<script>\"", timeline}}));
      const json& events = document.at("traceEvents");

      auto spans = spans_of(events);
      std::vector<Span> steps;
      double computed_us = 0;
      for (const Span& span : spans.at(1)) {
        if (span.event.at("name").get<std::string>().starts_with("step ")) {
          steps.push_back(span);
        } else {
          computed_us += span.end - span.begin;
        }
      }
      ASSERT_EQ(steps.size(), 3u);
      double compute_ns = 0;
      for (std::size_t i = 0; i < 3; ++i) {
        const StepTiming& step = timing.steps[i];
        EXPECT_NEAR(steps[i].end - steps[i].begin, static_cast<double>(step.latency_ns) / 1e3,
                    kRounding);
        EXPECT_EQ(steps[i].event.at("args").at("read_bytes"), static_cast<double>(step.read_bytes));
        compute_ns += static_cast<double>(step.compute_ns);
      }
      EXPECT_NEAR(computed_us, compute_ns / 1e3, kRounding);

      // What began within the steps, by thread: no two spans of one cross.
      double read = 0;
      double written = 0;
      for (const auto& [thread, list] : spans) {
        std::vector<double> open;
        for (const Span& span : list) {
          while (!open.empty() && open.back() <= span.begin + kRounding) open.pop_back();
          if (!open.empty()) {
            EXPECT_LE(span.end, open.back() + kRounding);
          }
          open.push_back(span.end);
          if (thread >= 100 && thread < 200)
            read += span.event.at("args").at("bytes").get<double>();
          if (thread >= 200) written += span.event.at("args").at("bytes").get<double>();
        }
      }
      std::int64_t read_bytes = 0;
      std::int64_t write_bytes = 0;
      for (std::size_t i = 0; i < 3; ++i) {
        read_bytes += timing.steps[i].read_bytes;
        write_bytes += timing.steps[i].write_bytes;
      }
      EXPECT_EQ(read, static_cast<double>(read_bytes));
      EXPECT_EQ(written, static_cast<double>(write_bytes));
    }
  }
}

TEST(Timeline, IsValidTraceEventFormat) {
  Timeline first(2);
  Timeline second(2);
  (void)timeline_on(kPipelines[1], 1, &first);
  (void)timeline_on(kPipelines[2], 2, &second);
  const json document =
      json::parse(trace_event_json(std::vector<CellTimeline>{{"one", first}, {"two", second}}));
  std::map<std::int64_t, std::string> processes;
  std::set<std::pair<std::int64_t, std::int64_t>> named;
  std::set<std::string> counters;
  for (const json& event : document.at("traceEvents")) {
    const std::string phase = event.at("ph");
    ASSERT_TRUE(event.at("pid").is_number_integer());
    ASSERT_TRUE(event.at("tid").is_number_integer());
    ASSERT_GE(event.at("ts").get<double>(), 0);
    const std::pair<std::int64_t, std::int64_t> thread(event["pid"].get<std::int64_t>(),
                                                       event["tid"].get<std::int64_t>());
    if (phase == "M") {
      if (event.at("name") == "process_name") processes[thread.first] = event["args"]["name"];
      if (event.at("name") == "thread_name") named.insert(thread);
    } else if (phase == "X") {
      EXPECT_GT(event.at("dur").get<double>(), 0);
      EXPECT_TRUE(named.contains(thread));
    } else {
      ASSERT_EQ(phase, "C");
      counters.insert(event.at("name"));
      for (const auto& [key, value] : event.at("args").items()) EXPECT_GE(value.get<double>(), 0);
    }
  }
  EXPECT_EQ(processes, (std::map<std::int64_t, std::string>{{1, "one"}, {2, "two"}}));
  EXPECT_EQ(counters, (std::set<std::string>{"bytes of a layer", "commands"}));
}

TEST(Timeline, CountsCommandsExactlyWhereTheyAreFewAndReturnsToNone) {
  Timeline timeline(1);
  timeline.begin_step(0, 0, {{}});
  for (std::size_t i = 1; i <= 100; ++i) timeline.on_commands(i, static_cast<SimTime>(10 * i));
  for (std::size_t i = 100; i-- > 0;) timeline.on_commands(i, static_cast<SimTime>(3000 - 10 * i));
  std::vector<double> seen;
  for (const Timeline::Event& event : timeline.events()) {
    if (event.lane == Timeline::Lane::kDepth) seen.push_back(event.values.front().second);
  }
  EXPECT_LT(seen.size(), 80u);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(seen[i], static_cast<double>(i + 1));
    EXPECT_EQ(seen[seen.size() - 1 - i], static_cast<double>(i));
  }
}

TEST(Timeline, ShowsNoMoreStepsThanAskedFor) {
  Timeline timeline(1);
  const Timing timing = timeline_on(kPipelines[0], 1, &timeline);
  EXPECT_EQ(timing.steps.size(), 5u);
  std::size_t steps = 0;
  for (const Timeline::Event& event : timeline.events()) steps += event.name.starts_with("step ");
  EXPECT_EQ(steps, 1u);
}

}  // namespace
}  // namespace kvreplay
