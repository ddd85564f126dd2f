#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "policies/decide/log/access_log.hpp"

namespace kvreplay {

/// A stream's log, written by hand: the prompt's events, then for each step request() and its
/// events.
///   StreamBuilder().create({0, 1}).request({0}).append(0, {2}).log()
class StreamBuilder {
 public:
  explicit StreamBuilder(std::int64_t kv_heads = 1, std::int64_t query_heads = 1) {
    log_.kv_heads = kv_heads;
    log_.query_heads = query_heads;
  }

  StreamBuilder& create(const std::vector<Token>& tokens) {
    return add(EventKind::kCreated, next_group_++, kNoGroup, tokens);
  }
  StreamBuilder& append(GroupId group, const std::vector<Token>& tokens) {
    return add(EventKind::kAppended, group, kNoGroup, tokens);
  }
  StreamBuilder& split(GroupId group, const std::vector<Token>& tokens) {
    return add(EventKind::kSplit, group, next_group_++, tokens);
  }
  StreamBuilder& buffer(const std::vector<Token>& tokens) {
    return add(EventKind::kBuffered, kNoGroup, kNoGroup, tokens);
  }
  StreamBuilder& evict(GroupId group, const std::vector<Token>& tokens) {
    return add(EventKind::kEvicted, group, kNoGroup, tokens);
  }
  StreamBuilder& dissolve(GroupId group) { return add(EventKind::kDissolved, group, kNoGroup, {}); }
  StreamBuilder& load(GroupId group) { return add(EventKind::kLoaded, group, kNoGroup, {}); }
  StreamBuilder& reencode(std::int32_t format, const std::vector<Token>& tokens) {
    return add(EventKind::kReencoded, kNoGroup, format, tokens);
  }

  /// A step begins. Every query head attends to `attended` tokens.
  StreamBuilder& request(const std::vector<GroupId>& groups, std::int32_t attended = 1) {
    log_.end_segment();
    log_.requested.insert(log_.requested.end(), groups.begin(), groups.end());
    log_.requested_begin.push_back(std::ssize(log_.requested));
    for (std::int64_t head = 0; head < log_.query_heads; ++head) {
      log_.attended_count.push_back(attended + static_cast<std::int32_t>(head));
    }
    log_.buffered_tokens.push_back(0);
    return cost(0, 0, 0);
  }
  /// The cost of the step's scoring.
  StreamBuilder& cost(std::int64_t held_bytes, std::int64_t read_bytes, std::int64_t flops) {
    const auto steps = static_cast<std::size_t>(log_.steps());
    log_.held_bytes.resize(steps);
    log_.score_bytes.resize(steps);
    log_.score_flops.resize(steps);
    log_.held_bytes.back() = held_bytes;
    log_.score_bytes.back() = read_bytes;
    log_.score_flops.back() = flops;
    return *this;
  }

  /// Ends the last step.
  [[nodiscard]] StreamLog log() {
    log_.end_segment();
    return std::move(log_);
  }

 private:
  StreamBuilder& add(EventKind kind, GroupId group, std::int32_t other,
                     const std::vector<Token>& tokens) {
    log_.add({kind, group, other, tokens});
    return *this;
  }

  StreamLog log_;
  GroupId next_group_ = 0;
};

/// A log of one layer, or of several whose streams are given one after the other.
inline AccessLog make_log(std::vector<StreamLog> streams, std::int64_t kv_heads,
                          std::int64_t query_heads, std::int64_t head_dim,
                          std::int64_t prompt_tokens) {
  AccessLog log;
  log.system = "by hand";
  log.kv_heads = kv_heads;
  log.query_heads = query_heads;
  log.head_dim = head_dim;
  log.prompt_tokens = prompt_tokens;
  log.steps = streams.front().steps();
  log.formats = {{"fp16", 16, 0}};
  log.layers.push_back(
      {.layer = 5, .full_attention = false, .streams = std::move(streams), .quality = {}});
  return log;
}

/// What random_stream() may do.
struct RandomStreamOptions {
  std::int64_t prompt_tokens = 40;
  std::int64_t steps = 60;
  std::int64_t kv_heads = 1;
  std::int64_t query_heads = 2;
  bool changes = true;  ///< splits, evictions, dissolved groups, re-encoded tokens, loads
};

/// A stream with random events of every kind. Tokens are in formats 0 to 2.
inline StreamLog random_stream(Random& random, const RandomStreamOptions& options) {
  StreamBuilder builder(options.kv_heads, options.query_heads);
  std::vector<std::vector<Token>> groups;
  std::vector<Token> waiting;
  const auto live = [&] {
    std::vector<GroupId> ids;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (!groups[g].empty()) ids.push_back(static_cast<GroupId>(g));
    }
    return ids;
  };
  const auto pick = [&](const std::vector<GroupId>& ids) { return ids[random.below(ids.size())]; };
  const auto some_of = [&](std::vector<Token>& tokens, std::size_t min) {
    std::vector<Token> taken;
    std::vector<Token> left;
    for (const Token token : tokens) {
      const bool take = taken.size() < min || random.below(2) == 0;
      (take ? taken : left).push_back(token);
    }
    tokens = left;
    return taken;
  };
  const auto place_waiting = [&] {
    if (waiting.empty()) return;
    const std::vector<GroupId> ids = live();
    if (ids.empty() || random.below(3) == 0) {
      builder.create(waiting);
      groups.push_back(waiting);
    } else {
      const GroupId group = pick(ids);
      builder.append(group, waiting);
      auto& members = groups[static_cast<std::size_t>(group)];
      members.insert(members.end(), waiting.begin(), waiting.end());
    }
    waiting.clear();
  };

  for (Token token = 0; token < options.prompt_tokens; ++token) {
    waiting.push_back(token);
    if (random.below(4) == 0) place_waiting();
  }
  place_waiting();
  for (std::int64_t step = 0; step < options.steps; ++step) {
    std::vector<GroupId> requested = live();
    std::erase_if(requested, [&](GroupId) { return random.below(3) != 0; });
    builder.request(requested, static_cast<std::int32_t>(1 + random.below(50)));
    const auto token = static_cast<Token>(options.prompt_tokens + step);
    builder.buffer({token});
    waiting.push_back(token);
    if (random.below(2) == 0) place_waiting();
    if (!options.changes || live().empty()) continue;
    const GroupId group = pick(live());
    auto& members = groups[static_cast<std::size_t>(group)];
    switch (random.below(8)) {
      case 0:
        if (members.size() > 1) {
          const std::vector<Token> taken = some_of(members, 1);
          if (members.empty()) {
            members = taken;
            break;
          }
          builder.load(group).split(group, taken);
          groups.push_back(taken);
        }
        break;
      case 1:
        builder.evict(group, some_of(members, 1));
        break;
      case 2: {
        builder.load(group).dissolve(group);
        waiting.insert(waiting.end(), members.begin(), members.end());
        std::sort(waiting.begin(), waiting.end());
        members.clear();
        break;
      }
      case 3: {
        std::vector<Token> copy = members;
        builder.load(group).reencode(static_cast<std::int32_t>(random.below(3)), some_of(copy, 1));
        break;
      }
      case 4:
        builder.load(group).load(group);
        break;
      default:
        break;
    }
  }
  return builder.log();
}

}  // namespace kvreplay
