#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "devices/calibration/calibrate.hpp"
#include "devices/calibration/measured_points.hpp"
#include "sim/base/files.hpp"
#include "sim/base/hash.hpp"
#include "sim/base/output_file.hpp"
#include "sim/base/parallel.hpp"
#include "sim/base/progress.hpp"
#include "sim/experiment.hpp"
#include "tools/kvreplay/device.hpp"

namespace kvreplay {
namespace {

struct CalibrateCommand {
  std::string measurement;
  std::string base = "nvme_jetson";
  std::string out;
  std::uint64_t hold_out_every = CalibrateOptions{}.hold_out_every;
  std::string configs = ConfigFolder::standard().folder();
};

/// Median and greatest of the absolute errors, in percent.
struct ErrorSummary {
  std::size_t points = 0;
  double median = 0;
  double greatest = 0;
};

ErrorSummary error_summary(const Calibration& calibration, bool held_out) {
  std::vector<double> errors;
  for (const FittedPoint& point : calibration.points) {
    if (point.held_out == held_out) errors.push_back(100 * std::abs(point.iops_error()));
  }
  if (errors.empty()) return {};
  std::sort(errors.begin(), errors.end());
  return {errors.size(), errors[errors.size() / 2], errors.back()};
}

std::string to_text(const ErrorSummary& summary) {
  char text[100];
  std::snprintf(text, sizeof text, "median %.1f %%, greatest %.1f %% of %zu points", summary.median,
                summary.greatest, summary.points);
  return text;
}

void print_points(const Calibration& calibration, bool held_out) {
  std::printf("\n%s\n%8s %6s %11s %11s %8s %11s %11s %8s\n",
              held_out ? "Held out of the fit" : "Fitted", "size", "depth", "IOPS", "model",
              "error", "mean us", "model", "error");
  for (const FittedPoint& point : calibration.points) {
    if (point.held_out != held_out) continue;
    std::printf("%8s %6u %11.0f %11.0f %+7.1f%%", size_text(point.measured.bytes).c_str(),
                point.measured.depth, point.measured.iops, point.iops, 100 * point.iops_error());
    if (point.measured.mean_us > 0) {
      std::printf(" %11.1f %11.1f %+7.1f%%", point.measured.mean_us, point.mean_us,
                  100 * point.latency_error());
    }
    std::printf("\n");
  }
}

void run_calibrate(const CalibrateCommand& options) {
  const ConfigFolder configs(options.configs);
  const std::string base_file = configs.file("devices", options.base, {});
  check_not_input(options.out, options.measurement);
  check_not_input(options.out, base_file);
  const ConfigNode base = ConfigNode::load(base_file);
  const MeasuredPoints measured = load_measured_points(options.measurement);
  for (const std::string& note : measured.notes) std::cerr << "kvreplay: " << note << '\n';
  std::optional<Progress> progress;
  progress.emplace("calibrate", CalibrateOptions::kProgressUnits);
  const Calibration calibration = calibrate(base, measured.points,
                                            {.hold_out_every = options.hold_out_every,
                                             .file = options.measurement,
                                             .block_bytes = measured.block_bytes,
                                             .threads = processor_count(),
                                             .progress = &*progress});
  progress.reset();

  const ErrorSummary fit = error_summary(calibration, false);
  const ErrorSummary held_out = error_summary(calibration, true);
  const std::string name = std::filesystem::path(options.out).stem().string();
  const std::string file = std::filesystem::path(options.measurement).filename().string();
  const std::string from = file + " (" + measured.source + ", sha256 " +
                           sha256_file(options.measurement).substr(0, 12) + ")";
  std::string notes =
      "Fitted to random reads from " + options.base + ". Error of IOPS: fitted " + to_text(fit);
  if (held_out.points > 0) notes += ", held out " + to_text(held_out);
  notes += ". Writes are not fitted.";
  write_text_file(options.out, preset_json(calibration, base, name, "calibrated from " + file,
                                           notes, "calibrated from " + from));

  print_points(calibration, false);
  if (held_out.points > 0) print_points(calibration, true);
  std::printf("\nError of IOPS: fitted %s", to_text(fit).c_str());
  if (held_out.points > 0) std::printf("; held out %s", to_text(held_out).c_str());
  std::printf("\n");
  for (const auto& [parameter, value] : calibration.fitted) {
    std::printf("%-20s %10g\n", parameter.c_str(), value);
  }
  for (const auto& [parameter, value] : calibration.untold) {
    std::printf("%-20s %10g  the base's: these points do not tell it\n", parameter.c_str(), value);
  }
  std::cerr << "kvreplay: wrote " << options.out << " (" << calibration.evaluations
            << " models tried)\n";
}

}  // namespace

void add_device_calibrate(CLI::App& device) {
  CLI::App* command = device.add_subcommand(
      "calibrate", "Fit a device model to the random reads of a probe or of fio");
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
                   "Keep every N-th point out of the fit, to judge it by; 0: none")
      ->type_name("N")
      ->check(in_range(0, 1000))
      ->capture_default_str();
  command->add_option("--configs", options->configs, "Where names are looked up")->type_name("DIR");
  command->footer(
      "Example:\n"
      "  kvreplay device calibrate probe.json --base ufs40 --out configs/devices/my_phone.json");
  command->callback([options] { run_calibrate(*options); });
}

}  // namespace kvreplay
