#include "policies/decide/layer_policy.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "policies/decide/quality.hpp"
#include "tests/support/random_layer.hpp"

namespace kvreplay {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kFull =
    R"({"grouping": {"part": "whole"}, "scoring": {"part": "all"},
        "selection": {"part": "everything"}})";
constexpr const char* kPages =
    R"({"stream": {"sink_tokens": 3, "recent_tokens": 5},
        "grouping": {"part": "page", "group_tokens": 4}, "scoring": {"part": "min_max"},
        "selection": {"part": "top_groups", "budget_tokens": 16}})";
constexpr const char* kJointPages =
    R"({"stream": {"heads": "layer"},
        "grouping": {"part": "page", "group_tokens": 4},
        "scoring": {"part": "exact", "heads": "sum_softmax"},
        "selection": {"part": "top_groups", "budget_tokens": 16, "budget_covers": "all"}})";
constexpr const char* kClusters =
    R"({"stream": {"sink_tokens": 2},
        "grouping": {"part": "k_means", "tokens_per_cluster": 8, "window_tokens": 10,
                     "window_clusters": 2},
        "scoring": {"part": "centroid"},
        "selection": {"part": "token_budget", "budget_tokens": 20, "budget_covers": "sinks"}})";
constexpr const char* kTokens =
    R"({"stream": {}, "grouping": {"part": "token"}, "scoring": {"part": "exact"},
        "selection": {"part": "token_budget", "budget_tokens": 12}})";
constexpr const char* kPartial =
    R"({"grouping": {"part": "token"}, "scoring": {"part": "partial", "ratio": 0.3},
        "selection": {"part": "threshold", "alpha": 0.5, "budget_tokens": 12}})";
constexpr const char* kCodes =
    R"({"stream": {"sink_tokens": 3, "recent_tokens": 5},
        "grouping": {"part": "token"},
        "scoring": {"part": "product_quantisation", "code_bits": 3},
        "selection": {"part": "top_groups", "budget_tokens": 12}})";
constexpr const char* kChunks =
    R"({"grouping": {"part": "chunks", "chunk_tokens": 4, "outlier_chunks": 2, "local_chunks": 1},
        "scoring": {"part": "centroid", "heads": "max_softmax"},
        "selection": {"part": "top_groups", "budget_tokens": 12},
        "precision": {"part": "low_rank_keys", "rank": 8, "keys": "post_rope"}})";
constexpr const char* kLatest =
    R"({"grouping": {"part": "page", "group_tokens": 4}, "scoring": {"part": "recency"},
        "selection": {"part": "top_groups", "budget_tokens": 12}})";
constexpr const char* kQuantised =
    R"({"stream": {"sink_tokens": 3}, "grouping": {"part": "page", "group_tokens": 4},
        "scoring": {"part": "quantised_keys", "bits": 4},
        "selection": {"part": "top_groups", "budget_tokens": 12}})";
constexpr std::array kAll{kFull,    kPages, kJointPages, kClusters, kTokens,
                          kPartial, kCodes, kChunks,     kLatest,   kQuantised};

TEST(LayerPolicy, FullAttentionIsExact) {
  const RandomLayer layer(50, 12);
  ExactStep exact;
  replay_layer(layer, decide_spec(kFull), [&](std::int64_t step, auto attention) {
    const std::int64_t n = layer.shape.prompt_tokens + step;
    exact.compute(layer.shape, layer.entries(n + 1), layer.query(n));
    for (std::size_t head = 0; head < attention.size(); ++head) {
      const HeadQuality quality = measure(exact, static_cast<std::int64_t>(head), attention[head]);
      EXPECT_EQ(quality.recall, 1);
      EXPECT_EQ(quality.attention_mass, 1);
      EXPECT_EQ(quality.best_attention_mass, 1);
      EXPECT_EQ(quality.output_error, 0);
    }
  });
}

/// Full attention that is known already is not computed again, and no bit tells.
TEST(LayerPolicy, KnownFullAttentionGivesTheSameBits) {
  for (const std::int64_t window : {0, 20}) {
    RandomLayer layer(50, 12);
    layer.shape.sliding_window = window;
    for (const char* json : kAll) {
      LayerPolicy alone(decide_spec(json), layer.shape, {.seed = 1});
      LayerPolicy told(decide_spec(json), layer.shape, {.seed = 1});
      const QueryWindow prompt{layer.query_tensor().first_tokens(50), 0};
      alone.add_prompt(layer.entries(50), prompt);
      told.add_prompt(layer.entries(50), prompt);
      ExactStep exact;
      for (std::int64_t n = 50; n < layer.shape.max_tokens; ++n) {
        const std::vector<float> query = layer.query(n);
        exact.compute(layer.shape, layer.entries(n + 1), query);
        const auto expected = alone.attend(layer.entries(n + 1), query, query);
        const auto found = told.attend(layer.entries(n + 1), query, query, &exact);
        for (std::size_t head = 0; head < found.size(); ++head) {
          ASSERT_TRUE(std::ranges::equal(found[head].tokens, expected[head].tokens)) << json;
          ASSERT_TRUE(std::ranges::equal(found[head].weights, expected[head].weights)) << json;
          ASSERT_TRUE(std::ranges::equal(found[head].output, expected[head].output)) << json;
          const auto known = exact.output(static_cast<std::int64_t>(head));
          const bool all = std::ssize(found[head].tokens) == exact.token_count();
          EXPECT_EQ(found[head].output.data() == known.data(), all && json != kChunks) << json;
        }
        alone.add_token(layer.entries(n + 1));
        told.add_token(layer.entries(n + 1));
      }
    }
  }
}

TEST(LayerPolicy, ABudgetOfEverythingIsExactWhateverTheIndex) {
  const RandomLayer layer(50, 30);
  for (const char* json : {kPages, kJointPages, kClusters, kTokens}) {
    const DecideSpec spec = DecideSpec::parse(
        ConfigNode::parse(json, "test.json").with("selection.budget_tokens", "100000"));
    ExactStep exact;
    replay_layer(layer, spec, [&](std::int64_t step, auto attention) {
      const std::int64_t n = layer.shape.prompt_tokens + step;
      exact.compute(layer.shape, layer.entries(n + 1), layer.query(n));
      for (std::size_t head = 0; head < attention.size(); ++head) {
        ASSERT_EQ(std::ssize(attention[head].tokens), n + 1);
        const HeadQuality q = measure(exact, static_cast<std::int64_t>(head), attention[head]);
        EXPECT_EQ(q.recall, 1);
        EXPECT_LT(q.output_error, 1e-3);
      }
    });
  }
}

/// Replays the log's events and derives from picks and definitions alone what each query head must
/// have attended to.
TEST(LayerPolicy, TheLogExplainsEveryAttendedToken) {
  const RandomLayer layer(53, 40);
  for (const char* json : kAll) {
    const LayerLog log = replay_layer(layer, decide_spec(json));
    std::int64_t selective_steps = 0;
    for (const StreamLog& stream : log.streams) {
      ASSERT_EQ(stream.steps(), 40);
      Groups groups;
      for (std::int64_t step = 0; step < stream.steps(); ++step) {
        stream.for_events(step, [&](const GroupEvent& event) { groups.on_event(event); });
        const auto own = static_cast<Token>(53 + step);
        // Conservation: every earlier token is in one place.
        ASSERT_EQ(groups.grouped_tokens() + std::ssize(groups.buffered()), own);
        ASSERT_EQ(stream.buffered_tokens[static_cast<std::size_t>(step)],
                  std::ssize(groups.buffered()));
        std::set<GroupId> requested;
        for (std::int64_t head = 0; head < stream.query_heads; ++head) {
          const std::int64_t row = step * stream.rows + (stream.rows == 1 ? 0 : head);
          std::set<Token> expected(groups.buffered().begin(), groups.buffered().end());
          const GroupId last = stream.last_picked[static_cast<std::size_t>(row)];
          ASSERT_EQ(last == kNoGroup, stream.picked.count(row) == 0);
          ASSERT_TRUE(last == kNoGroup || stream.picked.contains(row, last));
          stream.picked.for_each(row, [&](GroupId group) {
            requested.insert(group);
            const std::vector<Token>& members = groups.members(group);
            const auto count = group == last ? stream.last_tokens[static_cast<std::size_t>(row)]
                                             : static_cast<std::int32_t>(members.size());
            expected.insert(members.begin(), members.begin() + count);
          });
          expected.insert(own);
          const auto at = static_cast<std::size_t>(step * stream.query_heads + head);
          const std::vector<Token> attended =
              stream.attended.numbers(step * stream.query_heads + head);
          ASSERT_EQ(attended, std::vector<Token>(expected.begin(), expected.end())) << json;
          ASSERT_EQ(stream.attended_count[at], std::ssize(attended));
          selective_steps += std::ssize(attended) < own + 1 ? 1 : 0;
        }
        ASSERT_EQ(stream.requested.numbers(step),
                  std::vector<GroupId>(requested.begin(), requested.end()));
      }
    }
    // A part that does nothing would attend to everything.
    EXPECT_EQ(selective_steps, json == kFull ? 0 : 40 * layer.shape.query_heads) << json;
  }
}

TEST(LayerPolicy, BudgetsAreKept) {
  const RandomLayer layer(53, 40);
  replay_layer(layer, decide_spec(kJointPages), [](std::int64_t, auto attention) {
    for (const HeadAttention& head : attention) {
      EXPECT_LE(head.tokens.size(), 16u);
      EXPECT_GT(head.tokens.size(), 12u);
    }
  });
  std::int64_t waiting = 0;
  replay_layer(layer, decide_spec(kClusters), [&](std::int64_t, auto attention) {
    for (const HeadAttention& head : attention) {
      EXPECT_EQ(std::ssize(head.tokens), 20 + waiting + 1);
    }
    waiting = (waiting + 1) % 10;
  });
}

TEST(LayerPolicy, SinksAndRecentTokensAreAlwaysAttendedTo) {
  const RandomLayer layer(53, 10);
  const LayerLog log = replay_layer(layer, decide_spec(kPages), [](std::int64_t step, auto heads) {
    const auto own = static_cast<Token>(53 + step);
    for (const HeadAttention& head : heads) {
      for (Token token = 0; token <= own; ++token) {
        if (token >= 3 && token < own - 5) continue;
        EXPECT_TRUE(std::binary_search(head.tokens.begin(), head.tokens.end(), token)) << token;
      }
    }
  });
  // Tokens 3 .. 47 of the prompt make 11 pages of 4 and one token that waits.
  EXPECT_EQ(log.streams[0].buffered_tokens[0], 3 + 5 + 1);
}

TEST(LayerPolicy, WithoutTheRollingBufferWaitingTokensAreInvisible) {
  const RandomLayer layer(50, 3);
  const DecideSpec spec = decide_spec(
      R"({"stream": {"attend_buffered": false, "sink_tokens": 2},
          "grouping": {"part": "page", "group_tokens": 8}, "scoring": {"part": "min_max"},
          "selection": {"part": "everything"}})");
  std::vector<Token> unseen;
  replay_layer(layer, spec, [&](std::int64_t step, auto attention) {
    if (step != 2) return;
    std::size_t i = 0;
    for (Token token = 0; token < 52; ++token) {
      if (attention[0].tokens[i] == token) {
        ++i;
      } else {
        unseen.push_back(token);
      }
    }
  });
  EXPECT_THAT(unseen, ElementsAre(50, 51));
}

TEST(LayerPolicy, ADenseLayerStaysInMemoryAndIsExact) {
  RandomLayer layer(40, 6);
  layer.shape.layer = 1;
  const DecideSpec spec =
      DecideSpec::parse(ConfigNode::parse(kPages, "test.json").with("stream.dense_layers", "2"));
  const LayerLog log = replay_layer(layer, spec, [](std::int64_t step, auto attention) {
    EXPECT_EQ(std::ssize(attention[0].tokens), 40 + step + 1);
  });
  EXPECT_TRUE(log.full_attention);
  for (const StreamLog& stream : log.streams) {
    EXPECT_TRUE(stream.requested.bytes().empty());
    EXPECT_THAT(stream.event_kind, Each(EventKind::kBuffered));
    EXPECT_THAT(stream.buffered_tokens, ElementsAre(40, 41, 42, 43, 44, 45));
  }
}

TEST(LayerPolicy, ASlidingWindowHidesOlderTokens) {
  RandomLayer layer(40, 8);
  layer.shape.sliding_window = 12;
  for (const char* json : kAll) {
    ExactStep exact;
    replay_layer(layer, decide_spec(json), [&](std::int64_t step, auto attention) {
      const std::int64_t n = 40 + step;
      exact.compute(layer.shape, layer.entries(n + 1), layer.query(n));
      for (std::size_t head = 0; head < attention.size(); ++head) {
        EXPECT_GT(attention[head].tokens.front(), n - 12);
        const HeadQuality q = measure(exact, static_cast<std::int64_t>(head), attention[head]);
        EXPECT_LE(q.attention_mass, 1);
        if (json == kFull) {
          EXPECT_EQ(q.output_error, 0);
        }
      }
    });
  }
}

TEST(LayerPolicy, NothingDependsOnTheFuture) {
  const RandomLayer layer(53, 20);
  for (const char* json : kAll) {
    const LayerLog expected = replay_layer(layer, decide_spec(json));
    // The same tokens, each uncovered only when its step begins; before that, garbage.
    RandomLayer hidden(53, 20);
    const auto uncover = [&](std::int64_t token) {
      for (std::int64_t row = 0; row < hidden.shape.kv_heads; ++row) {
        const auto at = (row * hidden.shape.max_tokens + token) * hidden.shape.head_dim;
        std::copy_n(layer.keys.begin() + at, hidden.shape.head_dim, hidden.keys.begin() + at);
        std::copy_n(layer.values.begin() + at, hidden.shape.head_dim, hidden.values.begin() + at);
      }
    };
    std::fill(hidden.keys.begin(), hidden.keys.end(), to_half(1000));
    std::fill(hidden.values.begin(), hidden.values.end(), to_half(-1000));
    for (Token token = 0; token <= 53; ++token) uncover(token);
    const LayerLog log = replay_layer(hidden, decide_spec(json), [&](std::int64_t step, auto) {
      if (step + 1 < 20) uncover(53 + step + 1);
    });
    ASSERT_EQ(log.streams.size(), expected.streams.size());
    for (std::size_t s = 0; s < log.streams.size(); ++s) {
      EXPECT_EQ(log.streams[s].attended, expected.streams[s].attended) << json;
      EXPECT_EQ(log.streams[s].picked, expected.streams[s].picked);
      EXPECT_EQ(log.streams[s].event_tokens, expected.streams[s].event_tokens);
    }
  }
}

TEST(LayerPolicy, LookAheadQueriesChooseAndTrueQueriesAttend) {
  const RandomLayer layer(50, 1);
  const DecideSpec spec =
      DecideSpec::parse(ConfigNode::parse(kTokens, "test.json").with("stream.query", "look_ahead"));
  LayerPolicy policy(spec, layer.shape, {.seed = 1, .record_tokens = true});
  policy.add_prompt(layer.entries(50), {layer.query_tensor().first_tokens(50), 0});
  const std::vector<float> truth = layer.query(50);
  const std::vector<float> guess = layer.query(7);
  const auto attention = policy.attend(layer.entries(51), truth, guess);
  for (std::int64_t head = 0; head < layer.shape.query_heads; ++head) {
    const HeadAttention& got = attention[static_cast<std::size_t>(head)];
    double lowest = 1e9;
    double total = 0;
    for (const Token token : got.tokens) {
      if (token < 50) lowest = std::min(lowest, layer.logit(head, 7, token));
      total +=
          std::exp(layer.logit(head, 50, token) * static_cast<double>(layer.shape.softmax_scale));
    }
    for (Token token = 0; token < 50; ++token) {
      if (std::binary_search(got.tokens.begin(), got.tokens.end(), token)) continue;
      EXPECT_LE(layer.logit(head, 7, token), lowest + 1e-4);
    }
    const double own =
        std::exp(layer.logit(head, 50, 50) * static_cast<double>(layer.shape.softmax_scale));
    EXPECT_NEAR(got.weights.back(), own / total, 1e-4);
  }
  EXPECT_THROW((void)policy.attend(layer.entries(51), truth, {}), UserError);
}

TEST(DecideSpec, NamesAMisspeltPartAndParameter) {
  const auto message = [](const char* json) -> std::string {
    try {
      (void)decide_spec(json);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(
      message(R"({"grouping": {"part": "pages"}, "scoring": {"part": "all"},
                          "selection": {"part": "everything"}})"),
      ::testing::AllOf(HasSubstr("test.json"), HasSubstr("/grouping/part"), HasSubstr("page")));
  EXPECT_THAT(message(R"({"stream": {"sinks": 4}, "grouping": {"part": "page"},
                          "scoring": {"part": "all"}, "selection": {"part": "everything"}})"),
              HasSubstr("sink_tokens"));
}

TEST(DecideSpec, ResolvedNamesEveryArgument) {
  const std::string resolved = decide_spec(kPages).resolved();
  for (const char* part : {R"("group_tokens":4)", R"("part":"min_max")", R"("part":"fp16")",
                           R"("dense_layers":0)", R"("budget_share":0.0)"}) {
    EXPECT_THAT(resolved, HasSubstr(part));
  }
  EXPECT_NE(resolved, decide_spec(kTokens).resolved());
}

}  // namespace
}  // namespace kvreplay
