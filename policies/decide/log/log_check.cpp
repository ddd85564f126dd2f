#include "policies/decide/log/log_check.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "policies/decide/log/groups.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kMaxHeads = 1 << 12;
constexpr std::int64_t kMaxDim = 1 << 12;
constexpr std::int64_t kMaxTokens = (std::int64_t{1} << 31) - 1;
constexpr double kMaxBits = 1024;         // per element
constexpr double kMaxOverhead = 1 << 20;  // bits per head

std::string range_text(std::int64_t min, std::int64_t max) {
  return max < min ? "none here" : std::to_string(min) + " to " + std::to_string(max);
}

void check_range(std::int64_t found, std::int64_t min, std::int64_t max,
                 const SourceLocation& place, const std::string& what) {
  if (found >= min && found <= max) return;
  throw UserError(place, "found " + what + " " + std::to_string(found), range_text(min, max));
}

/// One stream, step by step: the groups that there are decide what the log may name.
class StreamCheck {
 public:
  StreamCheck(const StreamLog& stream, const AccessLog& log, const SourceLocation& place,
              const SelectionBound& bound)
      : stream_(stream), log_(log), place_(place), bound_(bound) {}

  void run() {
    check_heads();
    take_segment(0, log_.prompt_tokens);
    check_groups("window_asked", stream_.window_requested, 0);
    for (std::int64_t step = 0; step < log_.steps; ++step) {
      check_step(step);
      take_segment(step + 1, log_.prompt_tokens + step + 1);
    }
  }

 private:
  void check_heads() const {
    check_range(stream_.kv_heads, 1, log_.kv_heads, place_, "kv_heads");
    check_range(stream_.first_kv_head, 0, log_.kv_heads - stream_.kv_heads, place_,
                "first_kv_head");
    const std::int64_t query_heads = stream_.kv_heads * (log_.query_heads / log_.kv_heads);
    check_range(stream_.query_heads, query_heads, query_heads, place_, "query_heads");
    check_range(stream_.rows, 0, stream_.query_heads, place_, "rows");
    check_range(stream_.out_of_range, 0, std::numeric_limits<std::int64_t>::max(), place_,
                "out_of_range");
    check_range(stream_.coarse_channels, 0, std::numeric_limits<std::int64_t>::max(), place_,
                "coarse_channels");
    check_range(stream_.held_fixed_bytes, 0, std::numeric_limits<std::int64_t>::max(), place_,
                "held_fixed_bytes");
    check_range(stream_.held_prompt_bytes, 0, std::numeric_limits<std::int64_t>::max(), place_,
                "held_prompt_bytes");
  }

  /// Tokens of the segment lie in [0, end).
  void take_segment(std::int64_t segment, std::int64_t end) {
    const auto at = static_cast<std::size_t>(segment);
    for (std::int64_t e = stream_.event_begin[at]; e < stream_.event_begin[at + 1]; ++e) {
      const GroupEvent event = stream_.event(e);
      for (const Token token : event.tokens) {
        check_range(token, 0, end - 1, place_.at("event_tokens"), "token");
      }
      check_range(event.group, kNoGroup, groups_.count(), place_.at("event_group"), "group");
      if (event.kind == EventKind::kReencoded) {
        check_range(event.other, 0, std::ssize(log_.formats) - 1, place_.at("event_other"),
                    "entry format");
      }
      tokens_.assign(event.tokens.begin(), event.tokens.end());
      std::sort(tokens_.begin(), tokens_.end());
      const bool twice = std::adjacent_find(tokens_.begin(), tokens_.end()) != tokens_.end();
      const std::string_view fault = twice ? "a token that it names twice" : groups_.fault(event);
      if (!fault.empty()) {
        throw UserError(place_, "event " + std::to_string(e) + " has " + std::string(fault),
                        "events that follow from those before them");
      }
      groups_.on_event(event);
    }
  }

  void check_groups(const std::string& name, std::span<const GroupId> named,
                    std::int64_t first) const {
    for (std::size_t i = 0; i < named.size(); ++i) {
      const bool exists = named[i] >= 0 && named[i] < groups_.count();
      if (exists && groups_.live(named[i])) continue;
      throw UserError(place_.at(name),
                      "found group " + std::to_string(named[i]) + " at value " +
                          std::to_string(first + static_cast<std::int64_t>(i)) +
                          (exists ? ", which has no tokens then" : ""),
                      range_text(0, groups_.count() - 1));
    }
  }

  /// Reads no group of `set` behind the first one that there is not.
  std::vector<GroupId> checked_groups(const std::string& name, const NumberSets& sets,
                                      std::int64_t set) const {
    std::vector<GroupId> groups;
    sets.for_runs(set, [&](GroupId first, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) {
        groups.push_back(static_cast<GroupId>(first + i));
        check_groups(name, std::span(groups).last(1), std::ssize(groups) - 1);
      }
    });
    return groups;
  }

  void check_step(std::int64_t step) const {
    const auto at = static_cast<std::size_t>(step);
    static_cast<void>(checked_groups("asked", stream_.requested, step));
    for (std::int64_t row = step * stream_.rows; row < (step + 1) * stream_.rows; ++row) {
      check_row(step, row);
    }
    const std::int64_t tokens = log_.prompt_tokens + step + 1;  // the step's own included
    for (std::int64_t i = step * stream_.query_heads; i < (step + 1) * stream_.query_heads; ++i) {
      const std::int64_t count = stream_.attended_count[static_cast<std::size_t>(i)];
      check_range(count, 0, tokens, place_.at("attended_count"), "count");
      if (stream_.attended.size() == 0) continue;
      check_range(stream_.attended.count(i), count, count, place_.at("attended"),
                  "a number of tokens");
      stream_.attended.for_runs(i, [&](Token first, std::int64_t length) {
        check_range(first + length - 1, 0, tokens - 1, place_.at("attended"), "token");
      });
    }
    check_range(stream_.buffered_tokens[at], 0, tokens, place_.at("buffered_tokens"), "count");
    constexpr std::int64_t kMax = std::int64_t{1} << 53;
    check_range(stream_.held_bytes[at], 0, kMax, place_.at("held_bytes"), "bytes");
    check_range(stream_.score_bytes[at], 0, kMax, place_.at("score_bytes"), "bytes");
    check_range(stream_.score_flops[at], 0, kMax, place_.at("score_flops"), "operations");
  }

  void check_row(std::int64_t step, std::int64_t row) const {
    const auto at = static_cast<std::size_t>(row);
    const std::vector<GroupId> picked = checked_groups("picked", stream_.picked, row);
    const GroupId last = stream_.last_picked[at];
    if (picked.empty() ? last != kNoGroup
                       : !std::binary_search(picked.begin(), picked.end(), last)) {
      throw UserError(
          place_.at("last_picked"), "found group " + std::to_string(last),
          picked.empty() ? "none, since nothing was picked" : "a group that was picked");
    }
    const std::int64_t max_tokens = picked.empty() ? 0 : std::ssize(groups_.members(last));
    check_range(stream_.last_tokens[at], 0, max_tokens, place_.at("last_tokens"), "count");
    std::int64_t bound = bound_.tokens;
    if (bound == 0) {
      bound =
          static_cast<std::int64_t>(bound_.share * static_cast<double>(log_.prompt_tokens + step));
    }
    if (bound_.tokens == 0 && bound_.share == 0) return;
    std::int64_t selected = stream_.last_tokens[at] - max_tokens;
    for (const GroupId group : picked) selected += std::ssize(groups_.members(group));
    check_range(selected, 0, bound, place_.at("picked"), "a number of selected tokens");
  }

  const StreamLog& stream_;
  const AccessLog& log_;
  const SourceLocation& place_;
  SelectionBound bound_;
  Groups groups_;
  std::vector<Token> tokens_;
};

}  // namespace

void check_stream_values(const StreamLog& stream, const AccessLog& log, const SourceLocation& place,
                         const SelectionBound& bound) {
  StreamCheck(stream, log, place, bound).run();
}

void check_log_shape(const AccessLog& log, const SourceLocation& place) {
  check_range(log.query_heads, 1, kMaxHeads, place, "query_heads");
  check_range(log.kv_heads, 1, log.query_heads, place, "kv_heads");
  check_range(log.query_heads % log.kv_heads, 0, 0, place, "query_heads modulo kv_heads");
  check_range(log.head_dim, 1, kMaxDim, place, "head_dim");
  check_range(log.prompt_tokens, 1, kMaxTokens, place, "prompt_tokens");
  check_range(log.steps, 0, kMaxTokens - log.prompt_tokens, place, "steps");
  for (const EntryFormat& format : log.formats) {
    const auto is_within = [](double bits, double max) { return bits >= 0 && bits <= max; };
    if (!is_within(format.bits_per_element, kMaxBits) ||
        !is_within(format.overhead_bits_per_head, kMaxOverhead)) {
      throw UserError(place, "attribute formats has a format of impossible bits",
                      "0 to 1024 bits per element");
    }
  }
  if (log.formats.empty()) throw UserError(place, "attribute formats is empty", "at least one");
}

}  // namespace kvreplay
