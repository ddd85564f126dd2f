#include "devices/calibration/comparison_report.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <string_view>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/number_text.hpp"
#include "base/size.hpp"
#include "base/table.hpp"
#include "devices/calibration/fitted_point.hpp"

namespace kvreplay {
namespace {

constexpr auto kLeft = Table::Align::kLeft;
constexpr auto kRight = Table::Align::kRight;

double max_error_percent(const std::vector<ComparedRow>& rows) {
  double max = 0;
  for (const ComparedRow& row : rows) max = std::max(max, std::abs(row.error_percent()));
  return max;
}

const char* use_of(const MeasuredTable& table) {
  return table.fitted ? "fit" : "held out";
}

std::string rows_text(const ComparedTable& compared) {
  Table table({{"", kRight, 12},
               {"", kLeft, 10},
               {"", kLeft, 8},
               {"", kRight, 10},
               {"", kLeft, 6},
               {"", kRight, 10},
               {"", kLeft, 7},
               {"", kRight, 7},
               {"", kLeft}},
              " ");
  for (const ComparedRow& row : compared.rows) {
    const double error = row.error_percent();
    table.add_row(
        {short_size_text(row.measured.bytes), "depth " + std::to_string(row.measured.depth),
         "measured", fixed_text(row.measured.value, 1), " model", fixed_text(row.model, 1),
         compared.table.quantity, (std::signbit(error) ? "" : "+") + fixed_text(error, 1), "%"});
  }
  return table.text(false);
}

bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".json");
}

/// The tables of the nearest config among `device` and its bases that has any, with the device in
/// place of the preset.
std::vector<MeasuredTable> tables_of_bases(const ConfigFolder& configs,
                                           const std::vector<MeasuredTable>& all,
                                           const std::string& device) {
  std::vector<MeasuredTable> found;
  for (std::string name = device; found.empty();) {
    for (const MeasuredTable& table : all) {
      if (table.preset == name) found.push_back(table);
    }
    const std::string file = configs.file("devices", name, {});
    const ConfigNode node = ConfigNode::load(file);
    if (!found.empty() || !node.has("base")) break;
    name = node.at("base").text();
    if (is_path(name)) {
      name = (std::filesystem::path(file).parent_path() / name).lexically_normal().string();
    }
  }
  if (found.empty()) {
    throw UserError({device, ""}, "no table was measured of a preset that it is based on",
                    "tables or measurements, and --device " + device);
  }
  for (MeasuredTable& table : found) {
    table.preset = device;
    table.fitted = false;
  }
  return found;
}

/// A name of a file as one field of CSV.
std::string field_text(std::string name) {
  std::ranges::replace_if(
      name, [](char one) { return one == ',' || one == '"'; }, '_');
  return name;
}

/// Which of a measurement's points belong together: "reads", "writes" or "mix30".
std::string direction_of(const MeasuredPoint& point) {
  if (point.write_share == 0) return "reads";
  if (point.write_share == 1) return "writes";
  return "mix" + fixed_text(100 * point.write_share, 0);
}

}  // namespace

bool is_measurement(const std::string& file) {
  try {
    const ConfigNode node = ConfigNode::load(file);
    return node.has("points") || node.has("jobs");
  } catch (const UserError&) {
    // fio prints its notes before the JSON.
    return !read_text_file(file, "a table, a device or a measurement").starts_with('{');
  }
}

std::vector<MeasuredTable> find_measured_tables(const ConfigFolder& configs,
                                                const std::vector<std::string>& names) {
  std::vector<std::string> known = configs.names("measurements");
  std::vector<MeasuredTable> all;
  for (const std::string& name : known) {
    all.push_back(MeasuredTable::load(configs.file("measurements", name, {})));
  }
  std::stable_sort(all.begin(), all.end(), [](const MeasuredTable& a, const MeasuredTable& b) {
    return a.preset < b.preset;
  });
  if (names.empty()) return all;
  std::vector<MeasuredTable> wanted;
  for (const std::string& name : names) {
    const std::size_t before = wanted.size();
    for (const MeasuredTable& table : all) {
      if (table.name == name || table.preset == name) wanted.push_back(table);
    }
    if (wanted.size() > before) continue;
    if (is_path(name)) {
      const std::string file = configs.file("devices", name, {});
      const ConfigNode node = ConfigNode::load(file);
      if (node.has("part") || node.has("base")) {
        std::ranges::move(tables_of_bases(configs, all, file), std::back_inserter(wanted));
      } else {
        wanted.push_back(MeasuredTable::parse(node));
      }
      continue;
    }
    for (const std::string& preset : configs.names("devices")) known.push_back(preset);
    throw unknown_name({}, "table or preset", name, known);
  }
  return wanted;
}

std::vector<ComparedTable> compare_points(const ConfigNode& device, const std::string& preset,
                                          const std::string& file, const MeasuredPoints& measured,
                                          int threads) {
  std::vector<FittedPoint> points;
  points.reserve(measured.points.size());
  for (const MeasuredPoint& point : measured.points) points.push_back({.measured = point});
  run_model(device, false, points, threads);
  std::vector<ComparedTable> all;
  const std::string stem = std::filesystem::path(file).stem().string();
  for (const char* quantity : {"iops", "mean_us"}) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      const MeasuredPoint& point = points[i].measured;
      if (i == 0 || direction_of(point) != direction_of(points[i - 1].measured)) {
        ComparedTable& table = all.emplace_back();
        table.table.name = stem + " " + direction_of(point);
        table.table.title = stem + ": random " + direction_of(point);
        table.table.source = measured.source;
        table.table.preset = preset;
        table.table.quantity = quantity;
        table.table.workload.write_share = point.write_share;
      }
      const bool rate = std::string_view(quantity) == "iops";
      all.back().rows.push_back({{point.bytes, point.depth, rate ? point.iops : point.mean_us},
                                 rate ? points[i].iops : points[i].mean_us});
    }
  }
  return all;
}

std::string comparison_text(std::span<const ComparedTable> all, bool with_rows) {
  Table table({{"table", kLeft, 24},
               {"preset", kLeft, 12},
               {"use", kLeft, 9},
               {"rows", kRight, 5},
               {"median error %", kRight, 14},
               {"greatest error %", kRight, 16}},
              " ");
  for (const ComparedTable& compared : all) {
    table.add_row({compared.table.name, compared.table.preset, use_of(compared.table),
                   std::to_string(compared.rows.size()),
                   fixed_text(median_error_percent(compared.rows), 1),
                   fixed_text(max_error_percent(compared.rows), 1)});
  }
  const std::vector<std::string> lines = table.lines();
  std::string text = lines.front() + '\n';
  for (std::size_t i = 0; i < all.size(); ++i) {
    text += lines[i + 1] + '\n';
    if (with_rows) text += rows_text(all[i]);
  }
  return text;
}

std::string comparison_markdown(std::span<const ComparedTable> all) {
  Table table({{"preset"},
               {"measurement"},
               {"use"},
               {"rows"},
               {"median error %"},
               {"greatest"},
               {"assumed"}});
  for (const ComparedTable& compared : all) {
    const MeasuredTable& measured = compared.table;
    table.add_row({measured.preset, measured.title + " (`" + measured.name + "`)", use_of(measured),
                   std::to_string(compared.rows.size()),
                   fixed_text(median_error_percent(compared.rows), 1),
                   fixed_text(max_error_percent(compared.rows), 1), measured.assumptions});
  }
  return table.markdown();
}

std::string comparison_csv(std::span<const ComparedTable> all) {
  std::string text =
      "table,preset,use,pattern,write_percent,quantity,bytes,depth,measured,model,error_percent\n";
  std::string line;
  for (const ComparedTable& compared : all) {
    const MeasuredTable& table = compared.table;
    for (const ComparedRow& row : compared.rows) {
      line = format_text(",%s,%s,%g,%s,%llu,%u,%.6g,%.6g,%.3f\n", use_of(table),
                         table.workload.sequential ? "sequential" : "random",
                         100 * table.workload.write_share, table.quantity.c_str(),
                         static_cast<unsigned long long>(row.measured.bytes), row.measured.depth,
                         row.measured.value, row.model, row.error_percent());
      text += field_text(table.name) + "," + field_text(table.preset) + line;
    }
  }
  return text;
}

}  // namespace kvreplay
