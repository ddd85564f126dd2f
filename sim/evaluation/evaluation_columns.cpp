#include "sim/evaluation/evaluation_columns.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/fitted_table.hpp"
#include "base/number_text.hpp"
#include "base/table.hpp"

namespace kvreplay {

std::string csv_text(std::span<const EvaluationColumn> columns, std::size_t rows) {
  std::string text;
  for (const EvaluationColumn& column : columns) text += (text.empty() ? "" : ",") + column.name;
  text += '\n';
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      text += (i == 0 ? "" : ",") + columns[i].value(row);
    }
    text += '\n';
  }
  return text;
}

std::string table_text(std::span<const EvaluationColumn> columns, std::size_t rows) {
  std::vector<FittedColumn> shown;
  std::vector<Table::Column> heads;
  for (const EvaluationColumn& column : columns) {
    heads.push_back({column.name, column.numeric ? Table::Align::kRight : Table::Align::kLeft});
    FittedColumn& fitted = shown.emplace_back();
    fitted.name = column.name;
    fitted.is_text = !column.numeric;
    fitted.is_label = !column.numeric || column.name == "budget";
    for (std::size_t row = 0; row < rows; ++row) {
      std::string value = column.value(row);
      if (value.empty()) {
        value = "-";
      } else if (column.numeric && column.decimals >= 0) {
        value = fixed_text(std::stod(value), column.decimals);
      }
      fitted.cells.push_back(std::move(value));
    }
  }
  Table table(std::move(heads));
  for (std::size_t row = 0; row < rows; ++row) {
    std::vector<std::string> cells;
    for (const FittedColumn& column : shown) cells.push_back(column.cells[row]);
    table.add_row(std::move(cells));
  }
  const std::vector<std::string> lines = table.lines();
  const bool fits = std::all_of(lines.begin(), lines.end(),
                                [](const std::string& line) { return line.size() <= kTableWidth; });
  return fits ? table.text() : fitted_table(shown, kTableWidth, "in the CSV file");
}

std::vector<EvaluationColumn> cell_columns(std::span<const EvaluationCell> cells) {
  return {{"system", [=](std::size_t i) { return cells[i].system; }, 0, false},
          {"budget", [=](std::size_t i) { return cells[i].budget; }, -1, true},
          {"budget_unit", [=](std::size_t i) { return cells[i].unit; }, 0, false}};
}

std::string number_field(double value) {
  return std::isfinite(value) ? shortest_text(value) : "";
}

}  // namespace kvreplay
