#include "policies/decide/log/groups.hpp"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <utility>

namespace kvreplay {

std::string_view Groups::fault(const GroupEvent& event) const {
  const auto all = [&](const auto& holds) {
    return std::all_of(event.tokens.begin(), event.tokens.end(), holds);
  };
  const auto can_join = [&](Token token) {
    return where(token) == Where::kUnseen || where(token) == Where::kBuffered;
  };
  const auto is_member = [&](Token token) {
    return event.group == kNoGroup ? where(token) == Where::kBuffered
                                   : group_of(token) == event.group;
  };
  const bool exists = event.group >= 0 && event.group < count();
  switch (event.kind) {
    case EventKind::kCreated:
      if (event.group != count()) return "a new group whose number is not the next one";
      return all(can_join) ? "" : "a token that is elsewhere already";
    case EventKind::kAppended:
      if (!exists) return "no such group";
      return all(can_join) ? "" : "a token that is elsewhere already";
    case EventKind::kSplit:
      if (!exists) return "no such group";
      if (event.other != count()) return "a new group whose number is not the next one";
      return all(is_member) ? "" : "a token that is not in the group";
    case EventKind::kBuffered:
      return all(can_join) ? "" : "a token that is elsewhere already";
    case EventKind::kEvicted:
      if (!exists && event.group != kNoGroup) return "no such group";
      return all(is_member) ? "" : "a token that is not in the group";
    case EventKind::kSealed:
    case EventKind::kLoaded:
    case EventKind::kDissolved:
      return exists ? "" : "no such group";
    case EventKind::kReencoded:
      return "";
  }
  return "no such event";
}

void Groups::on_event(const GroupEvent& event) {
  assert(fault(event).empty());
  switch (event.kind) {
    case EventKind::kCreated:
      assert(event.group == count());
      members_.emplace_back();
      join(event.group, event.tokens);
      break;
    case EventKind::kAppended:
      join(event.group, event.tokens);
      break;
    case EventKind::kSplit:
      assert(event.other == count());
      leave(event.group, event.tokens, Where::kUnseen);
      members_.emplace_back();
      join(event.other, event.tokens);
      break;
    case EventKind::kBuffered:
      for (const Token token : event.tokens) {
        if (where(token) == Where::kBuffered) continue;
        assert(where(token) == Where::kUnseen);
        arrived_.push_back(token);
        ++buffered_count_;
        place(token, Where::kBuffered, kNoGroup);
      }
      break;
    case EventKind::kEvicted:
      leave(event.group, event.tokens, Where::kEvicted);
      break;
    case EventKind::kDissolved: {
      const std::vector<Token> tokens = members(event.group);
      leave(event.group, tokens, Where::kUnseen);
      on_event({EventKind::kBuffered, kNoGroup, kNoGroup, tokens});
      break;
    }
    case EventKind::kSealed:
    case EventKind::kLoaded:
      assert(event.group >= 0 && event.group < count());
      break;
    case EventKind::kReencoded:
      break;
  }
}

std::vector<GroupId> Groups::groups_of(std::span<const Token> tokens) const {
  std::vector<GroupId> groups;
  for (const Token token : tokens) {
    const GroupId group = group_of(token);
    if (group != kNoGroup) groups.push_back(group);
  }
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}

void Groups::join(GroupId group, std::span<const Token> tokens) {
  if (buffered_count_ > 0) {
    std::vector<Token> leaving;
    for (const Token token : tokens) {
      if (where(token) == Where::kBuffered) leaving.push_back(token);
    }
    leave(kNoGroup, leaving, Where::kUnseen);
  }
  std::vector<Token>& members = members_[static_cast<std::size_t>(group)];
  live_groups_ += members.empty() && !tokens.empty() ? 1 : 0;
  members.insert(members.end(), tokens.begin(), tokens.end());
  for (const Token token : tokens) {
    assert(where(token) == Where::kUnseen);
    place(token, Where::kGrouped, group);
  }
  grouped_tokens_ += std::ssize(tokens);
}

void Groups::leave(GroupId group, std::span<const Token> tokens, Where to) {
  if (tokens.empty()) return;
  for (const Token token : tokens) {
    assert(group == kNoGroup ? where(token) == Where::kBuffered : group_of(token) == group);
    place(token, to, kNoGroup);
  }
  if (group == kNoGroup) {
    buffered_count_ -= std::ssize(tokens);
    left_ = true;
  } else {
    std::vector<Token>& members = members_[static_cast<std::size_t>(group)];
    std::erase_if(members, [&](Token token) { return where(token) == to; });
    grouped_tokens_ -= std::ssize(tokens);
    live_groups_ -= members.empty() ? 1 : 0;
  }
}

void Groups::place(Token token, Where where, GroupId group) {
  const auto index = static_cast<std::size_t>(token);
  if (index >= where_.size()) {
    where_.resize(index + 1, Where::kUnseen);
    group_of_.resize(index + 1, kNoGroup);
  }
  where_[index] = where;
  group_of_[index] = group;
}

void Groups::settle_buffered() const {
  if (!arrived_.empty()) {
    if (!std::is_sorted(arrived_.begin(), arrived_.end())) {
      std::sort(arrived_.begin(), arrived_.end());
    }
    const auto middle = std::ssize(buffered_);
    buffered_.insert(buffered_.end(), arrived_.begin(), arrived_.end());
    std::inplace_merge(buffered_.begin(), buffered_.begin() + middle, buffered_.end());
    arrived_.clear();
  }
  if (left_) {
    std::erase_if(buffered_, [&](Token token) { return where(token) != Where::kBuffered; });
    // What left and came back is there twice.
    buffered_.erase(std::unique(buffered_.begin(), buffered_.end()), buffered_.end());
    left_ = false;
  }
  assert(std::ssize(buffered_) == buffered_count_);
}

void evict(std::span<const Token> tokens, const Groups& groups, EventSink& events) {
  std::vector<std::pair<GroupId, Token>> leaving;
  for (const Token token : tokens) leaving.emplace_back(groups.group_of(token), token);
  std::sort(leaving.begin(), leaving.end());
  std::vector<Token> of_group;
  for (std::size_t i = 0; i < leaving.size();) {
    const GroupId group = leaving[i].first;
    of_group.clear();
    for (; i < leaving.size() && leaving[i].first == group; ++i) {
      of_group.push_back(leaving[i].second);
    }
    events.on_event({EventKind::kEvicted, group, kNoGroup, of_group});
  }
}

}  // namespace kvreplay
