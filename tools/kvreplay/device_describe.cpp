#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <memory>

#include "base/parallel.hpp"
#include "devices/calibration/measure.hpp"
#include "devices/device_config.hpp"
#include "sim/replay/experiment.hpp"
#include "tools/kvreplay/device.hpp"

namespace kvreplay {
namespace {

struct DescribeOptions {
  std::string device;
  std::vector<std::uint64_t> sizes{512,      4 << 10,   8 << 10,   16 << 10,  24 << 10, 32 << 10,
                                   64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20};
  std::vector<std::uint32_t> depths{1, 2, 4, 8, 16, 32};
  double write_percent = 0;
  std::uint64_t range_bytes = Workload{}.range_bytes;
  std::vector<std::string> sets;
  bool sequential = false;
  bool csv = false;
  std::string plot;
  std::string configs = ConfigFolder::standard().folder();
};

/// By size, then depth.
std::vector<Measurement> measure_grid(const DeviceSpec& spec, const DescribeOptions& options) {
  const std::size_t columns = options.depths.size();
  std::vector<Measurement> cells(options.sizes.size() * columns);
  const int threads = processor_count();
  parallel_for(static_cast<std::int64_t>(cells.size()), threads, [&](std::int64_t index) {
    const auto cell = static_cast<std::size_t>(index);
    const std::uint32_t depth = options.depths[cell % columns];
    // Enough for a mean within about 1 %; fewer of the large ones, which spread over all dies.
    const std::uint64_t bytes = options.sizes[cell / columns];
    const std::uint64_t requests =
        std::max<std::uint64_t>(bytes > (128 << 10) ? 1000 : 4000, 50 * std::uint64_t{depth});
    cells[cell] = measure(spec, {.bytes = bytes,
                                 .depth = depth,
                                 .requests = requests,
                                 .write_share = options.write_percent / 100,
                                 .range_bytes = options.range_bytes,
                                 .sequential = options.sequential});
  });
  return cells;
}

void print_table(const char* title, const std::vector<Measurement>& cells,
                 const DescribeOptions& options, double Measurement::*value) {
  std::printf("\n%s\n%8s", title, "size");
  for (const std::uint32_t depth : options.depths) std::printf(" %8s%-2u", "depth ", depth);
  std::printf("\n");
  auto cell = cells.begin();
  for (const std::uint64_t size : options.sizes) {
    std::printf("%8s", size_text(size).c_str());
    for (std::size_t i = 0; i < options.depths.size(); ++i) {
      const double number = (*cell++).*value;
      std::printf(" %10.*f", number < 100 ? 1 : 0, number);
    }
    std::printf("\n");
  }
}

std::string csv_text(const DeviceSpec& spec, const std::vector<Measurement>& cells,
                     const DescribeOptions& options) {
  std::string text =
      "device,range_bytes,bytes,depth,write_share,iops,mb_s,mean_us,p50_us,p90_us,p99_us,p999_us\n";
  std::array<char, 256> line{};
  auto cell = cells.begin();
  for (const std::uint64_t size : options.sizes) {
    for (const std::uint32_t depth : options.depths) {
      const Measurement& m = *cell++;
      std::snprintf(line.data(), line.size(),
                    ",%llu,%llu,%u,%g,%.1f,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f\n",
                    static_cast<unsigned long long>(options.range_bytes),
                    static_cast<unsigned long long>(size), depth, options.write_percent / 100,
                    m.iops, m.mb_s, m.mean_us, m.p50_us, m.p90_us, m.p99_us, m.p999_us);
      text += spec.name + line.data();
    }
  }
  return text;
}

void describe(const DescribeOptions& options) {
  const ConfigFolder configs(options.configs);
  const DeviceSpec spec = DeviceSpec::parse(
      with_sets(ConfigNode::load(configs.file("devices", options.device, {})), options.sets));
  const std::vector<Measurement> cells = measure_grid(spec, options);
  const std::string what = std::string(options.sequential ? "sequential " : "random ") +
                           (options.write_percent == 0     ? "reads"
                            : options.write_percent == 100 ? "writes"
                                                           : "reads and writes") +
                           " over " + size_text(options.range_bytes);
  if (options.csv) {
    std::cout << csv_text(spec, cells, options);
  } else {
    std::printf("%s: %s\n", spec.name.c_str(), spec.title.c_str());
    if (!spec.notes.empty()) std::printf("%s\n", spec.notes.c_str());
    print_table(("Bandwidth of " + what + " (MB/s)").c_str(), cells, options, &Measurement::mb_s);
    print_table(("IOPS of " + what).c_str(), cells, options, &Measurement::iops);
    print_table("Mean latency (us)", cells, options, &Measurement::mean_us);
  }
  if (!options.plot.empty()) {
    plot_csv("plot_device", csv_text(spec, cells, options),
             spec.name + " (" + spec.title + "): " + what, options.plot);
  }
}

}  // namespace

void add_device_describe(CLI::App& device) {
  CLI::App* command =
      device.add_subcommand("describe", "What a device model reaches, by request size and depth");
  auto options = std::make_shared<DescribeOptions>();
  command
      ->add_option("DEVICE", options->device,
                   "A file such as configs/devices/ufs40.json, or a name from `list devices`")
      ->required()
      ->type_name("");
  as_list(add_size_option(*command, "--size", options->sizes, "Request sizes"))
      ->type_name("BYTES,...")
      ->check(in_range(1.0, 1e9));
  as_list(command->add_option("--depth", options->depths, "Outstanding requests"))
      ->type_name("N,...")
      ->check(in_range(1, 4096));
  command->add_option("--mix", options->write_percent, "Percent of requests that are writes")
      ->type_name("0..100")
      ->check(in_range(0.0, 100.0))
      ->capture_default_str();
  add_size_option(
      *command, "--range", options->range_bytes,
      "Requests lie below this offset; what the map cache holds is faster. For a probe: the "
      "size of its target")
      ->type_name("BYTES")
      ->default_str("64G")
      ->check(in_range(1.0, 1e15));
  command->add_flag("--sequential", options->sequential,
                    "One request after the other in the range");
  add_set_option(*command, options->sets);
  add_plot_option(*command, options->plot);
  command->add_flag("--csv", options->csv,
                    "One row a size and depth; `tools/plot device` draws it");
  command->add_option("--configs", options->configs, "Where names are looked up")->type_name("DIR");
  command->footer(
      "Examples:\n"
      "  kvreplay device describe emmc51 --size 512,4K,24K,128K --depth 1,8,31\n"
      "  kvreplay device describe ufs40 --range 512M --plot ufs40.png\n"
      "  kvreplay device describe emmc51 --set command_queue=false --mix 30");
  command->callback([options] { describe(*options); });
}

}  // namespace kvreplay
