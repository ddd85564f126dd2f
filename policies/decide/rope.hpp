#pragma once

#include <cmath>
#include <cstdint>

namespace kvreplay {

/// Rotary position embedding: pair i of a row is rotated by position * theta^(-2 i / dim).
struct Rope {
  double theta = 0;          ///< 0 = unknown
  bool interleaved = false;  ///< pairs (2i, 2i + 1), otherwise (i, i + dim / 2)

  /// Rotates the row to `position`; a negative position rotates it back.
  void rotate(float* row, std::int64_t dim, std::int64_t position) const {
    const std::int64_t pairs = dim / 2;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(dim);
      const double angle = static_cast<double>(position) * std::pow(theta, exponent);
      float& first = row[interleaved ? 2 * i : i];
      float& second = row[interleaved ? 2 * i + 1 : i + pairs];
      const double cosine = std::cos(angle);
      const double sine = std::sin(angle);
      const auto x = static_cast<double>(first);
      const auto y = static_cast<double>(second);
      first = static_cast<float>(x * cosine - y * sine);
      second = static_cast<float>(x * sine + y * cosine);
    }
  }
};

}  // namespace kvreplay
