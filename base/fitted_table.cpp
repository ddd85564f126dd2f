#include "base/fitted_table.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/table.hpp"

namespace kvreplay {
namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kMinLabel = 16;  // of a shortened label

std::size_t widest(const std::vector<std::string>& cells) {
  std::size_t width = 0;
  for (const std::string& cell : cells) width = std::max(width, cell.size());
  return width;
}

bool is_constant(const std::vector<std::string>& cells) {
  return std::all_of(cells.begin(), cells.end(),
                     [&](const std::string& cell) { return cell == cells.front(); });
}

/// Without what comes before the last point, where the rest is no other column's name.
std::string short_name(const std::string& name, const std::vector<FittedColumn>& columns) {
  const std::size_t point = name.rfind('.');
  if (point == std::string::npos) return name;
  const std::string rest = name.substr(point + 1);
  const auto ends_so = [&](const FittedColumn& column) {
    return column.name == rest || column.name.ends_with('.' + rest);
  };
  return std::count_if(columns.begin(), columns.end(), ends_so) == 1 ? rest : name;
}

/// The name in two lines, where that brings it nearer to the width of its cells.
std::string broken_name(const std::string& name, std::size_t cell_width) {
  std::string best = name;
  std::size_t best_width = name.size();
  for (std::size_t at = 1; at + 1 < name.size() && best_width > cell_width; ++at) {
    if (name[at] != '_' && name[at] != '.') continue;
    const std::size_t width = std::max(at, name.size() - at - 1);
    if (width >= best_width) continue;
    best_width = width;
    best = name.substr(0, at) + '\n' + name.substr(at + 1);
  }
  return best;
}

std::string in_two_lines(const FittedColumn& column, const std::vector<FittedColumn>& all) {
  return broken_name(short_name(column.name, all), widest(column.cells));
}

std::size_t name_width(const std::string& name) {
  const std::size_t end = name.find('\n');
  return end == std::string::npos ? name.size() : std::max(end, name.size() - end - 1);
}

std::size_t column_width(const FittedColumn& column) {
  return std::max(name_width(column.name), widest(column.cells));
}

std::size_t table_width(const std::vector<FittedColumn>& columns) {
  std::size_t width = 0;
  for (const FittedColumn& column : columns) width += kGap + column_width(column);
  return width - std::min(width, kGap);
}

/// Cells of at most `width` bytes, without their middle; the same cells where two become the same.
std::vector<std::string> shortened(const std::vector<std::string>& cells, std::size_t width) {
  std::vector<std::string> shorter;
  for (const std::string& cell : cells) {
    if (cell.size() <= width) {
      shorter.push_back(cell);
      continue;
    }
    const std::size_t tail = (width - 2) / 2;
    shorter.push_back(cell.substr(0, width - 2 - tail) + ".." + cell.substr(cell.size() - tail));
  }
  const auto kinds = [](const std::vector<std::string>& of) {
    return std::set<std::string>(of.begin(), of.end()).size();
  };
  return kinds(shorter) == kinds(cells) ? shorter : cells;
}

void shorten_labels(std::vector<FittedColumn>& columns, std::size_t width) {
  std::vector<FittedColumn*> labels;
  for (FittedColumn& column : columns) {
    if (column.is_label && column.is_text) labels.push_back(&column);
  }
  std::stable_sort(labels.begin(), labels.end(), [](const auto* a, const auto* b) {
    return column_width(*a) > column_width(*b);
  });
  for (FittedColumn* label : labels) {
    const std::size_t now = table_width(columns);
    const std::size_t own = widest(label->cells);
    if (now <= width || own <= kMinLabel) continue;
    const std::size_t excess = now - width;
    label->cells = shortened(label->cells, std::max(kMinLabel, own - std::min(own, excess)));
  }
}

/// Removes columns, those of the highest rank first and of these the last.
void leave_out(std::vector<FittedColumn>& columns, std::size_t width) {
  while (table_width(columns) > width) {
    auto out = columns.end();
    std::ptrdiff_t candidates = 0;
    for (auto column = columns.begin(); column != columns.end(); ++column) {
      if (column->is_label) continue;
      ++candidates;
      if (out == columns.end() || column->rank >= out->rank) out = column;
    }
    if (candidates < 2) break;
    columns.erase(out);
  }
}

}  // namespace

std::string wrapped(const std::string& text, std::size_t width) {
  std::string lines;
  std::size_t length = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (length > 0 && width > 0 && length + 1 + word.size() > width) {
      lines += "\n  ";
      length = 2;
    } else if (begin > 0) {
      lines += ' ';
      ++length;
    }
    lines += word;
    length += word.size();
    begin = end + 1;
  }
  return lines;
}

std::string fitted_table(const std::vector<FittedColumn>& columns, std::size_t width,
                         const std::string& elsewhere) {
  if (columns.empty() || columns.front().cells.empty()) return "";
  const std::size_t rows = columns.front().cells.size();
  const auto last_label =
      std::find_if(columns.rbegin(), columns.rend(), [](const auto& c) { return c.is_label; });
  const std::string kept_label = last_label == columns.rend() ? "" : last_label->name;
  std::string text;
  std::vector<FittedColumn> shown;
  for (const FittedColumn& column : columns) {
    const bool above =
        rows > 1 ? is_constant(column.cells) : column.is_label && column.name != kept_label;
    if (above) {
      const std::string& cell = column.cells.front();
      text += wrapped(column.name + ": " + (cell.empty() ? "-" : cell), width) + '\n';
    } else {
      shown.push_back(column);
    }
  }
  if (shown.empty()) return text;
  if (!text.empty()) text += '\n';

  std::vector<FittedColumn> fitted = shown;
  for (FittedColumn& column : fitted) column.name = in_two_lines(column, shown);
  if (width > 0) {
    leave_out(fitted, width);
    shorten_labels(fitted, width);
  }
  std::vector<std::string> left_out;
  for (const FittedColumn& column : shown) {
    const std::string name = in_two_lines(column, shown);
    if (std::none_of(fitted.begin(), fitted.end(),
                     [&](const FittedColumn& other) { return other.name == name; })) {
      left_out.push_back(column.name);
    }
  }
  std::vector<Table::Column> heads;
  for (const FittedColumn& column : fitted) {
    heads.push_back({column.name, column.is_text ? Table::Align::kLeft : Table::Align::kRight});
  }
  Table table(std::move(heads), std::string(kGap, ' '));
  for (std::size_t row = 0; row < rows; ++row) {
    std::vector<std::string> cells;
    for (const FittedColumn& column : fitted) cells.push_back(column.cells[row]);
    table.add_row(std::move(cells));
  }
  for (const std::string& line : table.lines()) {
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  if (!left_out.empty()) {
    text += '\n' + wrapped("Not shown (" + elsewhere + "): " + join(left_out), width) + '\n';
  }
  return text;
}

}  // namespace kvreplay
