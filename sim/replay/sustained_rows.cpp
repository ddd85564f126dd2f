#include "sim/replay/sustained_rows.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace kvreplay {
namespace {

/// Of results.csv: what a row is of.
const std::set<std::string> kIdentity{"trace",    "synthetic", "system", "model",
                                      "platform", "device",    "batch",  "projection"};

struct SustainedRow {
  double begin_s = 0;
  const SustainedInterval* interval = nullptr;

  [[nodiscard]] double seconds() const {
    return static_cast<double>(interval->end_ns) / 1e9 - begin_s;
  }
  /// Of the interval.
  [[nodiscard]] double share(double ns) const { return ns / 1e9 / seconds(); }
};

const std::vector<Column<SustainedRow>>& sustained_columns() {
  static const std::vector<Column<SustainedRow>> columns{
      {"from_s", "begin of the interval, after the beginning of the prefill",
       [](const SustainedRow& row) -> CellValue { return row.begin_s; }, 1},
      {"interval_s", "its length",
       [](const SustainedRow& row) -> CellValue { return row.seconds(); }},
      {"tokens_per_s", "decoded tokens per second of the batch; 0 during the prefill",
       [](const SustainedRow& row) -> CellValue { return row.interval->tokens / row.seconds(); },
       2},
      {"compute_share", "share of the interval in which the processor computes",
       [](const SustainedRow& row) -> CellValue { return row.share(row.interval->compute_ns); }},
      {"throttled_share", "share in which it computes at the throttled rate",
       [](const SustainedRow& row) -> CellValue {
         return row.share(static_cast<double>(row.interval->throttled_ns));
       }},
      {"exposed_io_share", "share in which it waits for reads or writes",
       [](const SustainedRow& row) -> CellValue { return row.share(row.interval->exposed_io_ns); }},
      {"mean_power_w",
       "mean power of the processor at the end of the interval, by its time constant",
       [](const SustainedRow& row) -> CellValue { return row.interval->mean_power_w; }, 2},
      {"device_c", "temperature of the device at the end; empty without a thermal model",
       [](const SustainedRow& row) -> CellValue { return row.interval->temperature_c; }, 1},
  };
  return columns;
}

}  // namespace

ResultTable sustained_rows(std::span<const CellResult> cells) {
  const ResultTable all = result_rows(cells);
  std::vector<std::size_t> shown;  // columns of it
  for (std::size_t i = 0; i < all.columns.size(); ++i) {
    const std::string& name = all.columns[i].name;
    const bool swept = std::any_of(cells.front().settings.begin(), cells.front().settings.end(),
                                   [&](const auto& setting) { return setting.first == name; });
    if (swept || kIdentity.contains(name)) shown.push_back(i);
  }
  ResultTable table;
  for (const std::size_t i : shown) table.columns.push_back(all.columns[i]);
  for (const Column<SustainedRow>& column : sustained_columns()) {
    table.columns.push_back({column.name, column.table_decimals});
  }
  for (std::size_t number = 0; number < cells.size(); ++number) {
    double begin_s = 0;
    for (const SustainedInterval& interval : cells[number].timing.sustained) {
      std::vector<CellValue>& values = table.rows.emplace_back();
      for (const std::size_t i : shown) values.push_back(all.rows[number][i]);
      const SustainedRow row{begin_s, &interval};
      for (const Column<SustainedRow>& column : sustained_columns()) {
        values.push_back(column.value(row));
      }
      begin_s = static_cast<double>(interval.end_ns) / 1e9;
    }
  }
  return table;
}

}  // namespace kvreplay
