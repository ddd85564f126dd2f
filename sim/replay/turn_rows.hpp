#pragma once

#include <span>

#include "sim/replay/results.hpp"

namespace kvreplay {

/// A row per cell and turn of a conversation: the columns of the results, of the turn alone, and
/// columns of its own. No rows where no cell has turns. Quality is of the turn's answer; the worst
/// layer and the marks are of the cell.
[[nodiscard]] ResultTable turn_rows(std::span<const CellResult> cells);

/// What to print of it.
[[nodiscard]] TableView turn_view();

}  // namespace kvreplay
