#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kvreplay {

/// A table of text, with aligned columns, in Markdown or in LaTeX.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string name;  ///< may have line breaks, for lines() and text()
    Align align = Align::kRight;
    /// 0: as wide as the widest of its cells and its name. Otherwise exactly this width; a longer
    /// cell shifts the rest of its line.
    std::size_t width = 0;
  };

  /// `gap`: text between columns.
  explicit Table(std::vector<Column> columns, std::string gap = "  ");

  /// A row may end early. Its last cell is not padded on the right.
  void add_row(std::vector<std::string> cells);

  /// The names in as many lines as they need, then one line per row, without line ends.
  [[nodiscard]] std::vector<std::string> lines() const;
  /// The lines as one text; without `names`, only those of the rows.
  [[nodiscard]] std::string text(bool names = true) const;
  /// "| a | b |", with the separator line that Markdown needs below the names. A bar in a cell is
  /// escaped.
  [[nodiscard]] std::string markdown() const;
  /// A tabular with the rules of the booktabs package. Special characters are escaped.
  [[nodiscard]] std::string latex() const;

 private:
  /// The names, as the rows that they take: the last line of each in the last row.
  [[nodiscard]] std::vector<std::vector<std::string>> name_rows() const;
  [[nodiscard]] std::string line(const std::vector<std::string>& cells,
                                 const std::vector<std::size_t>& widths) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  ///< names first
  std::string gap_;
};

}  // namespace kvreplay
