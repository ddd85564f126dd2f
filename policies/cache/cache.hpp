#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string_view>

#include "policies/groups.hpp"
#include "sim/base/registry.hpp"

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

/// Role: what stays in DRAM. One cache serves one layer of one sequence. Within a step the groups
/// asked for come in ascending order of (stream, group).
class Cache {
 public:
  static constexpr std::string_view kRole = "cache";
  struct Context {
    std::int64_t streams = 1;
    std::int64_t entry_bytes = 0;  ///< of one entry of one stream in format 0
  };

  virtual ~Cache() = default;

  /// A step asks for the group, `bytes` large. True when it is in memory (a hit); otherwise it is
  /// read and may be kept.
  [[nodiscard]] virtual bool access(GroupKey key, std::int64_t bytes) = 0;
  /// The group grew, shrank or was split while in memory: its size is now `bytes`.
  virtual void resized(GroupKey /*key*/, std::int64_t /*bytes*/) {}
  /// The group is gone (evicted, dissolved): it must not count any more.
  virtual void erase(GroupKey key) = 0;
  /// All groups of the step have been asked for.
  virtual void end_step() {}

  [[nodiscard]] virtual bool contains(GroupKey key) const = 0;
  /// Bytes of groups held now.
  [[nodiscard]] virtual std::int64_t used_bytes() const = 0;
  /// Everything is in memory from the start; nothing is on flash.
  [[nodiscard]] virtual bool holds_everything() const { return false; }
};

}  // namespace kvreplay
