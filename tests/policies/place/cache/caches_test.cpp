#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "policies/place/cache/cache.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kStreams = 3;

std::unique_ptr<Cache> make_cache(const std::string& json) {
  return PartConfig<Cache>::parse(ConfigNode::parse(json, "test.json")).make({.streams = kStreams});
}

std::string bounded(const std::string& name, const std::string& unit, std::int64_t capacity,
                    const std::string& more = "") {
  return R"({"part": ")" + name + R"(", "capacity_)" + unit + R"(": )" + std::to_string(capacity) +
         more + "}";
}

const std::vector<std::string> kBounded{"fifo",           "lru", "lfu",     "lru_k", "lrfu",
                                        "sieve",          "arc", "s3_fifo", "two_q", "belady",
                                        "cluster_aligned"};

/// Accesses of one group each, one access per step; returns 'h' and 'm'.
std::string replay(Cache& cache, const std::vector<Access>& accesses) {
  if (cache.needs_future()) cache.set_future_accesses(accesses);
  std::string result;
  for (const Access& access : accesses) {
    const bool held = cache.contains(access.key);
    const bool hit = cache.access(access, {});
    EXPECT_EQ(hit, held);
    result += hit ? 'h' : 'm';
    cache.end_step();
  }
  return result;
}

/// Letters are groups of 10 bytes.
std::string replay(const std::string& json, const std::string& letters) {
  std::vector<Access> accesses;
  for (const char letter : letters) accesses.push_back({{0, letter - 'a'}, 10});
  return replay(*make_cache(json), accesses);
}

TEST(Caches, AGroupThatGrowsInTheStepThatReadsItCountsWhole) {
  const std::vector<Token> members{0, 1};
  for (const std::string& json :
       {std::string(R"({"part": "token_blocks", "block_tokens": 8, "capacity_blocks": 4})"),
        bounded("lru", "groups", 4)}) {
    const std::unique_ptr<Cache> cache = make_cache(json);
    EXPECT_FALSE(cache->access({{0, 0}, 20}, members)) << json;
    cache->notify_resize({0, 0}, 30);
    cache->end_step();
    EXPECT_TRUE(cache->contains({0, 0})) << json;
    EXPECT_EQ(cache->used_bytes(), 30) << json;
  }
}

TEST(Caches, KnownSequences) {
  EXPECT_EQ(replay(R"({"part": "none"})", "aab"), "mmm");
  EXPECT_EQ(replay(R"({"part": "resident"})", "aab"), "hhh");
  // a leaves first, although it was just requested.
  EXPECT_EQ(replay(bounded("fifo", "groups", 3), "abcadab"), "mmmhmmm");
  EXPECT_EQ(replay(bounded("lru", "groups", 3), "abcadab"), "mmmhmhm");
  EXPECT_EQ(replay(bounded("lru", "bytes", 39), "abcadab"), "mmmhmhm");
  // b and c are requested once: b, the older one, leaves; then c.
  EXPECT_EQ(replay(bounded("lfu", "groups", 3), "aabcdac"), "mhmmmhh");
  EXPECT_EQ(replay(bounded("lfu", "groups", 3), "aabcdab"), "mhmmmhm");
  // a has a last but one access (time 1). b (3) and c (4) have none, so b leaves for d, and c for
  // e.
  EXPECT_EQ(replay(bounded("lru_k", "groups", 3), "aabcdea"), "mhmmmmh");
  // The history of b outlives its eviction: when b returns, it counts twice, so a (1) leaves
  // instead of b (2).
  EXPECT_EQ(replay(bounded("lru_k", "groups", 2), "abacbdb"), "mmhmmmh");
  EXPECT_EQ(replay(bounded("lrfu", "groups", 3, R"(, "decay": 1)"), "aabcdab"), "mhmmmhm");
  EXPECT_EQ(replay(bounded("lrfu", "groups", 3, R"(, "decay": 0.5)"), "aabcdab"), "mhmmmmm");
  // The hand passes a (visited) and takes b; then c.
  EXPECT_EQ(replay(bounded("sieve", "groups", 3), "abcadaebc"), "mmmhmhmmm");
  // a and b are in the list of frequent groups; c, d and e pass through the list of recent ones.
  EXPECT_EQ(replay(bounded("arc", "groups", 3), "aabbcdeab"), "mhmhmmmhh");
  // d evicts a to the ghosts; a returns to the main queue and outlives e, f, g.
  EXPECT_EQ(replay(bounded("two_q", "groups", 4), "abcdeafghia"), "mmmmmmmmmmh");
  // Of 20, a is hit twice in the small queue, moves to the main one and outlives a scan.
  EXPECT_EQ(replay(bounded("s3_fifo", "groups", 20), "aaabcdefghijklmnopqrstuvwxyza").back(), 'h');
  EXPECT_EQ(replay(bounded("fifo", "groups", 20), "aaabcdefghijklmnopqrstuvwxyza").back(), 'm');
  // With one place, keeping a throughout is best, unless each newcomer must be kept.
  EXPECT_EQ(replay(bounded("belady", "groups", 1), "abaca"), "mmhmh");
  EXPECT_EQ(replay(bounded("belady", "groups", 1, R"(, "always_keep": true)"), "abaca"), "mmmmm");
  EXPECT_EQ(replay(bounded("belady", "groups", 2), "abcabcabc"), "mmmhhmhhm");
}

TEST(Caches, LastStepsKeepsWhatTheLastStepsAskedFor) {
  const std::unique_ptr<Cache> one = make_cache(R"({"part": "last_steps"})");
  const auto step = [](Cache& cache, const std::string& letters) {
    std::string result;
    for (const char letter : letters)
      result += cache.access({{1, letter - 'a'}, 7}, {}) ? 'h' : 'm';
    cache.end_step();
    return result;
  };
  EXPECT_EQ(step(*one, "abc"), "mmm");
  EXPECT_EQ(one->used_bytes(), 21);
  EXPECT_EQ(step(*one, "bd"), "hm");
  EXPECT_EQ(one->used_bytes(), 14);
  EXPECT_EQ(step(*one, "abd"), "mhh");
  EXPECT_EQ(step(*one, ""), "");
  EXPECT_EQ(one->used_bytes(), 0);
  const std::unique_ptr<Cache> two = make_cache(R"({"part": "last_steps", "steps": 2})");
  EXPECT_EQ(step(*two, "abc"), "mmm");
  EXPECT_EQ(step(*two, "bd"), "hm");
  EXPECT_EQ(step(*two, "ad"), "hh");
  EXPECT_EQ(step(*two, "c"), "m");
}

TEST(Caches, ClusterAlignedEvictsLargeOnesButNotTheLatelyUpdated) {
  const std::unique_ptr<Cache> cache = make_cache(bounded("cluster_aligned", "groups", 5));
  for (GroupId group = 0; group < 5; ++group) {
    EXPECT_FALSE(cache->access({{0, group}, 10 * (group + 1)}, {}));
  }
  cache->notify_resize({0, 4}, 60);  // the largest; a fifth of five places is reserved for it
  EXPECT_FALSE(cache->access({{0, 5}, 5}, {}));
  EXPECT_FALSE(cache->contains({0, 3}));
  EXPECT_TRUE(cache->contains({0, 4}));
  cache->notify_resize({0, 0}, 11);  // takes the reserved place
  EXPECT_FALSE(cache->access({{0, 6}, 5}, {}));
  EXPECT_FALSE(cache->contains({0, 4}));
  EXPECT_TRUE(cache->contains({0, 0}));
}

TEST(Caches, ClusterAlignedByStepEvictsTheLargestOfThoseUnusedForLongest) {
  const std::unique_ptr<Cache> cache =
      make_cache(bounded("cluster_aligned", "bytes", 60, R"(, "order": "step")"));
  for (const auto& [group, bytes] : {std::pair(0, 10), std::pair(1, 30), std::pair(2, 20)}) {
    EXPECT_FALSE(cache->access({{0, group}, bytes}, {}));
  }
  cache->end_step();
  EXPECT_TRUE(cache->access({{0, 0}, 10}, {}));
  EXPECT_FALSE(cache->access({{0, 3}, 50}, {})) << "1 and 2 make room, 0 is of this step";
  EXPECT_TRUE(cache->contains({0, 0}));
  EXPECT_EQ(cache->used_bytes(), 60);
  cache->end_step();
  EXPECT_FALSE(cache->access({{0, 4}, 5}, {})) << "of 0 and 3 the larger one goes";
  EXPECT_TRUE(cache->contains({0, 0}));
  EXPECT_FALSE(cache->contains({0, 3}));
}

TEST(Caches, CapacityIsOneOfGroupsAndBytes) {
  for (const std::string& name : kBounded) {
    EXPECT_THAT(user_error_of([&] { (void)make_cache(R"({"part": ")" + name + R"("})"); }),
                HasSubstr("no capacity; allowed: one of"));
    EXPECT_THAT(user_error_of([&] {
                  (void)make_cache(bounded(name, "groups", 4, R"(, "capacity_bytes": 5)"));
                }),
                AllOf(HasSubstr("test.json"), HasSubstr("both capacity_groups")));
  }
}

// --- Slow references: plain vectors, oldest first. -----------------------------------------------

struct Item {
  GroupKey key;
  std::int64_t weight = 0;
  std::int64_t hits = 0;
  std::int64_t used = 0;
};
using Items = std::vector<Item>;

std::int64_t total(const Items& items) {
  std::int64_t weight = 0;
  for (const Item& item : items) weight += item.weight;
  return weight;
}
auto find(Items& items, GroupKey key) {
  return std::find_if(items.begin(), items.end(),
                      [&](const Item& item) { return item.key == key; });
}
bool take(Items& items, GroupKey key) {
  const auto found = find(items, key);
  if (found == items.end()) return false;
  items.erase(found);
  return true;
}
void push_ghost(Items& ghosts, Item item, std::int64_t limit) {
  if (item.weight > limit) return;
  while (total(ghosts) + item.weight > limit) ghosts.erase(ghosts.begin());
  ghosts.push_back(item);
}

class Reference {
 public:
  explicit Reference(std::int64_t limit) : limit_(limit) {}
  virtual ~Reference() = default;
  virtual bool access(GroupKey key, std::int64_t weight) = 0;

 protected:
  std::int64_t limit_;
};

/// One list. A policy decides what a hit does and what to evict.
class ListReference : public Reference {
 public:
  using Reference::Reference;
  bool access(GroupKey key, std::int64_t weight) override {
    ++now_;
    times_[key].push_back(now_);
    if (const auto found = find(items_, key); found != items_.end()) {
      ++found->hits;
      found->used = now_;
      on_hit(found);
      return true;
    }
    if (weight > limit_) return false;
    while (total(items_) + weight > limit_) items_.erase(items_.begin() + victim());
    items_.push_back({key, weight, 0, now_});
    return false;
  }

 protected:
  virtual void on_hit(Items::iterator) {}
  virtual std::ptrdiff_t victim() = 0;
  template <typename Rank>
  std::ptrdiff_t lowest(Rank rank) {
    return std::min_element(items_.begin(), items_.end(),
                            [&](const Item& a, const Item& b) { return rank(a) < rank(b); }) -
           items_.begin();
  }
  Items items_;
  std::int64_t now_ = 0;
  std::map<GroupKey, std::vector<std::int64_t>> times_;
};

struct FifoReference final : ListReference {
  using ListReference::ListReference;
  std::ptrdiff_t victim() override { return 0; }
};
struct LruReference final : ListReference {
  using ListReference::ListReference;
  std::ptrdiff_t victim() override {
    return lowest([](const Item& item) { return item.used; });
  }
};
struct LfuReference final : ListReference {
  using ListReference::ListReference;
  std::ptrdiff_t victim() override {
    return lowest([](const Item& item) { return std::pair(item.hits, item.used); });
  }
};
struct LruKReference final : ListReference {
  using ListReference::ListReference;
  std::ptrdiff_t victim() override {
    return lowest([&](const Item& item) {
      const std::vector<std::int64_t>& times = times_[item.key];
      return std::pair(times.size() < 2 ? 0 : times[times.size() - 2], times.back());
    });
  }
};
struct LrfuReference final : ListReference {  // decay 0.9
  using ListReference::ListReference;
  std::ptrdiff_t victim() override {
    return lowest([&](const Item& item) {
      double worth = 0;
      const std::vector<std::int64_t>& times = times_[item.key];
      for (auto time = times.end() - 1 - item.hits; time != times.end(); ++time) {
        double one = 1;
        for (std::int64_t t = *time; t < now_; ++t) one *= 0.9;
        worth += one;
      }
      return worth;
    });
  }
};
struct SieveReference final : ListReference {
  using ListReference::ListReference;
  std::ptrdiff_t victim() override {
    if (hand_ < 0 || hand_ >= std::ssize(items_)) hand_ = 0;
    while (items_[static_cast<std::size_t>(hand_)].hits > 0) {
      items_[static_cast<std::size_t>(hand_)].hits = 0;
      hand_ = (hand_ + 1) % std::ssize(items_);
    }
    // After the erasure, the next one is at the place of this one. At the newest, the hand starts
    // again, even if newcomers arrive meanwhile.
    const std::ptrdiff_t gone = hand_;
    if (gone + 1 == std::ssize(items_)) hand_ = -1;
    return gone;
  }
  std::ptrdiff_t hand_ = -1;
};
struct ClusterAlignedReference final : ListReference {  // nothing is updated
  using ListReference::ListReference;
  std::ptrdiff_t victim() override {
    return lowest([](const Item& item) { return std::pair(-item.weight, item.used); });
  }
};

class S3FifoReference final : public Reference {
 public:
  explicit S3FifoReference(std::int64_t limit)
      : Reference(limit),
        small_limit_(std::max<std::int64_t>(1, limit / 10)),
        ghost_limit_(limit * 9 / 10) {}
  bool access(GroupKey key, std::int64_t weight) override {
    for (Items* items : {&small_, &main_}) {
      if (const auto found = find(*items, key); found != items->end()) {
        ++found->hits;
        return true;
      }
    }
    const bool ghost = take(ghosts_, key);
    if (weight > limit_) return false;
    while (total(small_) + total(main_) + weight > limit_) {
      full_ = true;
      if (total(main_) > limit_ - small_limit_ || small_.empty()) {
        Item item = main_.front();
        main_.erase(main_.begin());
        if (item.hits > 0) {
          item.hits = std::min<std::int64_t>(item.hits, 3) - 1;
          main_.push_back(item);
          // The main queue is searched until one group has left.
          while (main_.front().hits > 0) {
            Item next = main_.front();
            main_.erase(main_.begin());
            next.hits = std::min<std::int64_t>(next.hits, 3) - 1;
            main_.push_back(next);
          }
          main_.erase(main_.begin());
        }
      } else {
        bool gone = false;
        while (!gone && !small_.empty()) {
          Item item = small_.front();
          small_.erase(small_.begin());
          gone = item.hits < 2;
          item.hits = 0;
          if (gone) {
            push_ghost(ghosts_, item, ghost_limit_);
          } else {
            main_.push_back(item);
          }
        }
      }
    }
    const bool to_main = ghost || (!full_ && total(small_) >= small_limit_);
    (to_main ? main_ : small_).push_back({key, weight});
    return false;
  }

 private:
  std::int64_t small_limit_;
  std::int64_t ghost_limit_;
  bool full_ = false;
  Items small_, main_, ghosts_;
};

class TwoQReference final : public Reference {
 public:
  using Reference::Reference;
  bool access(GroupKey key, std::int64_t weight) override {
    if (find(in_, key) != in_.end()) return true;
    if (const auto found = find(main_, key); found != main_.end()) {
      std::rotate(found, found + 1, main_.end());
      return true;
    }
    const bool ghost = take(ghosts_, key);
    if (weight > limit_) return false;
    while (total(in_) + total(main_) + weight > limit_) {
      if (total(in_) > limit_ / 4 || main_.empty()) {
        push_ghost(ghosts_, in_.front(), limit_ / 2);
        in_.erase(in_.begin());
      } else {
        main_.erase(main_.begin());
      }
    }
    while (ghost && !main_.empty() && total(main_) + weight > limit_ - limit_ / 4) {
      main_.erase(main_.begin());
    }
    (ghost ? main_ : in_).push_back({key, weight});
    return false;
  }

 private:
  Items in_, main_, ghosts_;
};

/// Figure 4 of the ARC paper, case by case; for groups of weight 1.
class ArcReference final : public Reference {
 public:
  using Reference::Reference;
  bool access(GroupKey key, std::int64_t weight) override {
    const Item item{key, weight};
    if (take(t1_, key) || take(t2_, key)) {
      t2_.push_back(item);
      return true;
    }
    const auto c = static_cast<std::size_t>(limit_);
    const auto ratio = [](const Items& a, const Items& b) {
      return std::max(static_cast<double>(a.size()) / static_cast<double>(b.size()), 1.0);
    };
    if (find(b1_, key) != b1_.end()) {
      p_ = std::min(p_ + ratio(b2_, b1_), static_cast<double>(limit_));
      replace(false);
      take(b1_, key);
      t2_.push_back(item);
    } else if (find(b2_, key) != b2_.end()) {
      p_ = std::max(p_ - ratio(b1_, b2_), 0.0);
      replace(true);
      take(b2_, key);
      t2_.push_back(item);
    } else {
      if (t1_.size() + b1_.size() == c) {
        if (t1_.size() < c) {
          b1_.erase(b1_.begin());
          replace(false);
        } else {
          t1_.erase(t1_.begin());
        }
      } else if (t1_.size() + t2_.size() + b1_.size() + b2_.size() >= c) {
        if (t1_.size() + t2_.size() + b1_.size() + b2_.size() == 2 * c) b2_.erase(b2_.begin());
        replace(false);
      }
      t1_.push_back(item);
    }
    return false;
  }

 private:
  void replace(bool in_b2) {
    const auto size = static_cast<double>(t1_.size());
    const bool first = !t1_.empty() && (size > p_ || (in_b2 && size == p_));
    Items& from = first ? t1_ : t2_;
    (first ? b1_ : b2_).push_back(from.front());
    from.erase(from.begin());
  }
  double p_ = 0;
  Items t1_, t2_, b1_, b2_;
};

std::unique_ptr<Reference> make_reference(const std::string& name, std::int64_t limit) {
  if (name == "fifo") return std::make_unique<FifoReference>(limit);
  if (name == "lru") return std::make_unique<LruReference>(limit);
  if (name == "lfu") return std::make_unique<LfuReference>(limit);
  if (name == "lru_k") return std::make_unique<LruKReference>(limit);
  if (name == "lrfu") return std::make_unique<LrfuReference>(limit);
  if (name == "sieve") return std::make_unique<SieveReference>(limit);
  if (name == "cluster_aligned") return std::make_unique<ClusterAlignedReference>(limit);
  if (name == "s3_fifo") return std::make_unique<S3FifoReference>(limit);
  if (name == "two_q") return std::make_unique<TwoQReference>(limit);
  if (name == "arc") return std::make_unique<ArcReference>(limit);
  return nullptr;
}

/// Accesses of a few groups often and many rarely, with an occasional loop; sizes by group.
std::vector<Access> random_accesses(Random& random, std::int64_t max_bytes) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(kStreams) * 64);
  for (std::int64_t& size : bytes) {
    size = 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(max_bytes)));
  }
  std::vector<Access> accesses;
  const auto add = [&](std::uint64_t which) {
    const auto stream = static_cast<std::int32_t>(which % kStreams);
    const auto group = static_cast<GroupId>(which / kStreams);
    accesses.push_back({{stream, group}, bytes[which]});
  };
  while (accesses.size() < 600) {
    if (random.below(40) == 0) {
      const std::uint64_t length = 1 + random.below(40);
      for (std::uint64_t i = 0; i < 2 * length; ++i) add(i % length);
    } else {
      add(random.below(1 + random.below(bytes.size())));
    }
  }
  return accesses;
}

class EachCache : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Caches, EachCache, testing::ValuesIn(kBounded),
                         [](const auto& name) { return name.param; });

class EachOnline : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Caches, EachOnline,
                         testing::Values("fifo", "lru", "lfu", "lru_k", "lrfu", "sieve", "arc",
                                         "s3_fifo", "two_q", "cluster_aligned"),
                         [](const auto& name) { return name.param; });

TEST_P(EachOnline, DoesWhatTheReferenceDoes) {
  Random random(1);
  std::int64_t hits = 0;
  const std::string more = GetParam() == "lrfu" ? R"(, "decay": 0.9)" : "";
  for (int trial = 0; trial < 60; ++trial) {
    const bool in_groups = GetParam() == "arc" || trial % 2 == 0;
    const auto capacity =
        static_cast<std::int64_t>(in_groups ? 1 + random.below(60) : 20 + random.below(2000));
    const std::unique_ptr<Reference> reference = make_reference(GetParam(), capacity);
    const std::vector<Access> accesses = random_accesses(random, in_groups ? 1 : 60);
    std::string expected;
    for (const Access& access : accesses) {
      expected += reference->access(access.key, in_groups ? 1 : access.bytes) ? 'h' : 'm';
    }
    const std::string unit = in_groups ? "groups" : "bytes";
    EXPECT_EQ(replay(*make_cache(bounded(GetParam(), unit, capacity, more)), accesses), expected)
        << unit << " " << capacity;
    hits += std::count(expected.begin(), expected.end(), 'h');
  }
  EXPECT_GT(hits, 0);
}

TEST_P(EachCache, NeverExceedsItsCapacityWhateverHappens) {
  Random random(2);
  for (int trial = 0; trial < 40; ++trial) {
    const bool in_groups = trial % 2 == 0;
    const auto capacity = static_cast<std::int64_t>(1 + random.below(in_groups ? 12 : 300));
    const std::unique_ptr<Cache> cache =
        make_cache(bounded(GetParam(), in_groups ? "groups" : "bytes", capacity));
    // The script comes first, so that an oracle can be given it; then the cache plays it.
    enum class Kind { kAccess, kResize, kSplit, kErase };
    struct Act {
      Kind kind;
      GroupKey key;
      GroupKey other;
      std::int64_t bytes;
      std::int64_t other_bytes;
    };
    std::vector<Act> acts;
    std::vector<Access> accesses;
    std::map<GroupKey, std::int64_t> live;
    GroupId next = 0;
    for (int i = 0; i < 400; ++i) {
      const auto stream = static_cast<std::int32_t>(random.below(kStreams));
      if (live.size() < 5 || random.below(20) == 0) {
        live[{stream, next++}] = 1 + static_cast<std::int64_t>(random.below(60));
      }
      auto at = live.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(random.below(live.size())));
      const std::uint64_t choice = random.below(10);
      if (choice < 6) {
        acts.push_back({Kind::kAccess, at->first, {}, at->second, 0});
        accesses.push_back({at->first, at->second});
      } else if (choice < 8) {
        at->second = 1 + static_cast<std::int64_t>(random.below(90));
        acts.push_back({Kind::kResize, at->first, {}, at->second, 0});
      } else if (choice == 8 && at->second > 1) {
        const std::int64_t bytes = at->second / 2;
        at->second -= bytes;
        const GroupKey other{at->first.stream, next++};
        acts.push_back({Kind::kSplit, at->first, other, at->second, bytes});
        live[other] = bytes;
      } else {
        acts.push_back({Kind::kErase, at->first, {}, 0, 0});
        live.erase(at);
      }
    }
    if (cache->needs_future()) cache->set_future_accesses(accesses);
    std::map<GroupKey, std::int64_t> sizes;
    bool used = false;
    for (const Act& act : acts) {
      switch (act.kind) {
        case Kind::kAccess:
          (void)cache->access({act.key, act.bytes}, {});
          break;
        case Kind::kResize:
          cache->notify_resize(act.key, act.bytes);
          break;
        case Kind::kSplit: {
          const bool held = cache->contains(act.key);
          cache->notify_resize(act.key, act.bytes);
          cache->notify_split(act.other, act.key, act.other_bytes);
          EXPECT_TRUE(held || !cache->contains(act.other));
          sizes[act.other] = act.other_bytes;
          break;
        }
        case Kind::kErase:
          cache->erase(act.key);
          EXPECT_FALSE(cache->contains(act.key));
          break;
      }
      if (act.kind != Kind::kErase) sizes[act.key] = act.bytes;
      std::int64_t held = 0;
      std::int64_t held_bytes = 0;
      for (const auto& [key, bytes] : sizes) {
        if (!cache->contains(key)) continue;
        ++held;
        held_bytes += bytes;
      }
      EXPECT_EQ(cache->used_bytes(), held_bytes);
      EXPECT_LE(in_groups ? held : held_bytes, capacity);
      used |= held > 0;
    }
    EXPECT_TRUE(used);
  }
}

TEST_P(EachCache, ReadsOnceWhatFits) {
  Random random(3);
  const std::vector<Access> accesses = random_accesses(random, 50);
  std::map<GroupKey, int> seen;
  std::string expected;
  for (const Access& access : accesses) expected += seen[access.key]++ > 0 ? 'h' : 'm';
  EXPECT_EQ(replay(*make_cache(bounded(GetParam(), "bytes", 1 << 30)), accesses), expected);
}

TEST_P(EachCache, DoesNotBeatBelady) {
  Random random(4);
  for (int trial = 0; trial < 60; ++trial) {
    const auto capacity = static_cast<std::int64_t>(1 + random.below(50));
    const std::vector<Access> accesses = random_accesses(random, 1);
    const auto misses = [&](const std::string& name) {
      const std::string result = replay(*make_cache(bounded(name, "groups", capacity)), accesses);
      return std::count(result.begin(), result.end(), 'm');
    };
    EXPECT_LE(misses("belady"), misses(GetParam()));
  }
}

/// The minimum misses of any demand cache, by trying everything.
int min_misses(const std::vector<int>& groups, std::size_t at, std::vector<int> held,
               std::size_t capacity) {
  if (at == groups.size()) return 0;
  const int group = groups[at];
  if (std::find(held.begin(), held.end(), group) != held.end()) {
    return min_misses(groups, at + 1, held, capacity);
  }
  int min = min_misses(groups, at + 1, held, capacity);
  if (held.size() < capacity) {
    held.push_back(group);
    return 1 + std::min(min, min_misses(groups, at + 1, held, capacity));
  }
  for (std::size_t i = 0; i < held.size(); ++i) {
    std::vector<int> other = held;
    other[i] = group;
    min = std::min(min, min_misses(groups, at + 1, other, capacity));
  }
  return 1 + min;
}

TEST(Caches, BeladyIsOptimal) {
  Random random(5);
  for (int trial = 0; trial < 100; ++trial) {
    const std::size_t capacity = 1 + random.below(3);
    std::vector<int> groups;
    std::vector<Access> accesses;
    for (int i = 0; i < 11; ++i) {
      groups.push_back(static_cast<int>(random.below(5)));
      accesses.push_back({{0, groups.back()}, 1});
    }
    const std::string result = replay(
        *make_cache(bounded("belady", "groups", static_cast<std::int64_t>(capacity))), accesses);
    EXPECT_EQ(std::count(result.begin(), result.end(), 'm'), min_misses(groups, 0, {}, capacity));
  }
}

}  // namespace
}  // namespace kvreplay
