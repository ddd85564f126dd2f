#include "sim/models/closed_loop.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "policies/kernels/kernels.hpp"
#include "sim/models/full_attention.hpp"
#include "sim/models/record.hpp"
#include "sim/models/transformer.hpp"
#include "tests/support/random_model.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"
#include "traces/trace.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kPrompt = 90;
constexpr std::int64_t kSteps = 24;

NamedDecideSpec system_of(const std::string& name, const std::string& json) {
  return {name, DecideSpec::parse(ConfigNode::parse(json, name))};
}

const std::string kWhole = R"("grouping": {"part": "whole"}, "scoring": {"part": "all"},
                              "selection": {"part": "everything"})";
NamedDecideSpec in_memory() {
  return system_of("in_memory", R"({"stream": {"heads": "layer"}, )" + kWhole + "}");
}
NamedDecideSpec quest(const std::string& query = "current") {
  return system_of("quest", R"({"stream": {"query": ")" + query + R"("},
      "grouping": {"part": "page", "group_tokens": 8}, "scoring": {"part": "min_max"},
      "selection": {"part": "top_groups", "budget_tokens": 32}})");
}
NamedDecideSpec window() {
  return system_of("window", "{" + kWhole + R"(, "retention": {"part": "sinks_and_window",
                             "sink_tokens": 2, "window_tokens": 10}})");
}
NamedDecideSpec int4() {
  return system_of("int4", "{" + kWhole + R"(, "precision": {"part": "int", "bits": 4,
                           "group_channels": 16}})");
}
NamedDecideSpec rule() {
  return system_of("rule", R"({"stream": {"heads": "layer"}, )" + kWhole +
                               R"(, "precision": {"part": "rule", "group_channels": 16}})");
}
NamedDecideSpec tailored() {
  return system_of("tailored", "{" + kWhole + R"(, "precision": {"part": "tri_state"},
      "retention": {"part": "tailored", "budget_tokens": 40, "window_tokens": 8}})");
}

class ClosedLoop : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    write_random_model(folder_->file("random.kvmodel"), {.rope_pairs = "interleaved"});
    model_ = std::make_unique<Model>(folder_->file("random.kvmodel"));
    Random random(3);
    ids_.clear();
    for (std::int64_t i = 0; i < kPrompt + kSteps; ++i) {
      ids_.push_back(static_cast<std::int32_t>(random.below(101)));
    }
  }
  static void TearDownTestSuite() {
    model_.reset();
    folder_.reset();
  }

  static ClosedLoopResult run(const std::vector<NamedDecideSpec>& systems, int threads = 2,
                              std::int64_t at_once = 24) {
    return run_closed_loop(*model_, systems,
                           {.ids = ids_,
                            .prompt_tokens = kPrompt,
                            .steps = kSteps,
                            .query_window = 16,
                            .threads = threads,
                            .systems_at_once = at_once});
  }

  static inline std::unique_ptr<TemporaryFolder> folder_;
  static inline std::unique_ptr<Model> model_;
  static inline std::vector<std::int32_t> ids_;
};

void expect_same(const ClosedLoopRun& a, const ClosedLoopRun& b) {
  EXPECT_EQ(a.system, b.system);
  EXPECT_EQ(a.log_probability, b.log_probability);
  EXPECT_EQ(a.kl_divergence, b.kl_divergence);
  EXPECT_EQ(a.likeliest, b.likeliest);
  EXPECT_EQ(a.attended_tokens, b.attended_tokens);
  EXPECT_EQ(a.stored_bits, b.stored_bits);
}

TEST_F(ClosedLoop, FullAttentionIsTheRecorders) {
  const ClosedLoopResult result = run({in_memory()});
  const std::string file = folder_->file("full.kvtrace.h5");
  const RecordResult recorded = record_trace(*model_,
                                             {.ids = ids_,
                                              .prompt_tokens = kPrompt,
                                              .steps = kSteps,
                                              .query_window = 16,
                                              .show_progress = false},
                                             file);
  const std::vector<float> all = TraceReader(file).token_statistic("log_probability");
  EXPECT_EQ(result.full.log_probability, std::vector<float>(all.begin() + kPrompt, all.end()));
  EXPECT_DOUBLE_EQ(result.full.perplexity(), recorded.decode_perplexity);
  EXPECT_EQ(result.full.mean_kl(), 0);
  EXPECT_EQ(result.full.agreement(result.full), 1);
}

TEST_F(ClosedLoop, AttendingToEverythingDiffersByHalfPrecisionAlone) {
  const ClosedLoopResult result = run({in_memory()});
  const ClosedLoopRun& all = result.systems.front();
  EXPECT_LT(all.mean_kl(), 1e-4);
  EXPECT_NEAR(all.perplexity() / result.full.perplexity(), 1, 1e-2);
  EXPECT_NEAR(all.attended_tokens, kPrompt + (kSteps + 1) / 2.0, 1e-9);
  EXPECT_EQ(all.stored_bits, 16);
}

TEST_F(ClosedLoop, SystemsThreadsAndBatchesDoNotTouchEachOther) {
  const std::vector<NamedDecideSpec> systems{in_memory(), quest("look_ahead"), window(), int4(),
                                             rule(),      tailored()};
  const ClosedLoopResult together = run(systems, 3);
  const ClosedLoopResult in_pieces = run(systems, 1, 2);
  expect_same(together.full, in_pieces.full);
  ASSERT_EQ(together.systems.size(), systems.size());
  for (std::size_t i = 0; i < systems.size(); ++i) {
    SCOPED_TRACE(systems[i].name);
    expect_same(together.systems[i], in_pieces.systems[i]);
    expect_same(together.systems[i], run({systems[i]}).systems.front());
  }
}

TEST_F(ClosedLoop, ApproximationsAct) {
  const ClosedLoopResult result = run({in_memory(), quest(), window(), int4(), rule(), tailored()});
  const std::vector<ClosedLoopRun>& runs = result.systems;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    SCOPED_TRACE(runs[i].system);
    EXPECT_GT(runs[i].mean_kl(), 3 * runs[0].mean_kl());
    EXPECT_LE(runs[i].agreement(result.full), 1);
    EXPECT_THAT(runs[i].kl_divergence, testing::Each(testing::Ge(0)));
  }
  EXPECT_LT(runs[1].attended_tokens, 50);
  EXPECT_NEAR(runs[2].attended_tokens, 13, 1);
  EXPECT_EQ(runs[3].attended_tokens, runs[0].attended_tokens);
  EXPECT_NEAR(runs[3].stored_bits, 6, 1e-9);  // 4 and a scale and a minimum of 16 bits for 16
  EXPECT_GT(runs[4].stored_bits, 2);
  EXPECT_LT(runs[4].stored_bits, 16);
}

/// Sinks and a window, written out: half-precision keys and values, the prompt under full
/// attention.
class WindowAttention final : public Attention {
 public:
  WindowAttention(const Architecture& architecture, FullAttention& full)
      : architecture_(architecture),
        full_(full),
        entries_(static_cast<std::size_t>(architecture.layers)) {}

  void attend(const LayerBatch& batch, float* outputs) override {
    const std::int64_t dim = architecture_.head_dim;
    auto& entries = entries_[static_cast<std::size_t>(batch.layer)];
    for (std::int64_t r = 0; r < batch.rows; ++r) {
      std::vector<float> entry(batch.keys + r * architecture_.kv_size(),
                               batch.keys + (r + 1) * architecture_.kv_size());
      entry.insert(entry.end(), batch.values + r * architecture_.kv_size(),
                   batch.values + (r + 1) * architecture_.kv_size());
      for (float& value : entry) value = to_float(to_half(value));
      entries.push_back(std::move(entry));
    }
    if (batch.positions.front() < kPrompt) return full_.attend(batch, outputs);
    const std::int64_t own = batch.positions.front();
    const std::int64_t group = architecture_.query_heads / architecture_.kv_heads;
    for (std::int64_t head = 0; head < architecture_.query_heads; ++head) {
      std::vector<double> weights(entries.size());
      double sum = 0;
      for (std::int64_t token = 0; token <= own; ++token) {
        if (token >= 2 && token < own - 10) continue;
        const auto at = static_cast<std::size_t>(token);
        double dot = 0;
        for (std::int64_t d = 0; d < dim; ++d) {
          dot += static_cast<double>(batch.queries[head * dim + d]) *
                 static_cast<double>(entries[at][static_cast<std::size_t>(head / group * dim + d)]);
        }
        weights[at] = std::exp(dot / std::sqrt(static_cast<double>(dim)));
        sum += weights[at];
      }
      for (std::int64_t d = 0; d < dim; ++d) {
        double value = 0;
        for (std::size_t token = 0; token < entries.size(); ++token) {
          value += weights[token] / sum *
                   static_cast<double>(entries[token][static_cast<std::size_t>(
                       architecture_.kv_size() + head / group * dim + d)]);
        }
        outputs[head * dim + d] = static_cast<float>(value);
      }
    }
  }

 private:
  const Architecture& architecture_;
  FullAttention& full_;
  std::vector<std::vector<std::vector<float>>> entries_;  // [layers][tokens][keys, then values]
};

TEST_F(ClosedLoop, AWindowIsWhatAPlainModelWithThatWindowSays) {
  const ClosedLoopRun found = run({window()}).systems.front();
  WorkerPool pool(1);
  Transformer transformer(*model_, kPrompt + kSteps, pool);
  FullAttention full(model_->architecture(), kPrompt + kSteps, pool);
  WindowAttention attention(model_->architecture(), full);
  std::vector<std::int64_t> positions(ids_.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::span<const std::int32_t> ids(ids_);
  (void)transformer.run(ids.first(kPrompt), std::span(positions).first(kPrompt), attention);
  std::vector<float> scratch;
  for (std::size_t step = 0; step + 1 < kSteps; ++step) {
    const std::size_t at = kPrompt + step;
    const auto logits = transformer
                            .logits(transformer.run(ids.subspan(at, 1),
                                                    std::span(positions).subspan(at, 1), attention))
                            .first(101);
    const float expected =
        logits[static_cast<std::size_t>(ids_[at + 1])] - next_token(logits, scratch).log_sum;
    EXPECT_NEAR(found.log_probability[step], expected, 2e-3) << step;
  }
}

TEST_F(ClosedLoop, WhatIsMissingIsSaid) {
  const NamedDecideSpec kvswap = system_of("kvswap", R"({
      "stream": {"heads": "layer", "query": "look_ahead"},
      "grouping": {"part": "page", "group_tokens": 4},
      "scoring": {"part": "low_rank", "sigma": 2},
      "selection": {"part": "top_groups", "budget_tokens": 32}})");
  EXPECT_THAT(user_error_of([&] { run({kvswap}); }), testing::Not(testing::IsEmpty()));
  EXPECT_THAT(user_error_of([&] {
                (void)run_closed_loop(*model_, {},
                                      {.ids = ids_, .prompt_tokens = kPrompt, .steps = kSteps + 1});
              }),
              testing::HasSubstr("114 tokens"));
}

}  // namespace
}  // namespace kvreplay
