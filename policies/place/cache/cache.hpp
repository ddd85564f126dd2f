#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/registry.hpp"
#include "policies/decide/log/groups.hpp"

namespace kvreplay {

/// A group of one of the streams that share a cache.
struct GroupKey {
  std::int32_t stream = 0;
  GroupId group = 0;

  [[nodiscard]] std::uint64_t packed() const {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(stream)) << 32) |
           static_cast<std::uint32_t>(group);
  }
  friend auto operator<=>(const GroupKey&, const GroupKey&) = default;
};

/// A step requests a group.
struct Access {
  GroupKey key;
  std::int64_t bytes = 0;  ///< of all its entries, as stored; > 0
};

/// Role: what stays in DRAM. One cache serves one layer of one sequence. Within a step the
/// requested groups come in ascending order of (stream, group).
class Cache {
 public:
  static constexpr std::string_view kRole = "cache";
  static constexpr Stage kStage = Stage::kPlace;
  struct Context {
    std::int64_t streams = 1;
    std::int64_t entry_bytes = 0;  ///< of one entry of one stream in format 0
  };

  virtual ~Cache() = default;

  /// Returns true when the group is in memory (a hit). Otherwise the group is read and may be kept.
  /// `members`: its tokens.
  [[nodiscard]] virtual bool access(const Access& access, std::span<const Token> members) = 0;
  /// The group grew, shrank or was rewritten, and its size is now `bytes`. Has no effect on a group
  /// that is not held.
  virtual void notify_resize(GroupKey /*key*/, std::int64_t /*bytes*/) {}
  /// The new group `key` was split off `from`. Where `from` is held, all of `key` is in memory too
  /// and may be kept without a read. Called after notify_resize() for `from`.
  virtual void notify_split(GroupKey /*key*/, GroupKey /*from*/, std::int64_t /*bytes*/) {}
  /// The group no longer exists (it was evicted or dissolved) and must not count any more.
  virtual void erase(GroupKey key) = 0;
  /// All groups of the step have been requested, and the index has taken the step's token.
  virtual void end_step() {}

  [[nodiscard]] virtual bool contains(GroupKey key) const = 0;
  /// Bytes of the groups held now.
  [[nodiscard]] virtual std::int64_t used_bytes() const = 0;
  /// What the cache may hold of groups of so many bytes each; 0 = it has no capacity.
  [[nodiscard]] virtual std::int64_t capacity_bytes(std::int64_t /*group_bytes*/) const {
    return 0;
  }
  /// Everything is in memory from the start; nothing is on flash.
  [[nodiscard]] virtual bool holds_everything() const { return false; }

  /// Whether DRAM holds the cache of one layer at a time. Between two steps the held groups are
  /// then on flash only, and are read again before the layer needs them.
  [[nodiscard]] virtual bool paged_by_layer() const { return false; }

  /// An oracle is given the whole sequence of accesses, in order, before the first one.
  [[nodiscard]] virtual bool needs_future() const { return false; }
  virtual void set_future_accesses(std::span<const Access> /*accesses*/) {}
};

}  // namespace kvreplay
