#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/fitted_table.hpp"
#include "sim/replay/replay.hpp"

namespace kvreplay {

using CellValue = std::variant<std::string, std::int64_t, double>;

/// One column of the results: declared once for table, CSV, JSON and documentation.
template <typename Row>
struct Column {
  std::string name;  ///< with its unit as the suffix
  std::string help;  ///< one line; docs/metrics.md has the formula
  std::function<CellValue(const Row&)> value;
  int table_decimals = -1;  ///< digits after the point in the table; -1 = not in the table
  int table_rank = 9;       ///< what a narrow table leaves out first: the highest
};

[[nodiscard]] std::span<const Column<CellResult>> result_columns();
[[nodiscard]] std::span<const Column<LayerQuality>> quality_columns();

/// Rows as they are written: one value per column and row.
struct ResultTable {
  struct Head {
    std::string name;
    int decimals = -1;  ///< Column::table_decimals
    friend bool operator==(const Head&, const Head&) = default;
  };
  std::vector<Head> columns;
  std::vector<std::vector<CellValue>> rows;
};

/// The shortest text that reads back as the same number; "" for NaN.
[[nodiscard]] std::string exact_text(const CellValue& value);

/// The columns, with one per swept key after `system`.
[[nodiscard]] ResultTable result_rows(std::span<const CellResult> cells);
[[nodiscard]] ResultTable quality_rows(std::span<const LayerQuality> layers);

/// What to print of a table, and how.
struct TableView {
  std::string format = "table";  ///< of table_formats()
  /// Names, where * stands for any characters; "+NAME" adds to those of the usual table; "all".
  /// Empty: the usual table; every column in csv and json.
  std::vector<std::string> columns{};
  std::vector<std::string> sort{};  ///< KEY, or KEY:desc
  std::size_t width = kTableWidth;  ///< of a table's lines; 0 = any
  /// What is shown in place of a column's name or of a text in a row, by that.
  std::map<std::string, std::string> labels{};
};
[[nodiscard]] std::vector<std::string> table_formats();

/// Throws UserError, which names --columns or --sort, where the view asks for what `names` has not.
void check_view(const TableView& view, std::span<const std::string> names);
/// The names of result_columns() with those of the swept keys.
[[nodiscard]] std::vector<std::string> result_names(std::span<const std::string> swept);

/// The table as it is viewed. In a table, columns with the same value in every row stand above;
/// numbers of bytes are in the unit that gives three digits; a line above says what needs more
/// memory than there is. The heads of latex are words (heading.hpp). "" for no rows, but for csv
/// and json. Throws UserError, which names --label, for a label of what the table has not.
[[nodiscard]] std::string view_text(const ResultTable& table, const TableView& view);
/// As a table, which is table.txt.
[[nodiscard]] std::string table_text(const ResultTable& table);
/// The rows of a CSV file; `file` is for messages. Throws UserError where it has no rows.
[[nodiscard]] ResultTable table_from_csv(const std::string& text, const std::string& file);
[[nodiscard]] std::string csv_text(const ResultTable& table);
[[nodiscard]] std::string json_text(const ResultTable& table);

[[nodiscard]] std::string results_table(std::span<const CellResult> cells);
[[nodiscard]] std::string results_csv(std::span<const CellResult> cells);
[[nodiscard]] std::string results_json(std::span<const CellResult> cells);
[[nodiscard]] std::string quality_csv(std::span<const LayerQuality> layers);
/// How the results were made: resolved configuration, seed, versions, content hashes, host.
[[nodiscard]] std::string manifest_json(const Experiment& experiment, const ReplayResult& result);

/// Writes results.csv, results.json, quality.csv, table.txt and manifest.json to `folder`, which is
/// created where it is missing. Each file appears whole, and the manifest comes last.
void write_results(const std::string& folder, const ResultTable& cells, const ResultTable& layers,
                   const std::string& manifest);
void write_results(const std::string& folder, const Experiment& experiment,
                   const ReplayResult& result);

/// Writes what merge_shards needs of a shard to `folder`, beside its results: rows with their
/// places in the whole.
void write_shard(const std::string& folder, const Experiment& experiment,
                 const ReplayResult& result, const Shard& shard);
/// Writes to `folder` what one run of the whole experiment would write, and returns its cells.
/// Throws UserError when the shards are of different runs, or do not make up the whole.
ResultTable merge_shards(std::span<const std::string> shards, const std::string& folder);

}  // namespace kvreplay
