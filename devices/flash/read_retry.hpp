#pragma once

#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "devices/flash/parameters.hpp"

namespace kvreplay::flash {

/// Senses that fail error correction and are repeated with other reference voltages: the tail of
/// the read latency. Each attempt fails with the same probability, drawn from a seeded generator.
class ReadRetry {
 public:
  explicit ReadRetry(const Arguments& arguments)
      : chance_(arguments.real("retry_percent") / 100),
        time_(from_us(arguments.real("retry_us"))),
        max_repetitions_(arguments.integer("retry_limit")),
        random_(unsigned_of(arguments, "retry_seed")) {}

  [[nodiscard]] static std::vector<Parameter> parameters() {
    return {
        real_parameter("retry_percent", "%", 0, {0, 100},
                       "share of the senses that fail and are repeated; a repetition fails alike; "
                       "0: none"),
        real_parameter("retry_us", "us", 50, {0, 1e6}, "array time per repetition"),
        integer_parameter("retry_limit", "repetitions", 8, {1, 1000}, "limit per sense"),
        integer_parameter("retry_seed", "", 1, {0, 1e15}, "seed of the draws"),
    };
  }

  /// Array time that the repetitions of the next sense add.
  [[nodiscard]] SimTime extra() {
    if (chance_ == 0) return 0;
    SimTime extra = 0;
    for (std::int64_t i = 0; i < max_repetitions_ && random_.uniform() < chance_; ++i) {
      extra += time_;
    }
    return extra;
  }

 private:
  const double chance_;
  const SimTime time_;
  const std::int64_t max_repetitions_;
  Random random_;
};

}  // namespace kvreplay::flash
