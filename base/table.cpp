#include "base/table.hpp"

#include <algorithm>
#include <utility>

namespace kvreplay {
namespace {

std::string markdown_line(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& cell : cells) {
    text += ' ';
    for (const char character : cell) {
      if (character == '|') text += '\\';
      text += character;
    }
    text += " |";
  }
  return text + '\n';
}

}  // namespace

Table::Table(std::vector<Column> columns, std::string gap)
    : columns_(std::move(columns)), rows_(1), gap_(std::move(gap)) {
  for (const Column& column : columns_) rows_.front().push_back(column.name);
}

void Table::add_row(std::vector<std::string> cells) {
  rows_.push_back(std::move(cells));
}

std::string Table::line(const std::vector<std::string>& cells,
                        const std::vector<std::size_t>& widths) const {
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) text += gap_;
    const std::size_t missing = widths[i] - std::min(widths[i], cells[i].size());
    const bool left = columns_[i].align == Align::kLeft;
    if (!left) text.append(missing, ' ');
    text += cells[i];
    if (left && i + 1 < cells.size()) text.append(missing, ' ');
  }
  return text;
}

std::vector<std::string> Table::lines() const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = columns_[i].width;
    if (width == 0) {
      for (const auto& row : rows_) width = std::max(width, i < row.size() ? row[i].size() : 0);
    }
    widths.push_back(width);
  }
  std::vector<std::string> lines;
  lines.reserve(rows_.size());
  for (const auto& row : rows_) lines.push_back(line(row, widths));
  return lines;
}

std::string Table::text(bool names) const {
  std::string text;
  const std::vector<std::string> all = lines();
  for (std::size_t i = names ? 0 : 1; i < all.size(); ++i) text += all[i] + '\n';
  return text;
}

std::string Table::markdown() const {
  std::string text = markdown_line(rows_.front()) + '|';
  for (std::size_t i = 0; i < columns_.size(); ++i) text += "---|";
  text += '\n';
  for (std::size_t i = 1; i < rows_.size(); ++i) text += markdown_line(rows_[i]);
  return text;
}

}  // namespace kvreplay
