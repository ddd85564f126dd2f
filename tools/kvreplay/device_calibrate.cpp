#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <tuple>

#include "base/files.hpp"
#include "base/hash.hpp"
#include "base/output_file.hpp"
#include "base/parallel.hpp"
#include "base/progress.hpp"
#include "base/statistics.hpp"
#include "devices/calibration/calibrate.hpp"
#include "devices/calibration/measured_points.hpp"
#include "sim/replay/experiment.hpp"
#include "tools/kvreplay/device.hpp"

namespace kvreplay {
namespace {

struct CalibrateCommand {
  std::string measurement;
  std::string base = "nvme_jetson";
  std::string out;
  std::string blank;
  std::uint64_t hold_out_every = CalibrateOptions{}.hold_out_every;
  bool csv = false;
  std::string configs = ConfigFolder::standard().folder();
};

enum class Kind { kReads, kWrites, kMixes };
constexpr std::array kKinds{Kind::kReads, Kind::kWrites, Kind::kMixes};
constexpr std::array kUses{PointUse::kFitted, PointUse::kHeldOut, PointUse::kPredicted};

const char* to_text(Kind kind) {
  return kind == Kind::kReads ? "reads" : kind == Kind::kWrites ? "writes" : "mixes";
}
const char* to_text(PointUse use) {
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

/// Of their absolute values, in percent.
std::string median_and_greatest(std::vector<double> errors) {
  for (double& error : errors) error = 100 * std::abs(error);
  std::array<char, 100> text{};
  const double greatest = *std::max_element(errors.begin(), errors.end());
  std::snprintf(text.data(), text.size(), "median %.1f %%, greatest %.1f %%",
                median(std::move(errors)), greatest);
  return text.data();
}

std::string error_text(const std::vector<FittedPoint>& points) {
  std::vector<double> errors;
  errors.reserve(points.size());
  for (const FittedPoint& point : points) errors.push_back(point.iops_error());
  return median_and_greatest(std::move(errors)) + " of " + std::to_string(points.size()) +
         " points";
}

/// Of what mixes are measured for: how reads and writes disturb each other.
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
            median_and_greatest(std::move(errors));
  }
  return text;
}

/// Errors of the kinds that were measured; reads alone are not named.
std::vector<std::string> error_texts(const Calibration& calibration) {
  std::vector<std::string> texts;
  for (const Kind kind : kKinds) {
    std::string text;
    for (const PointUse use : kUses) {
      const std::vector<FittedPoint> points = points_of(calibration, kind, use);
      if (points.empty()) continue;
      text += (text.empty() ? "" : ", ") + std::string(to_text(use)) + " " + error_text(points);
      const std::string latencies = kind == Kind::kMixes ? mix_latency_text(points) : "";
      if (!latencies.empty()) text += " (" + latencies + ")";
    }
    if (!text.empty()) texts.push_back(std::string(to_text(kind)) + " " + text);
  }
  if (texts.size() == 1 && has(calibration, Kind::kReads, PointUse::kFitted)) {
    texts.front().erase(0, std::string("reads ").size());
  }
  return texts;
}

std::string notes_of(const Calibration& calibration, const std::string& base) {
  const bool reads = has(calibration, Kind::kReads, PointUse::kFitted);
  const bool writes = has(calibration, Kind::kWrites, PointUse::kFitted);
  return std::string("Fitted to random ") + (reads ? "reads" : "") +
         (reads && writes ? " and " : "") + (writes ? "writes" : "") + ", beginning at " + base +
         ". Error of IOPS: " + join(error_texts(calibration), "; ") +
         (writes ? "." : ". Writes are not fitted.");
}

void print_cell(double measured, double model) {
  if (measured > 0) {
    std::printf(" %11.1f %11.1f %+7.1f%%", measured, model, 100 * (model / measured - 1));
  } else {
    std::printf(" %11s %11.1f %8s", "", model, "");
  }
}

void print_points(const Calibration& calibration, Kind kind, PointUse use) {
  const std::vector<FittedPoint> points = points_of(calibration, kind, use);
  if (points.empty()) return;
  const bool mixes = kind == Kind::kMixes;
  std::string title = std::string(to_text(kind)) + ", " + to_text(use);
  title.front() = static_cast<char>(std::toupper(title.front()));
  std::printf("\n%s\n%8s %6s", title.c_str(), "size", "depth");
  if (mixes) std::printf(" %8s", "writes %");
  std::printf(" %11s %11s %8s", "IOPS", "model", "error");
  const auto head = [](const char* latency) {
    std::printf(" %11s %11s %8s", latency, "model", "error");
  };
  head(mixes ? "read us" : "mean us");
  if (mixes) head("write us");
  std::printf("\n");
  for (const FittedPoint& point : points) {
    const MeasuredPoint& measured = point.measured;
    std::printf("%8s %6u", size_text(measured.bytes).c_str(), measured.depth);
    if (mixes) std::printf(" %8g", 100 * measured.write_share);
    std::printf(" %11.0f %11.0f %+7.1f%%", measured.iops, point.iops, 100 * point.iops_error());
    if (mixes) {
      print_cell(measured.read_us, point.read_us);
      print_cell(measured.write_us, point.write_us);
    } else {
      print_cell(measured.mean_us, point.mean_us);
    }
    std::printf("\n");
  }
}

void print_csv(const Calibration& calibration) {
  std::printf(
      "kind,use,write_share,bytes,depth,iops,model_iops,mean_us,model_mean_us,read_us,"
      "model_read_us,write_us,model_write_us\n");
  for (const Kind kind : kKinds) {
    for (const PointUse use : kUses) {
      for (const FittedPoint& point : points_of(calibration, kind, use)) {
        const MeasuredPoint& measured = point.measured;
        std::printf("%s,%s,%g,%llu,%u,%.1f,%.1f,%.3f,%.3f", to_text(kind), to_text(use),
                    measured.write_share, static_cast<unsigned long long>(measured.bytes),
                    measured.depth, measured.iops, point.iops, measured.mean_us, point.mean_us);
        for (const auto& [found, model] :
             {std::pair{measured.read_us, point.read_us}, {measured.write_us, point.write_us}}) {
          // Empty where there is no such request, or it was not told apart.
          for (const double value : {found, model}) {
            std::printf(",");
            if (value > 0) std::printf("%.3f", value);
          }
        }
        std::printf("\n");
      }
    }
  }
}

void print_report(const Calibration& calibration, double mixing) {
  for (const Kind kind : kKinds) {
    for (const PointUse use : kUses) print_points(calibration, kind, use);
  }
  std::printf("\n");
  for (const std::string& text : error_texts(calibration)) {
    std::printf("Error of IOPS: %s\n", text.c_str());
  }
  for (const auto& [parameter, value] : calibration.fitted) {
    std::printf("%-20s %10g%s\n", parameter.c_str(), value,
                calibration.decided_by_writes.contains(parameter) ? "  by the writes" : "");
  }
  for (const auto& [parameter, value] : calibration.told) {
    std::printf("%-20s %10s  by the burst, mixing %.2f\n", parameter.c_str(), value.c_str(),
                mixing);
  }
  for (const auto& [parameter, value] : calibration.untold) {
    std::printf("%-20s %10g  the base's: these points do not tell it\n", parameter.c_str(), value);
  }
}

void run_calibrate(const CalibrateCommand& options) {
  const ConfigFolder configs(options.configs);
  const std::string base_file = configs.file("devices", options.base, {});
  check_not_input(options.out, options.measurement);
  check_not_input(options.out, base_file);
  const ConfigNode base = ConfigNode::load(base_file);
  MeasuredPoints measured = load_measured_points(options.measurement);
  if (!options.blank.empty()) {
    check_not_input(options.out, options.blank);
    const MeasuredPoints blank = load_measured_points(options.blank);
    for (const std::string& note : blank.notes) {
      std::cerr << "kvreplay: " << options.blank << ": " << note << '\n';
    }
    tell_path(measured, blank, options.blank);
  }
  for (const std::string& note : measured.notes) std::cerr << "kvreplay: " << note << '\n';
  OutputFile output(options.out);  // first: a preset without a place would be lost
  std::ofstream stream(output.temporary_path(), std::ios::binary);
  if (!stream) throw UserError({options.out, ""}, "cannot be written", "a writable folder");
  std::optional<Progress> progress;
  progress.emplace("calibrate", CalibrateOptions::kProgressUnits);
  const Calibration calibration = calibrate(base, measured.points,
                                            {.hold_out_every = options.hold_out_every,
                                             .points = {options.measurement, measured.place},
                                             .block_bytes = measured.block_bytes,
                                             .mixing = measured.mixing,
                                             .threads = processor_count(),
                                             .progress = &*progress});
  progress.reset();
  if (has(calibration, Kind::kWrites, PointUse::kPredicted)) {
    std::cerr << "kvreplay: the points of writes are too few to be fitted, and only predicted\n";
  }

  const std::string name = std::filesystem::path(options.out).stem().string();
  const std::string file = std::filesystem::path(options.measurement).filename().string();
  stream << preset_json(calibration, base, name, "calibrated from " + file,
                        notes_of(calibration, options.base),
                        file + " (" + measured.source + ", sha256 " +
                            sha256_file(options.measurement).substr(0, 12) + ")");
  stream.close();
  if (!stream) throw UserError({options.out, ""}, "cannot be written", "free space");
  output.commit();
  if (options.csv) {
    print_csv(calibration);
  } else {
    print_report(calibration, measured.mixing.value_or(0));
  }
  std::cerr << "kvreplay: wrote " << options.out << " (" << calibration.evaluations
            << " models tried)\n";
}

}  // namespace

void add_device_calibrate(CLI::App& device) {
  CLI::App* command = device.add_subcommand(
      "calibrate", "Fit a device model to the random reads and writes of a probe or of fio");
  auto options = std::make_shared<CalibrateCommand>();
  command
      ->add_option("MEASUREMENT", options->measurement,
                   "The JSON of `device probe`, or of fio --output-format=json")
      ->required()
      ->type_name("");
  command->add_option("--out", options->out, "The preset to write; its name is the file's")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--base", options->base,
                   "Where the search begins, and what is not fitted: a file or a name from `list "
                   "devices`")
      ->type_name("DEVICE")
      ->capture_default_str();
  command
      ->add_option("--hold-out", options->hold_out_every,
                   "Keep every N-th point of the reads, and of the writes, out of the fit, to "
                   "judge it by; 0: none")
      ->type_name("N")
      ->check(in_range(0, 1000))
      ->capture_default_str();
  command
      ->add_option("--blank", options->blank,
                   "A measurement, of the same sizes at depth 1, of a device that takes no time, "
                   "reached in the same way: what the way takes is left out of the model")
      ->type_name("FILE");
  command->add_flag("--csv", options->csv, "Print one row a point in place of the tables");
  command->add_option("--configs", options->configs, "Where names are looked up")->type_name("DIR");
  command->footer(
      "Reads decide what reads depend on; with that held, writes decide the times of a write. "
      "Mixes "
      "of both are predicted, never fitted. Requests in sequence are left out.\n"
      "Examples:\n"
      "  kvreplay device probe /data/test.bin --create 2G --mix 0,30,100 --out probe.json\n"
      "  kvreplay device calibrate probe.json --base ufs40 --out configs/devices/my_phone.json");
  command->callback([options] { run_calibrate(*options); });
}

}  // namespace kvreplay
