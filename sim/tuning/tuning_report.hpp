#pragma once

#include <string>
#include <vector>

#include "sim/tuning/tuning.hpp"

namespace kvreplay {

/// evaluated.csv, front.csv: results.csv's columns with those of the search and the parts.
[[nodiscard]] std::string rows_csv(const std::vector<TunedRow>& rows);
/// How each reference compares with what was found.
[[nodiscard]] std::string comparison_csv(const Tuning& tuning);
/// The answer in plain words.
[[nodiscard]] std::string answer_text(const Tuning& tuning,
                                      const std::vector<Validation>& validations);

}  // namespace kvreplay
