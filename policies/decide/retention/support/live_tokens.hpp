#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "policies/decide/log/groups.hpp"

namespace kvreplay {

/// The tokens of a stream that have not been evicted, ascending, with a way to evict some.
class LiveTokens {
 public:
  /// Starts with the prompt's tokens [0, count). In both, the first ones may be gone already:
  /// behind a layer's sliding window.
  void start(std::int64_t count, const Groups& groups);
  void append(Token token, const Groups& groups);

  [[nodiscard]] const std::vector<Token>& tokens() const { return tokens_; }
  [[nodiscard]] std::int64_t count() const { return std::ssize(tokens_); }

  /// Of scores of the prompt's first tokens, from token 0 on: those of tokens that are still here.
  [[nodiscard]] std::span<const float> of_candidates(std::span<const float> scores,
                                                     std::int64_t prompt_tokens) const {
    return scores.subspan(
        std::min(scores.size(), static_cast<std::size_t>(prompt_tokens - count())));
  }

  /// Evicts every token except those at `kept`: positions in tokens(), ascending.
  void keep_only(std::span<const std::int32_t> kept, const Groups& groups, EventSink& events);

 private:
  void drop_expired(const Groups& groups);

  std::vector<Token> tokens_;
};

}  // namespace kvreplay
