#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kvreplay {

/// One column of a table for people.
struct FittedColumn {
  std::string name;
  std::vector<std::string> cells;  ///< one per row
  bool is_text = false;            ///< aligned to the left
  bool is_label = false;           ///< tells rows apart: never left out
  int rank = 0;                    ///< the highest is left out first
};

/// The line width of tables that are printed.
inline constexpr std::size_t kTableWidth = 100;

/// Columns with the same cell in every row as "name: cell" lines, the others as a table; of one row
/// the labels but the last stand above. Names are broken over lines at "_" and "." where that makes
/// a column narrower, and have lost what comes before their last ".", as long as they differ. No
/// line is longer than `width` (0 = any): columns are left out, which a last line says with
/// `elsewhere`, where they are; then labels lose their middle, unless two would become the same.
[[nodiscard]] std::string fitted_table(const std::vector<FittedColumn>& columns, std::size_t width,
                                       const std::string& elsewhere);

/// The text, broken at spaces into lines of at most `width` bytes (0 = any), all but the first
/// indented by two; without a line end. A longer word has a line of its own.
[[nodiscard]] std::string wrapped(const std::string& text, std::size_t width = kTableWidth);

}  // namespace kvreplay
