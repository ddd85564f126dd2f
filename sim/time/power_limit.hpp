#pragma once

#include <cstdint>

#include "base/engine/simulation.hpp"
#include "sim/time/platform.hpp"

namespace kvreplay {

/// What a processor's power limit makes of its computations. The mean power follows the power with
/// a time constant: while it is at least the sustained power, kernels run at the throttled rate and
/// the processor takes the sustained power. Both are decided once per 1/1024 of the time constant.
class PowerLimit {
 public:
  explicit PowerLimit(const PlatformSpec& platform);

  /// Whether there is a limit. Without one, nothing takes longer, and the mean is not followed.
  [[nodiscard]] bool enabled() const { return rate_ < 1; }

  /// How long a computation takes that would take `ns` at the full rate. `begin` never lies before
  /// the end of the one before; between the two, the processor waited.
  [[nodiscard]] SimTime compute(SimTime begin, SimTime ns);

  /// Until `now` the processor has been off.
  void rest(SimTime now) { advance(now, 0); }

  /// At the time until which it is known.
  [[nodiscard]] double mean_w() const { return mean_w_; }
  /// Time computed at the throttled rate.
  [[nodiscard]] SimTime throttled_ns() const { return throttled_ns_; }

 private:
  static constexpr std::int64_t kTicks = 1024;

  /// The processor takes that power until `to`.
  void advance(SimTime to, double power_w);

  double rate_;  ///< share of the full rate while throttled
  double compute_w_;
  double waiting_w_;
  double sustained_w_;
  SimTime tick_;
  double mean_w_ = 0;
  SimTime at_ = 0;
  SimTime tick_begin_ = 0;
  double of_tick_ = 0;  ///< W ns, since tick_begin_
  SimTime throttled_ns_ = 0;
};

}  // namespace kvreplay
