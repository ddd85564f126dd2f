#include "devices/calibration/calibration_report.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "base/size.hpp"
#include "base/table.hpp"

namespace kvreplay {
namespace {

enum class Kind { kReads, kWrites, kMixes };
constexpr std::array kKinds{Kind::kReads, Kind::kWrites, Kind::kMixes};
constexpr std::array kUses{PointUse::kFitted, PointUse::kHeldOut, PointUse::kPredicted};

const char* name_of(Kind kind) {
  return kind == Kind::kReads ? "reads" : kind == Kind::kWrites ? "writes" : "mixes";
}
const char* name_of(PointUse use) {
  return use == PointUse::kFitted ? "fitted" : use == PointUse::kHeldOut ? "held out" : "predicted";
}

std::vector<FittedPoint> points_of(const Calibration& calibration, Kind kind, PointUse use) {
  std::vector<FittedPoint> points;
  for (const FittedPoint& point : calibration.points) {
    const double share = point.measured.write_share;
    const Kind its = share == 0 ? Kind::kReads : share == 1 ? Kind::kWrites : Kind::kMixes;
    if (its == kind && point.use == use) points.push_back(point);
  }
  return points;
}

bool has(const Calibration& calibration, Kind kind, PointUse use) {
  return !points_of(calibration, kind, use).empty();
}

/// The median and maximum of the absolute values, in percent.
std::string median_and_max(std::vector<double> errors) {
  for (double& error : errors) error = 100 * std::abs(error);
  std::sort(errors.begin(), errors.end());
  return format_text("median %.1f %%, greatest %.1f %%", errors[errors.size() / 2], errors.back());
}

std::string error_text(const std::vector<FittedPoint>& points) {
  std::vector<double> errors;
  errors.reserve(points.size());
  for (const FittedPoint& point : points) errors.push_back(point.iops_error());
  return median_and_max(std::move(errors)) + " of " + std::to_string(points.size()) + " points";
}

/// The latencies that mixes are measured for: they show how reads and writes disturb each other.
std::string mix_latency_text(const std::vector<FittedPoint>& points) {
  std::string text;
  for (const auto& [what, measured, modelled] :
       {std::tuple{"reads", &MeasuredPoint::read_us, &FittedPoint::read_us},
        {"writes", &MeasuredPoint::write_us, &FittedPoint::write_us}}) {
    std::vector<double> errors;
    for (const FittedPoint& point : points) {
      if (point.measured.*measured <= 0) continue;
      errors.push_back(point.*modelled / (point.measured.*measured) - 1);
    }
    if (errors.empty()) continue;
    text += std::string(text.empty() ? "latency of their " : ", of their ") + what + " " +
            median_and_max(std::move(errors));
  }
  return text;
}

/// How far the rounds of a point lie apart, where there were several: no model can be nearer.
std::string scatter_text(const Calibration& calibration, Kind kind) {
  std::vector<double> scatters;
  for (const PointUse use : kUses) {
    for (const FittedPoint& point : points_of(calibration, kind, use)) {
      if (point.measured.scatter > 0) scatters.push_back(point.measured.scatter);
    }
  }
  return scatters.empty() ? "" : "; rounds of a point differ by " + median_and_max(scatters);
}

/// Errors of the measured kinds. Where there are only reads, they are not named.
std::vector<std::string> error_texts(const Calibration& calibration) {
  std::vector<std::string> texts;
  for (const Kind kind : kKinds) {
    std::string text;
    for (const PointUse use : kUses) {
      const std::vector<FittedPoint> points = points_of(calibration, kind, use);
      if (points.empty()) continue;
      text += (text.empty() ? "" : ", ") + std::string(name_of(use)) + " " + error_text(points);
      const std::string latencies = kind == Kind::kMixes ? mix_latency_text(points) : "";
      if (!latencies.empty()) text += " (" + latencies + ")";
    }
    const std::string scatter = scatter_text(calibration, kind);
    if (!text.empty()) texts.push_back(std::string(name_of(kind)) + " " + text + scatter);
  }
  if (texts.size() == 1 && has(calibration, Kind::kReads, PointUse::kFitted)) {
    texts.front().erase(0, std::string("reads ").size());
  }
  return texts;
}

/// Measured, modelled and error; empty where not measured.
void add_cells(double measured, double model, std::vector<std::string>& row) {
  const bool known = measured > 0;
  row.push_back(known ? fixed_text(measured, 1) : "");
  row.push_back(fixed_text(model, 1));
  row.push_back(known ? error_percent_text(model / measured) : "");
}

std::string points_text(const Calibration& calibration, Kind kind, PointUse use) {
  const std::vector<FittedPoint> points = points_of(calibration, kind, use);
  if (points.empty()) return "";
  const bool mixes = kind == Kind::kMixes;
  std::vector<Table::Column> columns;
  const auto add = [&](const char* name, std::size_t width) {
    columns.push_back({name, Table::Align::kRight, width});
  };
  add("size", 8);
  add("depth", 6);
  if (mixes) add("writes %", 8);
  std::vector<const char*> quantities{"IOPS", mixes ? "read us" : "mean us"};
  if (mixes) quantities.push_back("write us");
  for (const char* quantity : quantities) {
    add(quantity, 11);
    add("model", 11);
    add("error", 8);
  }
  Table table(std::move(columns), " ");
  for (const FittedPoint& point : points) {
    const MeasuredPoint& measured = point.measured;
    std::vector<std::string> row{short_size_text(measured.bytes), std::to_string(measured.depth)};
    if (mixes) row.push_back(format_text("%g", 100 * measured.write_share));
    row.push_back(fixed_text(measured.iops, 0));
    row.push_back(fixed_text(point.iops, 0));
    row.push_back(error_percent_text(point.iops / measured.iops));
    if (mixes) {
      add_cells(measured.read_us, point.read_us, row);
      add_cells(measured.write_us, point.write_us, row);
    } else {
      add_cells(measured.mean_us, point.mean_us, row);
    }
    table.add_row(std::move(row));
  }
  std::string title = std::string(name_of(kind)) + ", " + name_of(use);
  title.front() = static_cast<char>(std::toupper(title.front()));
  return '\n' + title + '\n' + table.text();
}

std::string parameters_text(const Calibration& calibration, double mixing) {
  Table table(
      {{"", Table::Align::kLeft, 20}, {"", Table::Align::kRight, 10}, {"", Table::Align::kLeft}},
      " ");
  for (const auto& [parameter, value] : calibration.fitted) {
    std::vector<std::string> row{parameter, format_text("%g", value)};
    if (calibration.decided_by_writes.contains(parameter)) row.emplace_back(" by the writes");
    table.add_row(std::move(row));
  }
  for (const auto& [parameter, value] : calibration.from_burst) {
    table.add_row({parameter, value, " by the burst, mixing " + fixed_text(mixing, 2)});
  }
  for (const auto& [parameter, value] : calibration.undetermined) {
    table.add_row(
        {parameter, format_text("%g", value), " the base's; these points do not determine it"});
  }
  return table.text(false);
}

}  // namespace

bool predicts_writes(const Calibration& calibration) {
  return has(calibration, Kind::kWrites, PointUse::kPredicted);
}

std::string calibration_notes(const Calibration& calibration, const std::string& base) {
  const bool reads = has(calibration, Kind::kReads, PointUse::kFitted);
  const bool writes = has(calibration, Kind::kWrites, PointUse::kFitted);
  return std::string("Fitted to ") + (reads || !calibration.sequential_writes() ? "random " : "") +
         (reads ? "reads" : "") + (reads && writes ? " and " : "") +
         (writes ? calibration.sequential_writes() ? "writes in sequence" : "writes" : "") +
         ", beginning at " + base + ". Error of IOPS: " + join(error_texts(calibration), "; ") +
         (writes ? "." : ". Writes are not fitted.") +
         (calibration.compared.empty() ? "" : " Chosen by the " + calibration.compared + ".");
}

std::string calibration_text(const Calibration& calibration, double mixing) {
  std::string text;
  for (const Kind kind : kKinds) {
    for (const PointUse use : kUses) text += points_text(calibration, kind, use);
  }
  text += '\n';
  for (const std::string& error : error_texts(calibration))
    text += "Error of IOPS: " + error + '\n';
  if (!calibration.compared.empty()) text += "Chosen by the " + calibration.compared + '\n';
  return text + parameters_text(calibration, mixing);
}

std::string calibration_csv(const Calibration& calibration) {
  std::string text =
      "kind,use,write_share,bytes,depth,iops,model_iops,mean_us,model_mean_us,read_us,"
      "model_read_us,write_us,model_write_us\n";
  for (const Kind kind : kKinds) {
    for (const PointUse use : kUses) {
      for (const FittedPoint& point : points_of(calibration, kind, use)) {
        const MeasuredPoint& measured = point.measured;
        text +=
            format_text("%s,%s,%g,%llu,%u,%.1f,%.1f,%.3f,%.3f", name_of(kind), name_of(use),
                        measured.write_share, static_cast<unsigned long long>(measured.bytes),
                        measured.depth, measured.iops, point.iops, measured.mean_us, point.mean_us);
        for (const auto& [found, model] :
             {std::pair{measured.read_us, point.read_us}, {measured.write_us, point.write_us}}) {
          // Empty where there is no such request, or it was not measured separately.
          for (const double value : {found, model}) {
            text += ',';
            if (value > 0) text += format_text("%.3f", value);
          }
        }
        text += '\n';
      }
    }
  }
  return text;
}

}  // namespace kvreplay
