#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>

#include "base/parallel.hpp"
#include "base/progress.hpp"
#include "devices/calibration/comparison_report.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/device.hpp"

namespace kvreplay {
namespace {

struct CompareOptions {
  std::vector<std::string> names;
  std::string device;
  std::vector<std::string> sets;
  bool rows = false;
  bool csv = false;
  bool markdown = false;
  std::string plot;
  ConfigFolder configs = ConfigFolder::standard();
};

/// A measurement says nothing of a model, so --device names it.
std::vector<ComparedTable> compare_measurement(const CompareOptions& options,
                                               const std::string& file, int threads) {
  if (options.device.empty()) {
    throw UserError({file, ""}, "a measurement, which names no model", "it with --device DEVICE");
  }
  const MeasuredPoints measured = load_measured_points(file);
  for (const std::string& note : measured.notes) std::cerr << "kvreplay: " << note << '\n';
  const ConfigNode device =
      with_sets(options.configs.find("devices", options.device, {"--device", ""}), options.sets);
  return compare_points(device, options.device, file, measured, threads);
}

void compare_all(const CompareOptions& options) {
  std::vector<std::string> names;
  std::vector<std::string> measurements;
  for (const std::string& name : options.names) {
    const bool measured = std::filesystem::is_regular_file(name) && is_measurement(name);
    (measured ? measurements : names).push_back(name);
  }
  std::vector<MeasuredTable> tables;
  if (!names.empty() || measurements.empty()) {
    tables = find_measured_tables(options.configs, names);
  }
  const int threads = processor_count();
  std::vector<ComparedTable> all;
  Progress progress("Comparing", std::ssize(tables) + std::ssize(measurements));
  for (MeasuredTable& table : tables) {
    if (!options.device.empty()) {
      table.fitted = table.fitted && table.preset == options.device;
      table.preset = options.device;
    }
    const ConfigNode preset =
        with_sets(options.configs.find(
                      "devices", table.preset,
                      options.device.empty() ? SourceLocation{} : SourceLocation{"--device", ""}),
                  options.sets);
    all.push_back({table, compare(preset, table, threads)});
    progress.advance();
  }
  for (const std::string& file : measurements) {
    std::ranges::move(compare_measurement(options, file, threads), std::back_inserter(all));
    progress.advance();
  }
  if (options.csv) {
    std::cout << comparison_csv(all);
  } else if (options.markdown) {
    std::cout << comparison_markdown(all);
  } else {
    std::cout << comparison_text(all, options.rows);
  }
  if (!options.plot.empty()) {
    plot_csv("plot_overlay", comparison_csv(all), "Measured (points) and modelled (lines)",
             options.plot);
  }
}

}  // namespace

void add_device_compare(CLI::App& device) {
  CLI::App* command =
      device.add_subcommand("compare", "Compare the device models with published measurements");
  auto options = std::make_shared<CompareOptions>();
  command
      ->add_option("NAME", options->names,
                   "Tables of configs/measurements or presets (default: all), or files: a table, a "
                   "device on the base of a preset, or what `device probe` or fio measured")
      ->type_name("");
  command
      ->add_option("--device", options->device,
                   "Compare with this device, a file or a name from `list devices`, in place of "
                   "the preset that a table names")
      ->type_name("DEVICE");
  command->add_flag("--rows", options->rows, "Print each row, not only the median of the table");
  command->add_flag("--csv", options->csv, "Print one row per measured point");
  command->add_flag("--markdown", options->markdown,
                    "Print the table of docs/results/device-accuracy.md");
  add_set_option(*command, options->sets);
  add_plot_option(*command, options->plot);
  add_configs_option(*command, options->configs);
  command->footer(
      "The model runs at each measured point, with the same size, depth, pattern and range. An "
      "error is\n"
      "model / measured - 1; the median is of its absolute values. A device of your own is "
      "compared "
      "with the\n"
      "tables of the preset in its \"base\", or with what --device it is given.\n"
      "Examples:\n"
      "  kvreplay device compare\n"
      "  kvreplay device compare ./ufs41.json\n"
      "  kvreplay device compare probe.json --device ./my_phone.json --rows\n"
      "  kvreplay device compare ufs40 --rows --plot ufs40.png\n"
      "  kvreplay device compare ufs40_random_read --set channel_mb_s=650 --rows");
  command->callback([options] { compare_all(*options); });
}

}  // namespace kvreplay
