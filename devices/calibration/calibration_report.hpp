#pragma once

#include <string>

#include "devices/calibration/calibrate.hpp"

namespace kvreplay {

/// Whether there are points of writes alone that were too few to be fitted.
[[nodiscard]] bool predicts_writes(const Calibration& calibration);

/// What the preset states about itself: what it was fitted to, from which base, and its errors.
[[nodiscard]] std::string calibration_notes(const Calibration& calibration,
                                            const std::string& base);

/// For people: each point, measured and modelled, the errors, and the parameters. `mixing`: that of
/// the burst that determined some of them.
[[nodiscard]] std::string calibration_text(const Calibration& calibration, double mixing);
/// One line per point.
[[nodiscard]] std::string calibration_csv(const Calibration& calibration);

}  // namespace kvreplay
