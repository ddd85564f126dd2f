#include <gmock/gmock.h>

#include <string>

#include "policies/kernels/kernels.hpp"
#include "tests/support/random_layer.hpp"

namespace kvreplay {
namespace {

std::vector<float> queries_at(const RandomLayer& layer, std::int64_t position) {
  const HalfTensor queries = layer.query_tensor();
  std::vector<float> rows(static_cast<std::size_t>(queries.heads * queries.dim));
  for (std::int64_t head = 0; head < queries.heads; ++head) {
    kernels::to_float(queries.row(head, position), rows.data() + head * queries.dim, queries.dim);
  }
  return rows;
}

DecideSpec spec_of(const std::string& window_queries, const std::string& heads) {
  return decide_spec(R"({"stream": {"heads": ")" + heads + R"(", "sink_tokens": 2,
                                     "window_queries": )" +
                     window_queries + R"(},
                         "grouping": {"part": "adaptive", "tokens_per_cluster": 4},
                         "scoring": {"part": "centroid"},
                         "selection": {"part": "top_groups", "groups": 3}})");
}

TEST(WindowQueries, LogWhatTheFirstStepWouldSelectForThem) {
  constexpr std::int64_t kPrompt = 50;
  const RandomLayer layer(kPrompt, 2);
  const QueryWindow window{layer.query_tensor().first_tokens(kPrompt), 0};
  for (const std::string heads : {"kv_head", "layer"}) {
    for (std::int64_t back = 0; back < 6; ++back) {
      LayerPolicy policy(spec_of("6", heads), layer.shape, {.seed = 1});
      policy.add_prompt(layer.entries(kPrompt), window);
      const std::vector<float> queries = queries_at(layer, kPrompt - 1 - back);
      (void)policy.attend(layer.entries(kPrompt + 1), queries, {});
      policy.add_token(layer.entries(kPrompt + 1));
      const LayerLog log = std::move(policy).finish();
      for (const StreamLog& stream : log.streams) {
        ASSERT_EQ(stream.window_begin.size(), 7u);
        const auto begin = stream.window_requested.begin();
        const std::vector<GroupId> logged(
            begin + stream.window_begin[static_cast<std::size_t>(5 - back)],
            begin + stream.window_begin[static_cast<std::size_t>(6 - back)]);
        EXPECT_EQ(logged, stream.requested.numbers(0));
        EXPECT_GE(logged.size(), 3u);
      }
    }
  }
}

TEST(WindowQueries, ChangeNothingElse) {
  const RandomLayer layer(50, 20);
  const LayerLog with = replay_layer(layer, spec_of("64", "kv_head"));
  const LayerLog without = replay_layer(layer, spec_of("0", "kv_head"));
  ASSERT_EQ(with.streams.size(), without.streams.size());
  for (std::size_t s = 0; s < with.streams.size(); ++s) {
    EXPECT_EQ(with.streams[s].requested, without.streams[s].requested);
    EXPECT_EQ(with.streams[s].event_tokens, without.streams[s].event_tokens);
    EXPECT_EQ(with.streams[s].window_begin.size(), 51u) << "no more than were recorded";
    EXPECT_EQ(without.streams[s].window_begin, std::vector<std::int64_t>{0});
  }
}

}  // namespace
}  // namespace kvreplay
