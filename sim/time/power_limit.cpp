#include "sim/time/power_limit.hpp"

#include <algorithm>
#include <cmath>

#include "base/integer_power.hpp"

namespace kvreplay {

PowerLimit::PowerLimit(const PlatformSpec& platform)
    : rate_(platform.throttled_rate),
      compute_w_(platform.compute_power_w),
      waiting_w_(platform.waiting_power_w),
      sustained_w_(platform.sustained_power_w),
      tick_(std::max<SimTime>(1, platform.power_time_constant_ns / kTicks)) {}

SimTime PowerLimit::compute(SimTime begin, SimTime ns) {
  if (!enabled()) return ns;
  advance(begin, waiting_w_);
  auto left = static_cast<double>(ns);  // at the full rate
  while (left > 0) {
    const bool throttled = mean_w_ >= sustained_w_;
    const double rate = throttled ? rate_ : 1;
    const SimTime to_tick = tick_begin_ + tick_ - at_;
    const auto needed = static_cast<SimTime>(std::ceil(left / rate));
    const SimTime slice = std::min(needed, to_tick);
    left = slice == needed ? 0 : left - rate * static_cast<double>(slice);
    if (throttled) throttled_ns_ += slice;
    advance(at_ + slice, throttled ? sustained_w_ : compute_w_);
  }
  return at_ - begin;
}

void PowerLimit::advance(SimTime to, double power_w) {
  if (!enabled()) return;
  constexpr double kKept = 1 - 1.0 / kTicks;
  const auto fill = [&](SimTime until) {
    of_tick_ += power_w * static_cast<double>(until - at_);
    at_ = until;
  };
  if (to >= tick_begin_ + tick_) {
    fill(tick_begin_ + tick_);
    mean_w_ = mean_w_ * kKept + of_tick_ / static_cast<double>(tick_) / kTicks;
    const SimTime whole = (to - at_) / tick_;
    mean_w_ =
        power_w + (mean_w_ - power_w) * integer_power(kKept, static_cast<std::uint64_t>(whole));
    at_ += whole * tick_;
    tick_begin_ = at_;
    of_tick_ = 0;
  }
  fill(to);
}

}  // namespace kvreplay
