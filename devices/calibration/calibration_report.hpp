#pragma once

#include <string>

#include "devices/calibration/calibrate.hpp"

namespace kvreplay {

/// Whether there are points of writes alone that were too few to be fitted.
[[nodiscard]] bool predicts_writes(const Calibration& calibration);

/// What the preset says of itself: what it was fitted to, from which base on, and its errors.
[[nodiscard]] std::string calibration_notes(const Calibration& calibration,
                                            const std::string& base);

/// To be read: each point, measured and modelled, the errors, and the parameters. `mixing`: of the
/// burst that told some of them.
[[nodiscard]] std::string calibration_text(const Calibration& calibration, double mixing);
/// A line for each point.
[[nodiscard]] std::string calibration_csv(const Calibration& calibration);

}  // namespace kvreplay
