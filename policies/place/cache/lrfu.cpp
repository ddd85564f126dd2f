#include "policies/place/cache/support/bounded.hpp"
#include "policies/place/cache/support/ranking.hpp"

namespace kvreplay {
namespace {

/// Combined recency and frequency: each access counts decay^age, where age is counted in accesses
/// to the cache. `value` is the sum at `time`.
struct Worth {
  double value = 0;
  std::int64_t time = 0;
};

/// By squaring, which gives the same bits everywhere. The C library's pow does not promise that.
double power(double base, std::int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

struct WorthLess {
  double decay;

  /// Compares both at the later of the two times. Where both have faded to 0, the older one is
  /// less.
  bool operator()(const Worth& a, const Worth& b) const {
    if (a.time <= b.time) {
      const double faded = a.value * power(decay, b.time - a.time);
      return faded < b.value || (faded == b.value && a.time < b.time);
    }
    return a.value < b.value * power(decay, a.time - b.time);
  }
};

class Lrfu final : public BoundedCache {
 public:
  Lrfu(const Arguments& arguments, const Context& context)
      : BoundedCache(arguments, context),
        decay_(arguments.real("decay")),
        ranking_(context.streams, WorthLess{decay_}) {}

 private:
  void on_hit(GroupKey key) override {
    ++now_;
    const Worth& before = ranking_.rank(key);
    ranking_.update(key, {1 + before.value * power(decay_, now_ - before.time), now_});
  }
  void insert(GroupKey key, std::int64_t) override { ranking_.insert(key, {1, ++now_}); }
  void evict() override { release(ranking_.pop()); }
  void remove(GroupKey key) override { ranking_.erase(key); }

  double decay_;
  std::int64_t now_ = 0;
  GroupRanking<Worth, WorthLess> ranking_;
};

const Registered<Cache> kLrfu({
    .name = "lrfu",
    .help = "evicts the lowest sum of accesses, which fade with age: between LRU and LFU",
    .source = "Lee et al., IEEE Trans. Computers 50(12), 2001; decay = 2^-lambda",
    .parameters = capacity_and({real_parameter(
        "decay", "", 0.999, {0, 1},
        "factor on an access's weight at each later access; 1 = LFU, 0.5 and less = LRU")}),
    .make = make_cache<Lrfu>,
});

}  // namespace
}  // namespace kvreplay
