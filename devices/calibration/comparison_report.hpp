#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/config_folder.hpp"
#include "devices/calibration/comparison.hpp"
#include "devices/calibration/measured_points.hpp"

namespace kvreplay {

/// The named tables of FOLDER/measurements, those compared with a named preset, and files of such;
/// all tables by preset where nothing is named. The file of a device stands for the tables of the
/// presets that it is based on, each with this device in place of its preset. Throws UserError for
/// a name that is none of these, and for a device that has no such base.
[[nodiscard]] std::vector<MeasuredTable> find_measured_tables(
    const ConfigFolder& configs, const std::vector<std::string>& names);

/// Whether `file` is one that load_measured_points reads, rather than a table or a device.
[[nodiscard]] bool is_measurement(const std::string& file);

struct ComparedTable {
  MeasuredTable table;
  std::vector<ComparedRow> rows;
};

/// A device and what `device probe` or fio measured, with the points' own sizes, depths, ranges and
/// shares of writes: one table of IOPS and one of mean latencies per share of writes.
/// `preset`: how the device is named.
[[nodiscard]] std::vector<ComparedTable> compare_points(const ConfigNode& device,
                                                        const std::string& preset,
                                                        const std::string& file,
                                                        const MeasuredPoints& measured,
                                                        int threads);

/// One line per table with the median and maximum of its absolute errors; `with_rows` adds one line
/// per row.
[[nodiscard]] std::string comparison_text(std::span<const ComparedTable> all, bool with_rows);
/// The table of docs/device-accuracy.md.
[[nodiscard]] std::string comparison_markdown(std::span<const ComparedTable> all);
/// One line per measured point.
[[nodiscard]] std::string comparison_csv(std::span<const ComparedTable> all);

}  // namespace kvreplay
