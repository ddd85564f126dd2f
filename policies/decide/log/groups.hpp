#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "policies/decide/log/stream.hpp"

namespace kvreplay {

/// A group's number within its stream: 0, 1, 2 ... in order of creation, never reused.
using GroupId = std::int32_t;
inline constexpr GroupId kNoGroup = -1;

/// What happens to groups: the one language that grouping, scoring, retention, precision, the
/// access log, layouts and caches share.
enum class EventKind : std::uint8_t {
  kCreated,    ///< `tokens` become the members of the new `group` (its number is the next one)
  kAppended,   ///< `tokens` join `group`
  kSplit,      ///< `tokens`, members of `group`, leave it and become the new group `other`
  kBuffered,   ///< `tokens` stay in memory, where they may already be; `group` is the one they
               ///< wait for, or kNoGroup
  kSealed,     ///< `group` takes no more tokens
  kEvicted,    ///< `tokens` leave `group` (or memory, for kNoGroup) for good
  kDissolved,  ///< `group` ends; its tokens are in memory until an event of the same step takes
               ///< them
  kLoaded,     ///< `group` is read although no query requested it (a forced split, a re-clustering)
  kReencoded,  ///< `tokens` are stored in format number `other` from now on
};

struct GroupEvent {
  EventKind kind{};
  GroupId group = kNoGroup;
  std::int32_t other = kNoGroup;
  std::span<const Token> tokens{};
};

/// Receives events in order. A listener sees an event after Groups has applied it.
class EventSink {
 public:
  virtual void on_event(const GroupEvent& event) = 0;

 protected:
  ~EventSink() = default;
};

/// Tracks which token is where: the state that results from a stream's events. Every token seen is
/// in exactly one group, in memory, or evicted; debug builds check each event against that.
class Groups final : public EventSink {
 public:
  enum class Where : std::uint8_t { kUnseen, kGrouped, kBuffered, kEvicted };

  void on_event(const GroupEvent& event) override;
  /// What on_event(event) relies on and does not hold here; "" where all of it does.
  [[nodiscard]] std::string_view fault(const GroupEvent& event) const;

  /// Number of groups ever created; ids run from 0 to count() - 1.
  [[nodiscard]] GroupId count() const { return static_cast<GroupId>(members_.size()); }
  /// Whether the group has members. A dissolved or wholly evicted group has none.
  [[nodiscard]] bool live(GroupId group) const { return !members(group).empty(); }
  /// The members, in the order in which they joined.
  [[nodiscard]] const std::vector<Token>& members(GroupId group) const {
    return members_[static_cast<std::size_t>(group)];
  }
  /// Tokens in memory that belong to no group, ascending. Not for two threads at once.
  [[nodiscard]] const std::vector<Token>& buffered() const {
    settle_buffered();
    return buffered_;
  }
  [[nodiscard]] std::int64_t grouped_tokens() const { return grouped_tokens_; }
  /// Number of groups that have members.
  [[nodiscard]] std::int64_t live_groups() const { return live_groups_; }

  [[nodiscard]] Where where(Token token) const {
    const auto index = static_cast<std::size_t>(token);
    return index < where_.size() ? where_[index] : Where::kUnseen;
  }
  /// The groups that hold any of the tokens: ascending, each once.
  [[nodiscard]] std::vector<GroupId> groups_of(std::span<const Token> tokens) const;
  /// The token's group, or kNoGroup.
  [[nodiscard]] GroupId group_of(Token token) const {
    return where(token) == Where::kGrouped ? group_of_[static_cast<std::size_t>(token)] : kNoGroup;
  }
  /// Drops the evicted tokens; used for tokens that waited in memory for their group.
  void erase_evicted(std::vector<Token>& tokens) const {
    std::erase_if(tokens, [&](Token token) { return where(token) == Where::kEvicted; });
  }

 private:
  void join(GroupId group, std::span<const Token> tokens);
  void leave(GroupId group, std::span<const Token> tokens, Where to);
  void place(Token token, Where where, GroupId group);
  void settle_buffered() const;

  std::vector<std::vector<Token>> members_;
  // Tokens come and go by the thousands between two looks at the list, as when all clusters are
  // dissolved: it is brought up to date when it is asked for.
  mutable std::vector<Token> buffered_;  // as of the last look
  mutable std::vector<Token> arrived_;   // since then; some may have left again
  mutable bool left_ = false;            // some of either have left since then
  std::int64_t buffered_count_ = 0;
  std::vector<Where> where_;
  std::vector<GroupId> group_of_;
  std::int64_t grouped_tokens_ = 0;
  std::int64_t live_groups_ = 0;
};

/// Emits the eviction of `tokens`, wherever they are: one event per group, and one for those in
/// memory.
void evict(std::span<const Token> tokens, const Groups& groups, EventSink& events);

}  // namespace kvreplay
