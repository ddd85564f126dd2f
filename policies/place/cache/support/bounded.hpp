#pragma once

#include <cstdint>
#include <vector>

#include "policies/place/cache/cache.hpp"
#include "policies/place/cache/support/key_map.hpp"

namespace kvreplay {

/// capacity_groups, capacity_bytes and paged_by_layer, followed by a policy's own parameters.
[[nodiscard]] std::vector<Parameter> capacity_and(std::vector<Parameter> others = {});

/// A limit on groups or on bytes; exactly one of the two is given. Policies count in weights: 1 per
/// group, or its bytes.
struct Capacity {
  std::int64_t limit = 0;
  bool in_groups = true;

  explicit Capacity(const Arguments& arguments);
  [[nodiscard]] std::int64_t weight(std::int64_t bytes) const { return in_groups ? 1 : bytes; }
  /// A share of the limit, rounded down.
  [[nodiscard]] std::int64_t share(double of_limit) const {
    return static_cast<std::int64_t>(static_cast<double>(limit) * of_limit);
  }
};

/// What the caches of limited capacity have in common: they read on a miss, evict until the
/// newcomer fits, and keep it unless it is larger than the whole capacity. A policy decides the
/// order of eviction.
class BoundedCache : public Cache {
 public:
  [[nodiscard]] bool access(const Access& access, std::span<const Token> members) final;
  void notify_resize(GroupKey key, std::int64_t bytes) final;
  void notify_split(GroupKey key, GroupKey from, std::int64_t bytes) final;
  void erase(GroupKey key) final;
  [[nodiscard]] bool contains(GroupKey key) const final { return bytes_.get(key) != kNotHeld; }
  [[nodiscard]] std::int64_t used_bytes() const final { return used_bytes_; }
  [[nodiscard]] std::int64_t capacity_bytes(std::int64_t group_bytes) const final {
    return capacity_.in_groups ? capacity_.limit * group_bytes : capacity_.limit;
  }
  [[nodiscard]] bool paged_by_layer() const final { return paged_by_layer_; }

 protected:
  BoundedCache(const Arguments& arguments, const Context& context)
      : capacity_(arguments),
        paged_by_layer_(arguments.flag("paged_by_layer")),
        bytes_(context.streams, kNotHeld) {}

  [[nodiscard]] const Capacity& capacity() const { return capacity_; }
  [[nodiscard]] std::int64_t used_weight() const { return used_weight_; }
  [[nodiscard]] std::int64_t weight_of(GroupKey key) const {
    return capacity_.weight(bytes_.get(key));
  }
  [[nodiscard]] std::int64_t bytes_of(GroupKey key) const { return bytes_.get(key); }
  /// For the policy to call: it has dropped a held group.
  void release(GroupKey key);

  /// A held group is requested.
  virtual void on_hit(GroupKey key) = 0;
  /// A group that is not held is requested or, where `requested` is false, was split off a held
  /// one. Nothing has been evicted for it yet, and it may turn out to be too large to keep.
  virtual void on_newcomer(GroupKey /*key*/, std::int64_t /*weight*/, bool /*requested*/) {}
  /// Whether the newcomer is worth an eviction; otherwise it is not kept.
  [[nodiscard]] virtual bool prefers_newcomer() const { return true; }
  /// The newcomer is held from now on.
  virtual void insert(GroupKey key, std::int64_t weight) = 0;
  /// Drops one of the held groups (calls release).
  virtual void evict() = 0;
  /// A held group has gone without a decision of the policy.
  virtual void remove(GroupKey key) = 0;
  /// A held group has changed; its weight may be the same as before.
  virtual void on_change(GroupKey /*key*/, std::int64_t /*weight*/) {}

 private:
  static constexpr std::int64_t kNotHeld = -1;

  void consider(GroupKey key, std::int64_t bytes, bool requested);

  Capacity capacity_;
  bool paged_by_layer_;
  KeyMap<std::int64_t> bytes_;
  std::int64_t used_bytes_ = 0;
  std::int64_t used_weight_ = 0;
};

/// Registers a policy's class as a part.
template <typename Policy>
[[nodiscard]] std::unique_ptr<Cache> make_cache(const Arguments& arguments,
                                                const Cache::Context& context) {
  return std::make_unique<Policy>(arguments, context);
}

}  // namespace kvreplay
