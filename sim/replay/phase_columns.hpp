#pragma once

#include <vector>

#include "sim/replay/results.hpp"

namespace kvreplay {

/// Columns of the prefill, of wear and of single commands, which follow the others.
[[nodiscard]] std::vector<Column<CellResult>> phase_columns();

/// A line for the user about each device that some systems wear out in under kMinYears, without
/// "kvreplay: warning: ".
[[nodiscard]] std::vector<std::string> wear_lines(std::span<const CellResult> cells);

}  // namespace kvreplay
