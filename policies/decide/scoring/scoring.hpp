#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/registry.hpp"
#include "policies/decide/log/groups.hpp"
#include "policies/decide/log/prompt_work.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

/// One score per row and group: [rows, groups], row-major. A row stands for one query head of the
/// stream (rows == query heads) or for all of them (rows == 1). Groups without members have
/// -infinity. Scores order groups within a row; their scale has no meaning outside the part.
struct Scores {
  std::int64_t rows = 0;
  std::int64_t groups = 0;
  std::span<const float> values{};

  [[nodiscard]] std::span<const float> row(std::int64_t r) const {
    return values.subspan(static_cast<std::size_t>(r * groups), static_cast<std::size_t>(groups));
  }
};

/// What one step's scoring costs, at the stream's own shape.
struct ScoreCost {
  /// Representatives in DRAM, at 2 bytes per element unless the part says otherwise.
  std::int64_t held_bytes = 0;
  std::int64_t fixed_bytes = 0;  ///< of these, what does not grow with the tokens: codebooks
  std::int64_t read_bytes = 0;   ///< read from DRAM per scoring
  std::int64_t flops = 0;
};

/// Where a part finds its adapter (low-rank, PCA or skew matrix) for the stream's layer.
class AdapterSource {
 public:
  /// The named adapter of the layer; when it is missing, throws a UserError that says how to make
  /// one.
  [[nodiscard]] virtual Adapter adapter(std::int64_t layer, const std::string& name) const = 0;

 protected:
  ~AdapterSource() = default;
};

/// Role: which groups matter to this query. A scoring part listens to events and keeps its own
/// representatives, so any scoring can follow any grouping.
class Scoring {
 public:
  static constexpr std::string_view kRole = "scoring";
  static constexpr Stage kStage = Stage::kDecide;
  struct Context {
    StreamShape shape;
    const AdapterSource* adapters = nullptr;  ///< null where none are available
    std::uint64_t seed = 0;
    std::int64_t sink_tokens = 0;     ///< first tokens, which are never in groups
    std::int64_t sliding_window = 0;  ///< as in LayerShape
  };

  virtual ~Scoring() = default;

  /// The prompt's entries and its last queries, before any event: for data computed from the prompt
  /// as a whole (codebooks, a choice of columns).
  virtual void notify_prompt(const Entries& /*entries*/, const QueryWindow& /*window*/) {}
  /// What the representatives of a prompt of so many tokens took, at the stream's own shape. Called
  /// once the prompt's tokens are placed.
  [[nodiscard]] virtual PromptWork prompt_work(std::int64_t /*tokens*/) const { return {}; }

  /// `groups` has already applied the event; `entries` reaches at least to the event's tokens.
  virtual void notify_event(const GroupEvent& event, const Groups& groups,
                            const Entries& entries) = 0;

  /// Whether score() reads the keys of all tokens, which must then stay in memory.
  [[nodiscard]] virtual bool reads_all_keys() const { return false; }
  /// Scores every group for the queries of one position, [query heads of the stream, head_dim].
  /// The view is valid until the next call.
  [[nodiscard]] virtual Scores score(QueryRows queries, const Groups& groups,
                                     const Entries& entries) = 0;

  /// For the most recent score().
  [[nodiscard]] virtual ScoreCost cost() const = 0;

  /// The result of a query head's attention: the weights of `tokens` (ascending). Called for each
  /// of the prompt's last queries once its tokens are placed, and for each step before its token
  /// is.
  virtual void notify_attention(std::int64_t /*query_head*/, Token /*position*/,
                                std::span<const Token> /*tokens*/,
                                std::span<const float> /*weights*/) {}
  /// Whether the part needs notify_attention; the prompt's window costs a pass over its keys.
  [[nodiscard]] virtual bool needs_attention() const { return false; }
};

}  // namespace kvreplay
