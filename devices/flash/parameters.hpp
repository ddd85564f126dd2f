#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "base/engine/simulation.hpp"
#include "base/error.hpp"
#include "base/parameters.hpp"

namespace kvreplay::flash {

constexpr double kMiB = 1024 * 1024;

[[nodiscard]] inline SimTime from_us(double microseconds) {
  return std::llround(microseconds * 1000);
}

/// Rounded up, so that no server ever exceeds its rate. MB/s = 10^6 bytes per second.
[[nodiscard]] inline SimTime transfer_time(std::uint64_t bytes, double mb_s) {
  return static_cast<SimTime>(std::ceil(static_cast<double>(bytes) * 1000 / mb_s));
}

/// transfer_time() of sizes and rates that seldom change from one transfer to the next.
class TransferTime {
 public:
  [[nodiscard]] SimTime of(std::uint64_t bytes, double mb_s) {
    if (bytes != bytes_ || mb_s != mb_s_) {
      bytes_ = bytes;
      mb_s_ = mb_s;
      time_ = transfer_time(bytes, mb_s);
    }
    return time_;
  }

 private:
  std::uint64_t bytes_ = 0;
  double mb_s_ = 0;
  SimTime time_ = 0;
};

[[nodiscard]] inline std::uint64_t unsigned_of(const Arguments& arguments, const char* name) {
  return static_cast<std::uint64_t>(arguments.integer(name));
}

[[nodiscard]] inline UserError bad_value(const Arguments& arguments, const char* name,
                                         const std::string& allowed) {
  return {arguments.place(name), "found " + to_text(arguments.all().find(name)->second.value),
          allowed};
}

/// UserError where a size is no multiple of another.
inline void check_multiple(const Arguments& arguments, const char* name, const char* divisor_name) {
  const std::int64_t divisor = arguments.integer(divisor_name);
  if (arguments.integer(name) % divisor != 0) {
    throw bad_value(arguments, name,
                    std::string("a multiple of ") + divisor_name + " = " + std::to_string(divisor));
  }
}

/// The value for writes; where the argument is 0, that of any command.
[[nodiscard]] inline double of_write(const Arguments& arguments, const char* name,
                                     const char* of_any) {
  const double value = arguments.real(name);
  return value > 0 ? value : arguments.real(of_any);
}

}  // namespace kvreplay::flash
