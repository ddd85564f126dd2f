#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "policies/decide/precision/support/token_features.hpp"

namespace kvreplay {

/// The bit-width controller: a perceptron with two hidden layers of 128 rectified units, from a
/// token's features to one of kWidths. (Don't Waste Bits, Eq. 18-23)
struct Controller {
  static constexpr std::int64_t kInputs = TokenFeatures::kCount;
  static constexpr std::int64_t kHidden = 128;
  static constexpr std::int64_t kClasses = 4;
  static constexpr std::int64_t kParameters =
      kHidden * kInputs + kHidden + kHidden * kHidden + kHidden + kClasses * kHidden + kClasses;
  using Features = std::array<double, kInputs>;

  /// Features are standardised: (x - mean) / deviation.
  Features mean{};
  Features deviation{1, 1, 1, 1};
  /// W1 [hidden, inputs], b1, W2 [hidden, hidden], b2, W3 [classes, hidden], b3; row-major. Stored
  /// in single precision.
  std::vector<double> parameters;
  std::int64_t group_channels = 32;  ///< of the quantiser that the controller was trained for

  [[nodiscard]] Features standardised(const Features& features) const;
  /// The most probable class; the narrowest of equally probable ones.
  [[nodiscard]] int choose(const Features& features) const;

  /// `training`: JSON text that says how the controller was trained, stored with it.
  void save(const std::string& file, const std::string& training) const;
  [[nodiscard]] static Controller load(const std::string& file);
};

}  // namespace kvreplay
