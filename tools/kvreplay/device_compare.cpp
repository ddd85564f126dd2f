#include <iostream>
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
  std::vector<std::string> sets;
  bool rows = false;
  bool csv = false;
  bool markdown = false;
  std::string plot;
  ConfigFolder configs = ConfigFolder::standard();
};

void compare_all(const CompareOptions& options) {
  const std::vector<MeasuredTable> tables = find_measured_tables(options.configs, options.names);
  const int threads = processor_count();
  std::vector<ComparedTable> all;
  Progress progress("Comparing", static_cast<std::int64_t>(tables.size()));
  for (const MeasuredTable& table : tables) {
    const ConfigNode preset = with_sets(
        options.configs.find("devices", table.preset, {}), options.sets);
    all.push_back({table, compare(preset, table, threads)});
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
                   "Tables of configs/measurements, files of such, or presets (default: all)")
      ->type_name("");
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
      "model / measured - 1; the median is of its absolute values.\n"
      "Examples:\n"
      "  kvreplay device compare\n"
      "  kvreplay device compare ufs40 --rows --plot ufs40.png\n"
      "  kvreplay device compare ufs40_random_read --set channel_mb_s=650 --rows");
  command->callback([options] { compare_all(*options); });
}

}  // namespace kvreplay
