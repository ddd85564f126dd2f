#include "devices/calibration/comparison.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/parallel.hpp"
#include "base/statistics.hpp"

namespace kvreplay {
namespace {

constexpr double kMax = 1e15;  ///< limit of bytes and values: whole numbers below it are exact

const std::vector<std::string> kQuantities{"mb_s", "mib_s", "iops", "mean_us"};
const std::vector<std::string> kPatterns{"random", "sequential"};

double number_within(const ConfigNode& node, double min, double max) {
  const Value value = node.argument().value;
  double result = NAN;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    result = static_cast<double>(*integer);
  } else if (const auto* real = std::get_if<double>(&value)) {
    result = *real;
  }
  if (!(result >= min && result <= max)) {
    throw UserError(node.place(), "found " + to_text(value),
                    "a number from " + to_text(min) + " to " + to_text(max));
  }
  return result;
}

std::string one_of(const ConfigNode& node, const std::string& kind,
                   const std::vector<std::string>& names) {
  std::string name = node.text();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw unknown_name(node.place(), kind, name, names);
  }
  return name;
}

double quantity_of(const Measurement& measurement, const std::string& quantity) {
  if (quantity == "mb_s") return measurement.mb_s;
  if (quantity == "mib_s") return measurement.mb_s / 1.048576;
  if (quantity == "iops") return measurement.iops;
  return measurement.mean_us;
}

}  // namespace

MeasuredTable MeasuredTable::load(const std::string& file) {
  return parse(ConfigNode::load(file));
}

MeasuredTable MeasuredTable::parse(const ConfigNode& node) {
  node.allow_only(std::array<std::string, 14>{
      "name", "title", "source", "assumptions", "preset", "set", "use", "pattern", "write_percent",
      "range_bytes", "requests", "quantity", "allowed_median_percent", "rows"});
  MeasuredTable table;
  table.name = node.at("name").text();
  table.title = node.at("title").text();
  table.source = node.at("source").text();
  if (node.has("assumptions")) table.assumptions = node.at("assumptions").text();
  table.preset = node.at("preset").text();
  if (node.has("set")) {
    for (const std::string& name : node.at("set").keys()) {
      table.changes.emplace_back(name, to_text(node.at("set").at(name).argument().value));
    }
  }
  table.fitted = one_of(node.at("use"), "use", {"fit", "held out"}) == "fit";
  table.quantity = one_of(node.at("quantity"), "quantity", kQuantities);
  table.allowed_median_percent = number_within(node.at("allowed_median_percent"), 0, 1000);

  table.workload.sequential = one_of(node.at("pattern"), "pattern", kPatterns) == "sequential";
  if (node.has("write_percent")) {
    table.workload.write_share = number_within(node.at("write_percent"), 0, 100) / 100;
  }
  if (node.has("range_bytes")) {
    table.workload.range_bytes =
        static_cast<std::uint64_t>(number_within(node.at("range_bytes"), 1, kMax));
  }
  table.workload.requests = 0;  // set per row, by request size
  if (node.has("requests")) {
    table.workload.requests =
        static_cast<std::uint64_t>(number_within(node.at("requests"), 1, 1e9));
  }
  for (const ConfigNode& row : node.at("rows").items()) {
    const std::vector<ConfigNode> cells = row.items();
    if (!row.is_array() || cells.size() != 3) {
      throw UserError(row.place(), std::to_string(cells.size()) + " values",
                      "[bytes, depth, " + table.quantity + "]");
    }
    table.rows.push_back({static_cast<std::uint64_t>(number_within(cells[0], 1, kMax)),
                          static_cast<std::uint32_t>(number_within(cells[1], 1, 65535)),
                          number_within(cells[2], 1e-6, kMax)});
  }
  if (table.rows.empty()) throw UserError(node.at("rows").place(), "no row", "at least one");
  return table;
}

std::vector<ComparedRow> compare(const ConfigNode& preset, const MeasuredTable& table,
                                 int threads) {
  ConfigNode config = preset;
  for (const auto& [name, value] : table.changes) config = config.with(name, value);
  const DeviceSpec spec = DeviceSpec::parse(config);
  std::vector<ComparedRow> rows(table.rows.size());
  parallel_for(static_cast<std::int64_t>(rows.size()), threads, [&](std::int64_t index) {
    const MeasuredTable::Row& row = table.rows[static_cast<std::size_t>(index)];
    Workload workload = table.workload;
    workload.bytes = row.bytes;
    workload.depth = row.depth;
    if (workload.requests == 0) {
      // Enough requests for a mean within about 1 %; fewer for large ones, which spread over all
      // dies.
      workload.requests = std::max<std::uint64_t>(row.bytes > (128 << 10) ? 1000 : 8000,
                                                  50 * std::uint64_t{row.depth});
    }
    rows[static_cast<std::size_t>(index)] = {row,
                                             quantity_of(measure(spec, workload), table.quantity)};
  });
  return rows;
}

double median_error_percent(const std::vector<ComparedRow>& rows) {
  std::vector<double> errors;
  errors.reserve(rows.size());
  for (const ComparedRow& row : rows) errors.push_back(std::abs(row.error_percent()));
  return median(std::move(errors));
}

}  // namespace kvreplay
