#pragma once

#include <cstdint>
#include <vector>

#include "base/integer_power.hpp"
#include "devices/flash/parameters.hpp"

namespace kvreplay::flash {

/// One temperature: every byte moved raises it, and it falls towards the ambient temperature in
/// proportion to the difference. From reaching the throttle temperature until it has fallen to the
/// resume temperature, transfers are slower.
class Thermal {
 public:
  explicit Thermal(const Arguments& arguments)
      : throttled_share_(arguments.real("thermal_rate_percent") / 100),
        ambient_c_(arguments.real("thermal_ambient_c")),
        throttle_c_(arguments.real("thermal_throttle_c")),
        resume_c_(arguments.real("thermal_resume_c")),
        c_per_byte_(arguments.real("thermal_c_per_gb") * 1e-9),
        tick_(from_us(arguments.real("thermal_time_constant_s") * 1e6 / kTicks)),
        above_ambient_c_(arguments.real("thermal_start_c") - ambient_c_) {
    if (resume_c_ > throttle_c_) {
      throw bad_value(arguments, "thermal_resume_c",
                      "at most thermal_throttle_c = " + to_text(Value(throttle_c_)));
    }
    compare();
  }

  [[nodiscard]] static std::vector<Parameter> parameters() {
    return {
        real_parameter("thermal_rate_percent", "%", 100, {1, 100},
                       "rate of channels and link while the device is too hot; 100: no throttle"),
        real_parameter("thermal_throttle_c", "C", 70, {-50, 150},
                       "throttling begins at this temperature"),
        real_parameter("thermal_resume_c", "C", 65, {-50, 150},
                       "throttling ends when the device has cooled to this"),
        real_parameter("thermal_start_c", "C", 30, {-50, 150}, "temperature at the start"),
        real_parameter("thermal_ambient_c", "C", 30, {-50, 150},
                       "temperature at which the idle device settles"),
        real_parameter("thermal_c_per_gb", "C/GB", 0.1, {0, 1000},
                       "temperature rise per 10^9 bytes that cross the link"),
        real_parameter("thermal_time_constant_s", "s", 300, {0.001, 1e6},
                       "time in which the difference to the ambient temperature falls to 1/e"),
    };
  }

  [[nodiscard]] bool enabled() const { return throttled_share_ < 1; }

  /// The rate (MB/s) that remains of the given one now.
  [[nodiscard]] double rate(double mb_s) const {
    return throttled_ ? mb_s * throttled_share_ : mb_s;
  }

  /// `bytes` have crossed the link by `now`, which never decreases.
  void heat(std::uint64_t bytes, SimTime now) {
    const auto ticks = static_cast<std::uint64_t>((now - cooled_to_) / tick_);
    cooled_to_ += static_cast<SimTime>(ticks) * tick_;
    above_ambient_c_ = above_ambient_c_ * integer_power(1 - 1.0 / kTicks, ticks) +
                       static_cast<double>(bytes) * c_per_byte_;
    compare();
  }

  [[nodiscard]] double temperature_c() const { return ambient_c_ + above_ambient_c_; }

 private:
  static constexpr double kTicks = 1024;  ///< per time constant: an error of 0.05 % in it

  void compare() {
    if (!enabled()) return;
    if (temperature_c() >= throttle_c_) {
      throttled_ = true;
    } else if (temperature_c() <= resume_c_) {
      throttled_ = false;
    }
  }

  const double throttled_share_;
  const double ambient_c_;
  const double throttle_c_;
  const double resume_c_;
  const double c_per_byte_;
  const SimTime tick_;
  double above_ambient_c_;
  SimTime cooled_to_ = 0;
  bool throttled_ = false;
};

}  // namespace kvreplay::flash
