#include <algorithm>
#include <iostream>
#include <memory>

#include "base/parallel.hpp"
#include "devices/calibration/measure_grid.hpp"
#include "devices/device_config.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/device.hpp"

namespace kvreplay {
namespace {

struct DescribeOptions {
  std::string device;
  Grid grid;
  std::vector<std::uint32_t> depths;  ///< empty: those of the grid, and the device's queue
  std::vector<std::string> sets;
  bool csv = false;
  std::string plot;
  ConfigFolder configs = ConfigFolder::standard();
};

/// What a deep queue reaches is part of what a device does.
void add_queue_depth(const DeviceSpec& spec, std::vector<std::uint32_t>& depths) {
  const std::vector<Parameter>& all = spec.device.part().parameters;
  const bool has = std::any_of(all.begin(), all.end(), [](const Parameter& parameter) {
    return parameter.name == "queue_depth";
  });
  if (!has) return;
  const auto depth = static_cast<std::uint32_t>(spec.device.arguments().integer("queue_depth"));
  if (depth > depths.back() && depth <= 4096) depths.push_back(depth);
}

void describe(const DescribeOptions& options) {
  const DeviceSpec spec = DeviceSpec::parse(
      with_sets(options.configs.find("devices", options.device, {}), options.sets));
  Grid grid = options.grid;
  if (options.depths.empty()) {
    add_queue_depth(spec, grid.depths);
  } else {
    grid.depths = options.depths;
  }
  const std::vector<Measurement> cells = measure_grid(spec, grid, processor_count());
  if (options.csv) {
    std::cout << grid_csv(spec.name, grid, cells);
  } else {
    std::cout << spec.name << ": " << spec.title << '\n';
    if (!spec.notes.empty()) std::cout << spec.notes << '\n';
    std::cout << grid_text(grid, cells);
  }
  if (!options.plot.empty()) {
    plot_csv("plot_device", grid_csv(spec.name, grid, cells),
             spec.name + " (" + spec.title + "): " + grid.text(), options.plot);
  }
}

}  // namespace

void add_device_describe(CLI::App& device) {
  CLI::App* command =
      device.add_subcommand("describe", "What a device model reaches, by request size and depth");
  auto options = std::make_shared<DescribeOptions>();
  Grid& grid = options->grid;
  command
      ->add_option("DEVICE", options->device,
                   "A file such as configs/devices/ufs40.json, or a name from `list devices`")
      ->required()
      ->type_name("");
  as_list(add_size_option(*command, "--size", grid.sizes, "Request sizes",
                          {.min = 1, .max = 1'000'000'000}))
      ->type_name("SIZE,...");
  as_list(command->add_option("--depth", options->depths,
                              "Outstanding requests (default: 1 to 32, and the device's queue "
                              "where it is deeper)"))
      ->type_name("N,...")
      ->check(in_range(1, 4096));
  command->add_option("--mix", grid.write_percent, "Percent of requests that are writes")
      ->type_name("0..100")
      ->check(in_range(0.0, 100.0))
      ->capture_default_str();
  add_size_option(
      *command, "--range", grid.range_bytes,
      "Upper limit of the offsets; offsets within the map cache are faster. For a probe: the "
      "size of its target",
      {.example = "64GiB", .min = 1, .max = 1'000'000'000'000'000})
      ->default_str("64G");
  command->add_flag("--sequential", grid.sequential, "Read the range in order");
  add_set_option(*command, options->sets);
  add_plot_option(*command, options->plot);
  command->add_flag("--csv", options->csv,
                    "Print one row per size and depth, which tools/plot device draws");
  add_configs_option(*command, options->configs);
  command->footer(
      "Examples:\n"
      "  kvreplay device describe emmc51 --size 512,4K,24K,128K --depth 1,8,31\n"
      "  kvreplay device describe ufs40 --range 512M --plot ufs40.png\n"
      "  kvreplay device describe emmc51 --set command_queue=false --mix 30");
  command->callback([options] { describe(*options); });
}

}  // namespace kvreplay
