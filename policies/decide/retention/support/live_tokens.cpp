#include "policies/decide/retention/support/live_tokens.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace kvreplay {

void LiveTokens::start(std::int64_t count, const Groups& groups) {
  tokens_.resize(static_cast<std::size_t>(count));
  std::iota(tokens_.begin(), tokens_.end(), 0);
  drop_expired(groups);
}

void LiveTokens::append(Token token, const Groups& groups) {
  tokens_.push_back(token);
  drop_expired(groups);
}

void LiveTokens::keep_only(std::span<const std::int32_t> kept, const Groups& groups,
                           EventSink& events) {
  std::vector<Token> leaving;
  std::vector<Token> staying;
  for (std::int32_t i = 0; i < std::ssize(tokens_); ++i) {
    const Token token = tokens_[static_cast<std::size_t>(i)];
    const bool stays = staying.size() < kept.size() && kept[staying.size()] == i;
    (stays ? staying : leaving).push_back(token);
  }
  tokens_ = std::move(staying);
  evict(leaving, groups, events);
}

void LiveTokens::drop_expired(const Groups& groups) {
  const auto first = std::find_if(tokens_.begin(), tokens_.end(), [&](Token token) {
    return groups.where(token) != Groups::Where::kEvicted;
  });
  tokens_.erase(tokens_.begin(), first);
}

}  // namespace kvreplay
