#include "sim/replay/seed_means.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/fitted_table.hpp"
#include "base/number_text.hpp"
#include "sim/replay/results.hpp"

namespace kvreplay {
namespace {

constexpr std::string_view kSeed = "experiment.seed";

/// Cells that differ in the seed alone.
struct SeedGroup {
  std::vector<std::pair<std::string, std::string>> names;  ///< what names it
  std::vector<const CellResult*> cells;
};

std::vector<SeedGroup> seed_groups(std::span<const CellResult> cells) {
  std::vector<SeedGroup> groups;
  std::map<std::vector<std::pair<std::string, std::string>>, std::size_t> known;
  for (const CellResult& cell : cells) {
    std::vector<std::pair<std::string, std::string>> names{
        {"trace", cell.trace},   {"model", cell.model},   {"platform", cell.platform},
        {"device", cell.device}, {"system", cell.system}, {"batch", std::to_string(cell.batch)}};
    for (const auto& [name, value] : cell.settings) {
      if (name != kSeed) names.emplace_back(name, value ? to_text(*value) : "");
    }
    const auto [at, is_new] = known.emplace(names, groups.size());
    if (is_new) groups.push_back({std::move(names), {}});
    groups[at->second].cells.push_back(&cell);
  }
  return groups;
}

/// The 97.5 % quantile of Student's t.
double student_t(std::size_t degrees) {
  constexpr std::array kQuantiles{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365,
                                  2.306,  2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
                                  2.131,  2.120, 2.110, 2.101, 2.093, 2.086};
  return degrees <= kQuantiles.size() ? kQuantiles[degrees - 1]
                                      : 1.96 + 2.4 / static_cast<double>(degrees);
}

struct MeanInterval {
  double mean = 0;
  double half_width = 0;  ///< NaN of a single seed
};

MeanInterval mean_interval(const SeedGroup& group, const Column<CellResult>& column) {
  const auto count = static_cast<double>(group.cells.size());
  std::vector<double> values;
  for (const CellResult* cell : group.cells) {
    const CellValue value = column.value(*cell);
    const auto* whole = std::get_if<std::int64_t>(&value);
    values.push_back(whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value));
  }
  MeanInterval found;
  for (const double value : values) found.mean += value / count;
  if (values.size() < 2) {
    found.half_width = std::nan("");
    return found;
  }
  double squares = 0;
  for (const double value : values) squares += (value - found.mean) * (value - found.mean);
  found.half_width = student_t(values.size() - 1) * std::sqrt(squares / (count - 1) / count);
  return found;
}

bool is_number(const Column<CellResult>& column, const CellResult& cell) {
  return !std::holds_alternative<std::string>(column.value(cell));
}

}  // namespace

bool has_several_seeds(std::span<const CellResult> cells) {
  const std::vector<SeedGroup> groups = seed_groups(cells);
  return std::any_of(groups.begin(), groups.end(),
                     [](const SeedGroup& group) { return group.cells.size() > 1; });
}

std::string seeds_csv(std::span<const CellResult> cells) {
  ResultTable table;
  const std::vector<SeedGroup> groups = seed_groups(cells);
  if (groups.empty()) return "";
  static const std::set<std::string> kNames{"trace",  "model",  "platform",
                                            "device", "system", "batch"};
  for (const auto& [name, value] : groups.front().names) table.columns.push_back({name});
  table.columns.push_back({"seeds"});
  std::vector<const Column<CellResult>*> numbers;
  for (const Column<CellResult>& column : result_columns()) {
    if (kNames.contains(std::string(column.name)) || !is_number(column, cells.front())) continue;
    numbers.push_back(&column);
    table.columns.push_back({std::string(column.name)});
    table.columns.push_back({std::string(column.name) + "_interval"});
  }
  for (const SeedGroup& group : groups) {
    std::vector<CellValue>& row = table.rows.emplace_back();
    for (const auto& [name, value] : group.names) row.emplace_back(value);
    row.emplace_back(static_cast<std::int64_t>(group.cells.size()));
    for (const Column<CellResult>* column : numbers) {
      const MeanInterval found = mean_interval(group, *column);
      row.emplace_back(found.mean);
      row.emplace_back(found.half_width);
    }
  }
  return csv_text(table);
}

std::string seeds_table(std::span<const CellResult> cells) {
  const std::vector<SeedGroup> groups = seed_groups(cells);
  static constexpr std::array<std::pair<std::string_view, int>, 4> kShown{
      {{"tokens_per_s", 2}, {"latency_ms", 2}, {"attention_mass", 4}, {"output_error", 4}}};
  std::vector<std::size_t> differing;  // of the names: those that tell the groups apart
  for (std::size_t i = 0; !groups.empty() && i < groups.front().names.size(); ++i) {
    const bool differs = std::any_of(groups.begin(), groups.end(), [&](const SeedGroup& group) {
      return group.names[i].second != groups.front().names[i].second;
    });
    if (differs || groups.front().names[i].first == "system") differing.push_back(i);
  }
  std::vector<FittedColumn> columns;
  for (const std::size_t i : differing) {
    FittedColumn& column = columns.emplace_back();
    column.name = groups.front().names[i].first;
    column.is_text = column.is_label = true;
    for (const SeedGroup& group : groups) column.cells.push_back(group.names[i].second);
  }
  FittedColumn& seeds = columns.emplace_back();
  seeds.name = "seeds";
  seeds.is_label = true;
  for (const SeedGroup& group : groups) seeds.cells.push_back(std::to_string(group.cells.size()));
  for (const auto& [name, digits] : kShown) {
    FittedColumn& column = columns.emplace_back();
    column.name = name;
    const auto declared =
        std::find_if(result_columns().begin(), result_columns().end(),
                     [shown = name](const auto& one) { return one.name == shown; });
    for (const SeedGroup& group : groups) {
      const MeanInterval found = mean_interval(group, *declared);
      column.cells.push_back(
          fixed_text(found.mean, digits) +
          (group.cells.size() > 1 ? " +- " + fixed_text(found.half_width, digits) : ""));
    }
  }
  return "Means over the seeds, with 95 % intervals:\n" +
         fitted_table(columns, kTableWidth, "in seeds.csv");
}

}  // namespace kvreplay
