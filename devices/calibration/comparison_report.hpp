#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/config_folder.hpp"
#include "devices/calibration/comparison.hpp"

namespace kvreplay {

/// The tables of FOLDER/measurements that are named, those that are laid over a preset that is
/// named, and files; without names all, by preset. UserError for a name that is none of them.
[[nodiscard]] std::vector<MeasuredTable> find_measured_tables(
    const ConfigFolder& configs, const std::vector<std::string>& names);

struct ComparedTable {
  MeasuredTable table;
  std::vector<ComparedRow> rows;
};

/// A line for each table with the median and greatest of its absolute errors; `with_rows`: then
/// one for each row.
[[nodiscard]] std::string comparison_text(std::span<const ComparedTable> all, bool with_rows);
/// The table of docs/device-accuracy.md.
[[nodiscard]] std::string comparison_markdown(std::span<const ComparedTable> all);
/// A line for each measured point.
[[nodiscard]] std::string comparison_csv(std::span<const ComparedTable> all);

}  // namespace kvreplay
