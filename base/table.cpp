#include "base/table.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/split_text.hpp"

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

std::string latex_line(const std::vector<std::string>& cells) {
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) text += " & ";
    for (const char character : cells[i]) {
      if (character == '\\') {
        text += "\\textbackslash{}";
      } else if (character == '~' || character == '^') {
        text += std::string("\\") + character + "{}";
      } else {
        if (std::string_view("&%$#_{}").find(character) != std::string_view::npos) text += '\\';
        text += character;
      }
    }
  }
  return text + " \\\\\n";
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

std::vector<std::vector<std::string>> Table::name_rows() const {
  std::vector<std::vector<std::string>> parts;
  std::size_t height = 1;
  for (const std::string& name : rows_.front()) {
    parts.push_back(split_text(name, '\n'));
    height = std::max(height, parts.back().size());
  }
  std::vector<std::vector<std::string>> rows(height, std::vector<std::string>(parts.size()));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t k = 0; k < parts[i].size(); ++k) {
      rows[height - parts[i].size() + k][i] = parts[i][k];
    }
  }
  return rows;
}

std::vector<std::string> Table::lines() const {
  std::vector<std::vector<std::string>> all = name_rows();
  all.insert(all.end(), rows_.begin() + 1, rows_.end());
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = columns_[i].width;
    if (width == 0) {
      for (const auto& row : all) width = std::max(width, i < row.size() ? row[i].size() : 0);
    }
    widths.push_back(width);
  }
  std::vector<std::string> lines;
  lines.reserve(all.size());
  for (const auto& row : all) lines.push_back(line(row, widths));
  return lines;
}

std::string Table::text(bool names) const {
  std::string text;
  const std::vector<std::string> all = lines();
  for (std::size_t i = names ? 0 : name_rows().size(); i < all.size(); ++i) text += all[i] + '\n';
  return text;
}

std::string Table::markdown() const {
  std::string text = markdown_line(rows_.front()) + '|';
  for (std::size_t i = 0; i < columns_.size(); ++i) text += "---|";
  text += '\n';
  for (std::size_t i = 1; i < rows_.size(); ++i) text += markdown_line(rows_[i]);
  return text;
}

std::string Table::latex() const {
  std::string text = "\\begin{tabular}{";
  for (const Column& column : columns_) text += column.align == Align::kLeft ? 'l' : 'r';
  text += "}\n\\toprule\n" + latex_line(rows_.front()) + "\\midrule\n";
  for (std::size_t i = 1; i < rows_.size(); ++i) text += latex_line(rows_[i]);
  return text + "\\bottomrule\n\\end{tabular}\n";
}

}  // namespace kvreplay
