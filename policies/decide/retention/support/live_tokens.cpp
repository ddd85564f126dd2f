#include "policies/decide/retention/support/live_tokens.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace kvreplay {

void LiveTokens::start(std::int64_t count) {
  tokens_.resize(static_cast<std::size_t>(count));
  std::iota(tokens_.begin(), tokens_.end(), 0);
}

void LiveTokens::keep_only(std::span<const std::int32_t> kept, const Groups& groups,
                           EventSink& events) {
  std::vector<std::pair<GroupId, Token>> leaving;
  std::vector<Token> staying;
  for (std::int32_t i = 0; i < std::ssize(tokens_); ++i) {
    const Token token = tokens_[static_cast<std::size_t>(i)];
    if (staying.size() < kept.size() && kept[staying.size()] == i) {
      staying.push_back(token);
    } else {
      leaving.emplace_back(groups.group_of(token), token);
    }
  }
  tokens_ = std::move(staying);

  // Emits one event per group, and one for the tokens in memory.
  std::sort(leaving.begin(), leaving.end());
  std::vector<Token> tokens;
  for (std::size_t i = 0; i < leaving.size();) {
    const GroupId group = leaving[i].first;
    tokens.clear();
    for (; i < leaving.size() && leaving[i].first == group; ++i) {
      tokens.push_back(leaving[i].second);
    }
    events.on_event({EventKind::kEvicted, group, kNoGroup, tokens});
  }
}

}  // namespace kvreplay
