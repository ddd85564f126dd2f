#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>

#include "base/files.hpp"
#include "base/hash.hpp"
#include "base/output_file.hpp"
#include "base/parallel.hpp"
#include "base/progress.hpp"
#include "devices/calibration/calibration_report.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/device.hpp"

namespace kvreplay {
namespace {

const std::map<std::string, FittedPart> kParts{
    {"best", FittedPart::kBest}, {"flash", FittedPart::kFlash}, {"waves", FittedPart::kWaves}};

const std::map<std::string, WritePlaces> kWritePlaces{{"random", WritePlaces::kRandom},
                                                      {"sequential", WritePlaces::kSequential}};

struct CalibrateCommand {
  std::string measurement;
  std::string base = "nvme_jetson";
  std::string out;
  std::string blank;
  std::uint64_t hold_out_every = CalibrateOptions{}.hold_out_every;
  std::string part = "flash";
  std::string writes = "random";
  bool csv = false;
  ConfigFolder configs = ConfigFolder::standard();
};

void run_calibrate(const CalibrateCommand& options) {
  const std::string base_file = options.configs.file("devices", options.base, {});
  check_not_input(options.out, options.measurement);
  check_not_input(options.out, base_file);
  const ConfigNode base = options.configs.load("devices", base_file);
  const WritePlaces writes = kWritePlaces.at(options.writes);
  MeasuredPoints measured = load_measured_points(options.measurement, writes);
  if (!options.blank.empty()) {
    check_not_input(options.out, options.blank);
    const MeasuredPoints blank = load_measured_points(options.blank, writes);
    for (const std::string& note : blank.notes) {
      std::cerr << "kvreplay: " << options.blank << ": " << note << '\n';
    }
    tell_path(measured, blank, options.blank);
  }
  for (const std::string& note : measured.notes) std::cerr << "kvreplay: " << note << '\n';
  OutputFile output(options.out);  // first, so that no fitted preset is lost for lack of a place
  std::ofstream stream(output.temporary_path(), std::ios::binary);
  if (!stream) throw UserError({options.out, ""}, "cannot be written", "a writable folder");
  std::optional<Progress> progress;
  progress.emplace("calibrate", CalibrateOptions::kProgressUnits);
  const Calibration calibration = calibrate(base, measured.points,
                                            {.hold_out_every = options.hold_out_every,
                                             .points = {options.measurement, measured.place},
                                             .block_bytes = measured.block_bytes,
                                             .mixing = measured.mixing,
                                             .part = kParts.at(options.part),
                                             .threads = processor_count(),
                                             .progress = &*progress});
  progress.reset();
  if (predicts_writes(calibration)) {
    std::cerr << "kvreplay: the write points are too few to fit, so they are only predicted\n";
  }

  const std::string name = std::filesystem::path(options.out).stem().string();
  const std::string file = std::filesystem::path(options.measurement).filename().string();
  stream << preset_json(calibration, base, name, "calibrated from " + file,
                        calibration_notes(calibration, options.base),
                        file + " (" + measured.source + ", sha256 " +
                            sha256_file(options.measurement).substr(0, 12) + ")");
  stream.close();
  if (!stream) throw UserError({options.out, ""}, "cannot be written", "free space");
  output.commit();
  std::cout << (options.csv ? calibration_csv(calibration)
                            : calibration_text(calibration, measured.mixing.value_or(0)));
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
  command->add_option("--out", options->out, "The preset to write; its name is that of the file")
      ->required()
      ->type_name("FILE");
  command
      ->add_option(
          "--base", options->base,
          "Start of the search, and source of what is not fitted: a file or a name from `list "
          "devices`")
      ->type_name("DEVICE")
      ->capture_default_str();
  command
      ->add_option("--hold-out", options->hold_out_every,
                   "Hold out every N-th point of the reads, and of the writes, to "
                   "judge the fit by; 0: none")
      ->type_name("N")
      ->check(in_range(0, 1000))
      ->capture_default_str();
  command
      ->add_option("--blank", options->blank,
                   "A measurement, of the same sizes at depth 1, of a device that takes no time, "
                   "reached in the same way; the time of the way is left out of the model")
      ->type_name("FILE");
  command
      ->add_option("--part", options->part,
                   "Which model: flash; waves, for virtual and cached disks; best, whichever is "
                   "nearer to the points that were not fitted, reads counted twice")
      ->type_name("flash|waves|best")
      ->check(one_of(kParts))
      ->capture_default_str();
  command
      ->add_option("--writes", options->writes,
                   "Fit the writes of a probe at random places, or those in sequence, as a prompt "
                   "is written; reads are random ones")
      ->type_name("random|sequential")
      ->check(one_of(kWritePlaces))
      ->capture_default_str();
  command->add_flag("--csv", options->csv, "Print one row per point in place of the tables");
  add_configs_option(*command, options->configs);
  command->footer(
      "Reads determine the parameters of reads; with these fixed, writes determine theirs. "
      "Mixes "
      "of both are predicted, never fitted. Reads in sequence are left out.\n"
      "Examples:\n"
      "  kvreplay device probe /data/test.bin --create 2G --mix 0,30,100 --out probe.json\n"
      "  kvreplay device calibrate probe.json --base ufs40 --out configs/devices/my_phone.json");
  command->callback([options] { run_calibrate(*options); });
}

}  // namespace kvreplay
