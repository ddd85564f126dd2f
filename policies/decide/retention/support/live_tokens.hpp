#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policies/decide/log/groups.hpp"

namespace kvreplay {

/// The tokens of a stream that have not been evicted, ascending, with a way to evict some.
class LiveTokens {
 public:
  /// Starts with tokens [0, count): the prompt.
  void start(std::int64_t count);
  void append(Token token) { tokens_.push_back(token); }

  [[nodiscard]] const std::vector<Token>& tokens() const { return tokens_; }
  [[nodiscard]] std::int64_t count() const { return std::ssize(tokens_); }

  /// Evicts every token except those at `kept`: positions in tokens(), ascending.
  void keep_only(std::span<const std::int32_t> kept, const Groups& groups, EventSink& events);

 private:
  std::vector<Token> tokens_;
};

}  // namespace kvreplay
