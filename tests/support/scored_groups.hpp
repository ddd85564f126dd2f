#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "policies/decide/scoring/scoring.hpp"
#include "tests/support/random_layer.hpp"

namespace kvreplay {

/// A scoring part over hand-made groups of a joint stream: 6 query heads on 2 KV heads.
class ScoredGroups {
 public:
  /// Adapters come from a test's own source.
  ScoredGroups(const std::string& json, const RandomLayer& layer,
               const AdapterSource* adapters = nullptr)
      : layer_(layer),
        scoring_(PartConfig<Scoring>::parse(ConfigNode::parse(json, "test.json"))
                     .make({layer.joint_stream(), adapters, 1})) {}

  /// Before any group, for parts that are computed from the prompt as a whole.
  void add_prompt() {
    const std::int64_t prompt = layer_.shape.prompt_tokens;
    scoring_->notify_prompt(layer_.entries(prompt),
                            {layer_.query_tensor().first_tokens(prompt), 0});
  }
  void send(const GroupEvent& event) {
    groups.on_event(event);
    scoring_->notify_event(event, groups, layer_.entries(layer_.shape.max_tokens));
  }
  void create(Token begin, Token end) {
    std::vector<Token> tokens(static_cast<std::size_t>(end - begin));
    std::iota(tokens.begin(), tokens.end(), begin);
    send({EventKind::kCreated, groups.count(), kNoGroup, tokens});
  }
  /// Groups of unequal size with every kind of change behind them: an append, a split, an eviction,
  /// a dissolved group and tokens in memory. Tokens 0 to 39.
  void create_varied() {
    create(0, 9);
    create(9, 14);
    create(14, 30);
    create(30, 34);
    const std::vector<Token> more{34, 35};
    send({EventKind::kAppended, 1, kNoGroup, more});
    const std::vector<Token> half{15, 18, 21, 29};
    send({EventKind::kSplit, 2, groups.count(), half});
    const std::vector<Token> gone{0, 4, 8};
    send({EventKind::kEvicted, 0, kNoGroup, gone});
    send({EventKind::kDissolved, 3});
    const std::vector<Token> waiting{36, 37, 38, 39};
    send({EventKind::kBuffered, kNoGroup, kNoGroup, waiting});
  }

  [[nodiscard]] Scores score(std::int64_t position = 40) {
    query_ = layer_.query(position);
    return scoring_->score(query_, groups, layer_.entries(40));
  }
  [[nodiscard]] ScoreCost cost() const { return scoring_->cost(); }

  Groups groups;

 private:
  const RandomLayer& layer_;
  std::unique_ptr<Scoring> scoring_;
  std::vector<float> query_;
};

}  // namespace kvreplay
