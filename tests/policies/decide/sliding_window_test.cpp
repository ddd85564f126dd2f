#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "policies/decide/quality.hpp"
#include "policies/place/place.hpp"
#include "tests/support/random_layer.hpp"
#include "tests/support/temporary_folder.hpp"

namespace kvreplay {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

/// One of each grouping, of each way to score and select, and of each retention and precision that
/// keeps an account of tokens.
constexpr std::array kWindowed{
    R"({"grouping": {"part": "whole"}, "scoring": {"part": "all"},
        "selection": {"part": "everything"}})",
    R"({"stream": {"sink_tokens": 3, "recent_tokens": 5},
        "grouping": {"part": "page", "group_tokens": 4}, "scoring": {"part": "min_max"},
        "selection": {"part": "top_groups", "budget_tokens": 8}})",
    R"({"stream": {"heads": "layer", "recent_tokens": 30},
        "grouping": {"part": "page", "group_tokens": 4},
        "scoring": {"part": "exact", "heads": "sum_softmax"},
        "selection": {"part": "top_groups", "budget_tokens": 12, "budget_covers": "all"}})",
    R"({"stream": {"sink_tokens": 2},
        "grouping": {"part": "k_means", "tokens_per_cluster": 4, "window_tokens": 10,
                     "window_clusters": 2},
        "scoring": {"part": "centroid"},
        "selection": {"part": "token_budget", "budget_tokens": 8, "budget_covers": "sinks"}})",
    R"({"grouping": {"part": "k_means", "tokens_per_cluster": 4, "update": "static"},
        "scoring": {"part": "centroid"},
        "selection": {"part": "token_budget", "budget_tokens": 8}})",
    R"({"grouping": {"part": "adaptive", "tokens_per_cluster": 4}, "scoring": {"part": "centroid"},
        "selection": {"part": "token_budget", "budget_tokens": 8}})",
    R"({"grouping": {"part": "global", "tokens_per_cluster": 4, "period_tokens": 7},
        "scoring": {"part": "centroid"},
        "selection": {"part": "token_budget", "budget_tokens": 8}})",
    R"({"grouping": {"part": "token"}, "scoring": {"part": "partial", "ratio": 0.3},
        "selection": {"part": "threshold", "alpha": 0.5, "budget_tokens": 12}})",
    R"({"stream": {"sink_tokens": 3},
        "grouping": {"part": "token"}, "scoring": {"part": "product_quantisation", "code_bits": 3},
        "selection": {"part": "top_groups", "budget_tokens": 12}})",
    R"({"stream": {"sink_tokens": 3},
        "grouping": {"part": "token"}, "scoring": {"part": "quantised_keys", "bits": 4},
        "selection": {"part": "top_groups", "budget_tokens": 12}})",
    R"({"grouping": {"part": "chunks", "chunk_tokens": 4, "outlier_chunks": 2, "local_chunks": 1},
        "scoring": {"part": "centroid"}, "selection": {"part": "top_groups", "budget_tokens": 12},
        "precision": {"part": "low_rank_keys", "rank": 8, "keys": "post_rope"}})",
    R"({"grouping": {"part": "whole"}, "scoring": {"part": "all"},
        "selection": {"part": "everything"},
        "precision": {"part": "kivi", "group_size": 8, "residual_tokens": 32}})",
    R"({"grouping": {"part": "token"}, "scoring": {"part": "all"},
        "selection": {"part": "everything"},
        "retention": {"part": "heavy_hitters", "heavy_share": 0.1, "recent_share": 0.1}})",
    R"({"grouping": {"part": "whole"}, "scoring": {"part": "all"},
        "selection": {"part": "everything"},
        "retention": {"part": "sinks_and_window", "sink_tokens": 2, "window_tokens": 9}})",
    R"({"grouping": {"part": "whole"}, "scoring": {"part": "all"},
        "selection": {"part": "everything"},
        "retention": {"part": "at_prefill", "capacity_tokens": 9, "window_tokens": 4}})",
    R"({"grouping": {"part": "token"}, "scoring": {"part": "all"},
        "selection": {"part": "everything"}, "precision": {"part": "tri_state"},
        "retention": {"part": "tailored", "budget_tokens": 10, "window_tokens": 4}})"};

RandomLayer windowed_layer(std::int64_t prompt, std::int64_t steps, std::int64_t window) {
  RandomLayer layer(prompt, steps);
  layer.shape.sliding_window = window;
  return layer;
}

/// What the query at `position` sees, by the definition: the latest `window` tokens.
bool sees(std::int64_t position, std::int64_t window, Token token) {
  return token <= position && token > position - window;
}

/// Follows a log as a later stage does: before each step nothing is held, and at the step nothing
/// is requested or attended to, but what the step's query sees.
void check_log(const LayerLog& log, std::int64_t prompt, std::int64_t window,
               const std::string& what) {
  for (const StreamLog& stream : log.streams) {
    Groups groups;
    for (std::int64_t step = 0; step < stream.steps(); ++step) {
      stream.for_events(step, [&](const GroupEvent& event) { groups.on_event(event); });
      const std::int64_t position = prompt + step;
      std::int64_t held = 0;
      for (Token token = 0; token < position; ++token) {
        const Groups::Where where = groups.where(token);
        ASSERT_NE(where, Groups::Where::kUnseen) << what << ": token " << token;
        if (where == Groups::Where::kEvicted) continue;
        ++held;
        ASSERT_TRUE(sees(position, window, token))
            << what << ": held token " << token << " at " << position;
      }
      ASSERT_EQ(groups.grouped_tokens() + std::ssize(groups.buffered()), held);
      for (const GroupId group : stream.requested.numbers(step)) {
        ASSERT_TRUE(groups.live(group)) << what << ": requested a group without tokens";
      }
      for (std::int64_t head = 0; head < stream.query_heads; ++head) {
        for (const Token token : stream.attended.numbers(step * stream.query_heads + head)) {
          ASSERT_TRUE(sees(position, window, token)) << what;
        }
      }
    }
  }
}

TEST(SlidingWindow, NothingOutsideIsHeldRequestedOrAttendedTo) {
  for (const std::int64_t window : {1, 2, 12, 31}) {
    const RandomLayer layer = windowed_layer(53, 45, window);
    for (const char* json : kWindowed) {
      check_log(replay_layer(layer, decide_spec(json)), 53, window,
                json + std::string(" with ") + std::to_string(window));
    }
  }
}

TEST(SlidingWindow, AWindowOfEverythingChangesNothing) {
  const RandomLayer plain(53, 20);
  const RandomLayer wide = windowed_layer(53, 20, 74);
  for (const char* json : kWindowed) {
    const LayerLog expected = replay_layer(plain, decide_spec(json));
    const LayerLog log = replay_layer(wide, decide_spec(json));
    for (std::size_t s = 0; s < log.streams.size(); ++s) {
      EXPECT_EQ(log.streams[s].event_tokens, expected.streams[s].event_tokens) << json;
      EXPECT_EQ(log.streams[s].picked, expected.streams[s].picked) << json;
      EXPECT_EQ(log.streams[s].attended, expected.streams[s].attended) << json;
      EXPECT_EQ(log.streams[s].held_bytes, expected.streams[s].held_bytes) << json;
      EXPECT_EQ(log.streams[s].score_bytes, expected.streams[s].score_bytes) << json;
    }
  }
}

/// A slow reference, written from the definition: 6 query heads on 2 KV heads.
TEST(SlidingWindow, FullAttentionIsTheSoftmaxOverTheWindow) {
  constexpr std::int64_t kWindow = 7;
  const RandomLayer layer = windowed_layer(20, 6, kWindow);
  replay_layer(layer, decide_spec(kWindowed[0]), [&](std::int64_t step, auto attention) {
    const std::int64_t position = 20 + step;
    for (std::int64_t head = 0; head < layer.shape.query_heads; ++head) {
      double total = 0;
      std::vector<double> weight;
      std::vector<Token> seen;
      for (Token token = 0; token <= position; ++token) {
        if (!sees(position, kWindow, token)) continue;
        seen.push_back(token);
        weight.push_back(std::exp(layer.logit(head, position, token) *
                                  static_cast<double>(layer.shape.softmax_scale)));
        total += weight.back();
      }
      const HeadAttention& got = attention[static_cast<std::size_t>(head)];
      ASSERT_EQ(std::vector<Token>(got.tokens.begin(), got.tokens.end()), seen);
      for (std::size_t i = 0; i < seen.size(); ++i) {
        EXPECT_NEAR(static_cast<double>(got.weights[i]), weight[i] / total, 1e-4);
      }
    }
  });
}

/// By hand: a prompt of 5 tokens, a window of 3. The query at 5 sees tokens 3, 4 and its own.
TEST(SlidingWindow, EventsOfATinyStream) {
  const RandomLayer layer = [] {
    RandomLayer made(5, 2, 1, 1, 1);
    made.shape.sliding_window = 3;
    return made;
  }();
  const LayerLog log = replay_layer(layer, decide_spec(kWindowed[0]));
  ASSERT_EQ(log.streams.size(), 1U);
  EXPECT_EQ(log.sliding_window, 3);
  const StreamLog& stream = log.streams[0];
  const auto events = [&](std::int64_t segment) {
    std::vector<std::pair<EventKind, std::vector<Token>>> list;
    stream.for_events(segment, [&](const GroupEvent& event) {
      list.emplace_back(event.kind, std::vector<Token>(event.tokens.begin(), event.tokens.end()));
    });
    return list;
  };
  const auto tokens = [](auto... token) { return std::vector<Token>{token...}; };
  EXPECT_THAT(events(0), ElementsAre(Pair(EventKind::kBuffered, tokens(0, 1, 2)),
                                     Pair(EventKind::kEvicted, tokens(0, 1, 2)),
                                     Pair(EventKind::kCreated, tokens(3, 4))));
  EXPECT_THAT(events(1), ElementsAre(Pair(EventKind::kEvicted, tokens(3)),
                                     Pair(EventKind::kAppended, tokens(5))));
  EXPECT_THAT(events(2), ElementsAre(Pair(EventKind::kEvicted, tokens(4)),
                                     Pair(EventKind::kAppended, tokens(6))));
  ASSERT_EQ(stream.attended.size(), 2);
  EXPECT_THAT(stream.attended.numbers(0), ElementsAre(3, 4, 5));
  EXPECT_THAT(stream.attended.numbers(1), ElementsAre(4, 5, 6));
}

AccessLog log_of(LayerLog layer, const RandomLayer& from) {
  AccessLog log;
  log.trace_hash = "a trace";
  log.system = "a system";
  log.query_heads = from.shape.query_heads;
  log.kv_heads = from.shape.kv_heads;
  log.head_dim = from.shape.head_dim;
  log.prompt_tokens = from.shape.prompt_tokens;
  log.steps = from.shape.max_tokens - from.shape.prompt_tokens;
  log.formats = {{"fp16", 16, 0}};
  log.layers.push_back(std::move(layer));
  return log;
}

/// A cache may have a capacity of some groups.
PlaceSpec placed_by(const std::string& cache, const std::string& layout, std::int64_t groups = 0) {
  ConfigNode node = ConfigNode::parse(
      R"({"cache": {"part": ")" + cache + R"("}, "layout": {"part": ")" + layout + R"("}})",
      "system.json");
  if (groups > 0) node = node.with("cache.capacity_groups", std::to_string(groups));
  return PlaceSpec::parse(node);
}

TEST(SlidingWindow, ALogKeepsALayerUnderSeveralWindows) {
  const RandomLayer wide(20, 4);
  const RandomLayer narrow = windowed_layer(20, 4, 6);
  AccessLog log = log_of(replay_layer(wide, decide_spec(kWindowed[0])), wide);
  log.layers.push_back(replay_layer(narrow, decide_spec(kWindowed[0])));
  for (LayerLog& layer : log.layers) {
    for (auto* quality : {&layer.quality.recall, &layer.quality.attention_mass,
                          &layer.quality.best_attention_mass, &layer.quality.output_error}) {
      quality->assign(4 * 6, 1);
    }
  }
  log.decide_config = R"({"stream": {"dense_layers": 0}})";
  const TemporaryFolder folder;
  write_access_log(log, folder.file("log"));
  const AccessLog back = read_access_log(folder.file("log"));
  ASSERT_EQ(back.layers.size(), 2U);
  EXPECT_EQ(back.layers[0].layer, back.layers[1].layer);
  EXPECT_EQ(back.layers[0].sliding_window, 0);
  EXPECT_EQ(back.layers[1].sliding_window, 6);
  EXPECT_EQ(back.layers[0].streams[0].attended, log.layers[0].streams[0].attended);
  EXPECT_EQ(back.layers[1].streams[0].attended, log.layers[1].streams[0].attended);
  // A plan for a model whose layers see 6 tokens follows the second alone.
  const KvShape narrow_kind{1, 6, 2, 16, false, 6};
  const IoPlan plan = place(back, placed_by("none", "sequence"), narrow_kind);
  ASSERT_EQ(plan.layers.size(), 1U);
  EXPECT_EQ(plan.layers[0].compute.attended_tokens, (std::vector<double>{6, 6, 6, 6}));
}

TEST(SlidingWindow, PlansReadAndHoldTheWindowAlone) {
  constexpr std::int64_t kWindow = 12;
  constexpr std::int64_t kEntry = 2 * 2 * 2 * 16;  // bytes: key and value, 2 heads, 2 bytes, 16
  const RandomLayer layer = windowed_layer(53, 20, kWindow);
  const AccessLog log = log_of(replay_layer(layer, decide_spec(kWindowed[0])), layer);
  const KvShape shape{1, 6, 2, 16};
  const LayerPlan read = place(log, placed_by("none", "sequence"), shape).layers.at(0);
  for (const std::int64_t bytes : read.accounting.requested_bytes) {
    EXPECT_EQ(bytes, (kWindow - 1) * kEntry);  // the step's own token is in memory
  }
  EXPECT_EQ(read.accounting.missed_bytes, read.accounting.requested_bytes);
  EXPECT_EQ(read.io.prompt_write_bytes, static_cast<std::uint64_t>((kWindow - 1) * kEntry));
  EXPECT_EQ(read.sliding_window, kWindow);

  const LayerPlan held = place(log, placed_by("resident", "sequence"), shape).layers.at(0);
  EXPECT_EQ(held.dram.cache_bytes + held.dram.buffered_bytes, kWindow * kEntry);
  EXPECT_TRUE(held.io.reads.empty());
  for (const double tokens : held.compute.attended_tokens) EXPECT_EQ(tokens, kWindow);
}

/// Whatever the parts: sizes stay what the events say, and no plan asks for more than the window.
TEST(SlidingWindow, EveryCompositionCanBePlaced) {
  constexpr std::int64_t kWindow = 12;
  const RandomLayer layer = windowed_layer(53, 45, kWindow);
  for (const char* json : kWindowed) {
    AccessLog log = log_of(replay_layer(layer, decide_spec(json)), layer);
    const LayerPolicy policy(decide_spec(json), layer.shape, {});
    log.formats = policy.formats();
    const std::int64_t entry =
        std::max_element(log.formats.begin(), log.formats.end(), [](const auto& a, const auto& b) {
          return a.bits_per_element < b.bits_per_element;
        })->entry_bytes(2, 16);
    for (const char* layout : {"sequence", "grouped", "dual_head"}) {
      const IoPlan plan = place(log, placed_by("lru", layout, 3), {1, 6, 2, 16});
      for (const std::int64_t bytes : plan.layers[0].accounting.requested_bytes) {
        EXPECT_GE(bytes, 0) << json;
        EXPECT_LE(bytes, kWindow * entry) << json;
      }
      EXPECT_GE(plan.layers[0].dram.buffered_bytes, 0) << json;
      EXPECT_LE(plan.layers[0].dram.buffered_bytes, kWindow * entry) << json << layout;
    }
  }
}

TEST(SlidingWindow, ALayerInFullAttentionHoldsTheWindow) {
  RandomLayer layer = windowed_layer(40, 6, 12);
  layer.shape.layer = 1;
  const DecideSpec spec = DecideSpec::parse(
      ConfigNode::parse(kWindowed[1], "test.json").with("stream.dense_layers", "2"));
  LayerLog decided = replay_layer(layer, spec, [](std::int64_t, auto attention) {
    EXPECT_EQ(attention[0].tokens.size(), 12U);
  });
  EXPECT_TRUE(decided.full_attention);
  for (const StreamLog& stream : decided.streams) {
    for (const std::int32_t tokens : stream.buffered_tokens) EXPECT_EQ(tokens, 11);
  }
  const AccessLog log = log_of(std::move(decided), layer);
  const LayerPlan plan = place(log, placed_by("none", "sequence"), {1, 6, 2, 16}).layers.at(0);
  for (const double tokens : plan.compute.attended_tokens) EXPECT_EQ(tokens, 12);
}

}  // namespace
}  // namespace kvreplay
