#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "base/half.hpp"
#include "base/random.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay::kernels {

/// Sizes around the multiples of the vector width, where remainders go wrong.
inline constexpr std::int64_t kAwkwardSizes[] = {1,  2,  3,  5,  7,  8,  9,   15,  16, 17,
                                                 31, 33, 63, 64, 65, 80, 100, 128, 129};

/// Uses an instruction set until the end of the scope.
class WithIsa {
 public:
  explicit WithIsa(Isa isa) : before_(current_isa()) { use_isa(isa); }
  ~WithIsa() { use_isa(before_); }
  WithIsa(const WithIsa&) = delete;
  WithIsa& operator=(const WithIsa&) = delete;

 private:
  Isa before_;
};

/// Roughly normal: mean `mean`, standard deviation 1.
inline float random_float(Random& random, double mean = 0.0) {
  double sum = 0.0;
  for (int i = 0; i < 12; ++i) sum += random.uniform();
  return static_cast<float>(sum - 6.0 + mean);
}

inline std::vector<float> random_floats(std::int64_t n, std::uint64_t seed, double mean = 0.0) {
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) value = random_float(random, mean);
  return values;
}

inline std::vector<Half> random_halves(std::int64_t n, std::uint64_t seed, double mean = 0.0) {
  Random random(seed);
  std::vector<Half> values(static_cast<std::size_t>(n));
  for (Half& value : values) value = kvreplay::to_half(random_float(random, mean));
  return values;
}

inline std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

inline std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace kvreplay::kernels
