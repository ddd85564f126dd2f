#include "policies/place/cache/follow_event.hpp"

namespace kvreplay {
namespace {

/// A group of which tokens have left.
void resize_or_erase(Cache& cache, GroupKey key, const StoredStream& stored) {
  if (stored.groups().live(key.group)) {
    cache.notify_resize(key, stored.group_bytes(key.group));
  } else {
    cache.erase(key);
  }
}

}  // namespace

void follow_event(Cache& cache, std::int32_t s, const GroupEvent& event,
                  const StoredStream& stored) {
  const GroupKey key{s, event.group};
  switch (event.kind) {
    case EventKind::kAppended:
      cache.notify_resize(key, stored.group_bytes(event.group));
      break;
    case EventKind::kSplit:
      resize_or_erase(cache, key, stored);
      cache.notify_split({s, event.other}, key, stored.group_bytes(event.other));
      break;
    case EventKind::kEvicted:
      if (event.group != kNoGroup) resize_or_erase(cache, key, stored);
      break;
    case EventKind::kDissolved:
      cache.erase(key);
      break;
    case EventKind::kReencoded:
      for (const GroupId group : stored.groups().groups_of(event.tokens)) {
        cache.notify_resize({s, group}, stored.group_bytes(group));
      }
      break;
    case EventKind::kCreated:
    case EventKind::kBuffered:
    case EventKind::kSealed:
    case EventKind::kLoaded:
      break;
  }
}

}  // namespace kvreplay
