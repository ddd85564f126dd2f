#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/config_folder.hpp"
#include "devices/calibration/comparison.hpp"

namespace kvreplay {

/// The named tables of FOLDER/measurements, those compared with a named preset, and files; all
/// tables by preset where nothing is named. Throws UserError for a name that is none of these.
[[nodiscard]] std::vector<MeasuredTable> find_measured_tables(
    const ConfigFolder& configs, const std::vector<std::string>& names);

struct ComparedTable {
  MeasuredTable table;
  std::vector<ComparedRow> rows;
};

/// One line per table with the median and maximum of its absolute errors; `with_rows` adds one line
/// per row.
[[nodiscard]] std::string comparison_text(std::span<const ComparedTable> all, bool with_rows);
/// The table of docs/device-accuracy.md.
[[nodiscard]] std::string comparison_markdown(std::span<const ComparedTable> all);
/// One line per measured point.
[[nodiscard]] std::string comparison_csv(std::span<const ComparedTable> all);

}  // namespace kvreplay
