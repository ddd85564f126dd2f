#include "policies/place/cache/support/bounded.hpp"

#include <cassert>
#include <iterator>

namespace kvreplay {

std::vector<Parameter> capacity_and(std::vector<Parameter> others) {
  constexpr double kMax = 1e15;
  std::vector<Parameter> parameters{
      integer_parameter("capacity_groups", "groups", 0, {0, kMax},
                        "groups held per layer, over all its streams; 0 = by capacity_bytes"),
      integer_parameter("capacity_bytes", "bytes", 0, {0, kMax},
                        "bytes held per layer, over all its streams; 0 = by capacity_groups"),
      flag_parameter("paged_by_layer", false,
                     "DRAM holds one layer's groups at a time (DynaKV's virtual cache), which are "
                     "read again at each step; needs a pipeline that does so"),
  };
  parameters.insert(parameters.end(), std::make_move_iterator(others.begin()),
                    std::make_move_iterator(others.end()));
  return parameters;
}

Capacity::Capacity(const Arguments& arguments) {
  const std::int64_t groups = arguments.integer("capacity_groups");
  const std::int64_t bytes = arguments.integer("capacity_bytes");
  if ((groups > 0) == (bytes > 0)) {
    throw UserError(arguments.place("capacity_groups"),
                    groups > 0 ? "both capacity_groups and capacity_bytes" : "no capacity",
                    "one of capacity_groups and capacity_bytes above 0");
  }
  in_groups = groups > 0;
  limit = in_groups ? groups : bytes;
}

bool BoundedCache::access(const Access& access, std::span<const Token> /*members*/) {
  assert(access.bytes > 0);
  if (contains(access.key)) {
    assert(bytes_.get(access.key) == access.bytes);
    on_hit(access.key);
    return true;
  }
  consider(access.key, access.bytes, true);
  return false;
}

void BoundedCache::notify_resize(GroupKey key, std::int64_t bytes) {
  if (!contains(key)) return;
  used_weight_ += capacity_.weight(bytes) - weight_of(key);
  used_bytes_ += bytes - bytes_.get(key);
  bytes_.set(key, bytes);
  on_change(key, capacity_.weight(bytes));
  while (used_weight_ > capacity_.limit) evict();
}

void BoundedCache::notify_split(GroupKey key, GroupKey from, std::int64_t bytes) {
  if (contains(from)) consider(key, bytes, false);
}

void BoundedCache::erase(GroupKey key) {
  if (!contains(key)) return;
  remove(key);
  release(key);
}

void BoundedCache::release(GroupKey key) {
  used_weight_ -= weight_of(key);
  used_bytes_ -= bytes_.get(key);
  bytes_.set(key, kNotHeld);
}

void BoundedCache::consider(GroupKey key, std::int64_t bytes, bool requested) {
  const std::int64_t weight = capacity_.weight(bytes);
  on_newcomer(key, weight, requested);
  if (weight > capacity_.limit) return;
  while (used_weight_ + weight > capacity_.limit) {
    if (!prefers_newcomer()) return;
    evict();
  }
  bytes_.set(key, bytes);
  used_bytes_ += bytes;
  used_weight_ += weight;
  insert(key, weight);
}

}  // namespace kvreplay
