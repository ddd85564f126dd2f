#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/build_info.hpp"
#include "policies/decide/decide.hpp"
#include "tests/support/synthetic_trace.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::HasSubstr;

/// A shipped system with budgets that fit a short trace.
NamedDecideSpec shipped(const std::string& name,
                        const std::vector<std::pair<std::string, std::string>>& changes = {}) {
  ConfigNode node = ConfigNode::load(source_folder() + "/configs/systems/" + name + ".json");
  for (const auto& [path, value] : changes) node = node.with(path, value);
  return {name, DecideSpec::parse(node)};
}

std::vector<NamedDecideSpec> evicting_systems() {
  const std::pair<std::string, std::string> budget{"retention.budget_tokens", "100"};
  return {
      shipped("streaming_llm", {{"retention.window_tokens", "60"}}),
      shipped("h2o"),
      shipped("snapkv", {{"retention.capacity_tokens", "100"}, {"retention.window_tokens", "16"}}),
      shipped("arkv", {budget}),
      shipped("arkv_original", {budget}),
      shipped("arkv_quantised", {budget}),
      shipped("arkv_window", {budget})};
}

std::vector<NamedDecideSpec> quantising_systems() {
  return {shipped("kivi_2"),      shipped("kivi_4"),      shipped("fp8"), shipped("static_int2"),
          shipped("static_int4"), shipped("static_int8"), shipped("dwb"), shipped("dwb_rule")};
}

class InMemorySystems : public ::testing::Test {
 protected:
  InMemorySystems() { write_synthetic_trace(file_, {.layers = 3, .query_window = 40}); }

  TemporaryFolder folder_;
  std::string file_ = folder_.file("t.kvtrace.h5");
};

double mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double output_error(const AccessLog& log) {
  double sum = 0;
  for (const LayerLog& layer : log.layers) sum += mean(layer.quality.output_error);
  return sum / static_cast<double>(log.layers.size());
}

TEST_F(InMemorySystems, EvictingOnesHoldEachTokenOnceAndStayWithinTheirBudget) {
  const TraceReader trace(file_);
  const std::map<std::string, std::int32_t> max_tokens{
      {"streaming_llm", 64},  {"h2o", 76},
      {"snapkv", 100 + 32},   {"arkv", 100},
      {"arkv_original", 100}, {"arkv_quantised", 100},
      {"arkv_window", 100}};
  for (const AccessLog& log : decide(trace, evicting_systems(), {})) {
    for (const LayerLog& layer : log.layers) {
      for (const StreamLog& stream : layer.streams) {
        for (const std::int32_t attended : stream.attended_count) {
          // One more: the step's own token.
          EXPECT_LE(attended, max_tokens.at(log.system) + 1) << log.system;
          EXPECT_GE(attended, 32) << log.system;
        }
        Groups groups;  // asserts that each event finds its tokens where it expects them
        std::int64_t evicted = 0;
        for (std::int64_t segment = 0; segment <= log.steps; ++segment) {
          stream.for_events(segment, [&](const GroupEvent& event) {
            groups.on_event(event);
            if (event.kind == EventKind::kEvicted) evicted += std::ssize(event.tokens);
          });
          EXPECT_EQ(groups.grouped_tokens() + evicted, log.prompt_tokens + segment) << log.system;
        }
        EXPECT_GT(evicted, 200) << log.system;
      }
    }
    EXPECT_GT(output_error(log), 0) << log.system;
  }
}

TEST_F(InMemorySystems, OnlyTheLayerWithTheLargestScoreKeepsAllInHalfPrecision) {
  const TraceReader trace(file_);
  const std::vector<NamedDecideSpec> systems{
      shipped("arkv", {{"retention.budget_tokens", "100"}, {"retention.variance_root", "0.2"}})};
  const std::vector<AccessLog> logs = decide(trace, systems, {});
  int untouched = 0;
  for (const LayerLog& layer : logs[0].layers) {
    std::int64_t reencoded = 0;
    for (const StreamLog& stream : layer.streams) {
      reencoded +=
          std::count(stream.event_kind.begin(), stream.event_kind.end(), EventKind::kReencoded);
    }
    untouched += reencoded == 0 ? 1 : 0;
  }
  EXPECT_GE(untouched, 1);
  EXPECT_LT(untouched, std::ssize(logs[0].layers));
}

TEST_F(InMemorySystems, MoreBitsMeanLessError) {
  const TraceReader trace(file_);
  std::map<std::string, double> error;
  for (const AccessLog& log : decide(trace, quantising_systems(), {})) {
    error[log.system] = output_error(log);
    EXPECT_GT(error[log.system], 0) << log.system << " did nothing";
    for (const LayerLog& layer : log.layers) {
      EXPECT_NEAR(mean(layer.quality.attention_mass), 1, 1e-5) << log.system;
    }
  }
  EXPECT_LT(error["static_int8"], error["static_int4"]);
  EXPECT_LT(error["static_int4"], error["static_int2"]);
  EXPECT_LT(error["kivi_4"], error["kivi_2"]);
  EXPECT_LT(error["kivi_2"], error["static_int2"]);
  EXPECT_LT(error["fp8"], error["static_int4"]);
}

TEST_F(InMemorySystems, DecideTheSameOnAnyNumberOfThreads) {
  const TraceReader trace(file_);
  std::vector<NamedDecideSpec> systems = evicting_systems();
  for (NamedDecideSpec& system : quantising_systems()) systems.push_back(std::move(system));
  const std::vector<AccessLog> one = decide(trace, systems, {.threads = 1, .max_steps = 12});
  const std::vector<AccessLog> three = decide(trace, systems, {.threads = 3, .max_steps = 12});
  for (std::size_t i = 0; i < systems.size(); ++i) {
    for (std::size_t l = 0; l < one[i].layers.size(); ++l) {
      const LayerLog& a = one[i].layers[l];
      const LayerLog& b = three[i].layers[l];
      EXPECT_EQ(a.quality.output_error, b.quality.output_error) << systems[i].name;
      for (std::size_t s = 0; s < a.streams.size(); ++s) {
        EXPECT_EQ(a.streams[s].event_tokens, b.streams[s].event_tokens) << systems[i].name;
        EXPECT_EQ(a.streams[s].event_other, b.streams[s].event_other) << systems[i].name;
      }
    }
  }
}

TEST_F(InMemorySystems, ARetentionThatReencodesNeedsAPrecisionThatCan) {
  const TraceReader trace(file_);
  const std::vector<NamedDecideSpec> systems{shipped("arkv", {{"precision.part", "fp16"}})};
  EXPECT_THAT(user_error_of([&] { (void)decide(trace, systems, {}); }), HasSubstr("tri_state"));
}

}  // namespace
}  // namespace kvreplay
