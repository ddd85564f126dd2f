#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "sim/evaluation/evaluation.hpp"

namespace kvreplay {

/// A column of a table of results, with one row per index.
struct EvaluationColumn {
  std::string name;
  std::function<std::string(std::size_t)> value;
  int decimals = 0;  ///< of numbers in the table; -1 = unrounded
  bool numeric = true;
};

[[nodiscard]] std::string csv_text(std::span<const EvaluationColumn> columns, std::size_t rows);
/// For people: rounded numbers in aligned columns, of at most kTableWidth.
[[nodiscard]] std::string table_text(std::span<const EvaluationColumn> columns, std::size_t rows);
/// The columns system, budget and budget_unit. The cells must outlive them.
[[nodiscard]] std::vector<EvaluationColumn> cell_columns(std::span<const EvaluationCell> cells);
/// The shortest text that reads back as the same number; "" for none.
[[nodiscard]] std::string number_field(double value);

}  // namespace kvreplay
