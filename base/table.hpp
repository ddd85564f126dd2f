#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kvreplay {

/// A table of text: columns aligned for the eye, or in Markdown.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string name;
    Align align = Align::kRight;
    /// 0: as wide as the widest of its cells and its name. Else exactly that; a longer cell moves
    /// what follows it in its line.
    std::size_t width = 0;
  };

  /// `gap` stands between columns.
  explicit Table(std::vector<Column> columns, std::string gap = "  ");

  /// A row may end early. Its last cell is not padded on the right.
  void add_row(std::vector<std::string> cells);

  /// The names, then a line for each row, without line ends.
  [[nodiscard]] std::vector<std::string> lines() const;
  /// The lines; without `names`, those of the rows.
  [[nodiscard]] std::string text(bool names = true) const;
  /// "| a | b |", with the line that Markdown wants below the names. A bar in a cell is escaped.
  [[nodiscard]] std::string markdown() const;

 private:
  [[nodiscard]] std::string line(const std::vector<std::string>& cells,
                                 const std::vector<std::size_t>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  ///< the names first
  std::string gap_;
};

}  // namespace kvreplay
