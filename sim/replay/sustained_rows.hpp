#pragma once

#include <span>

#include "sim/replay/results.hpp"

namespace kvreplay {

/// A row per cell and interval of its long run (docs/prefill-and-wear.md): what the cell is of, and
/// columns of its own. `cells` are not empty.
[[nodiscard]] ResultTable sustained_rows(std::span<const CellResult> cells);

}  // namespace kvreplay
