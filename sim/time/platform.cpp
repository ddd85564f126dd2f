#include "sim/time/platform.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <vector>

namespace kvreplay {

std::span<const Parameter> PlatformSpec::parameters() {
  static const std::array kParameters{
      real_parameter("compute_gflop_s", "GFLOP/s", std::nullopt, {1e-3, 1e9},
                     "peak rate at the precision that kernels compute in"),
      real_parameter("compute_share", "", std::nullopt, {1e-3, 1},
                     "share of the peak rate that kernels reach"),
      real_parameter("dram_bandwidth_gb_s", "GB/s", std::nullopt, {1e-3, 1e6},
                     "peak DRAM bandwidth"),
      real_parameter("dram_bandwidth_share", "", std::nullopt, {1e-3, 1},
                     "share of the peak DRAM bandwidth that kernels reach"),
      integer_parameter("dram_bytes", "bytes", std::nullopt, {1, 1e15}, "size of the DRAM"),
      real_parameter("layer_overhead_us", "us", std::nullopt, {0, 1e6},
                     "kernel launches and synchronisation, once per layer and step"),
      real_parameter("selection_overhead_us", "us", std::nullopt, {0, 1e6},
                     "the same for scoring, top-k and gathering, in layers that select"),
      real_parameter(
          "sequence_overhead_us", "us", 0, {0, 1e6},
          "additional overhead per sequence of the batch in layers that select: slot tables, "
          "copies of entries"),
      real_parameter("compute_power_w", "W", 0, {0, 1e6},
                     "power of the processor while it computes, without DRAM; 0: not known"),
      real_parameter("waiting_power_w", "W", 0, {0, 1e6},
                     "power of the processor while it waits for I/O; 0: not known"),
      real_parameter("dram_pj_bit", "pJ/bit", 0, {0, 1e6},
                     "energy per bit read from or written to DRAM; 0: not known"),
      real_parameter("dram_idle_w", "W", 0, {0, 1e6},
                     "power of the DRAM whatever it does (refresh, standby); 0: not known"),
  };
  return kParameters;
}

PlatformSpec PlatformSpec::load(const std::string& file) {
  return parse(ConfigNode::load(file), std::filesystem::path(file).stem().string());
}

PlatformSpec PlatformSpec::parse(const ConfigNode& node, std::string name) {
  static const std::vector<std::string> kOthers{"title", "source"};
  PlatformSpec platform;
  platform.name = std::move(name);
  platform.arguments = parse_arguments(node, parameters(), kOthers);
  platform.title = node.at("title").text();
  platform.source = node.at("source").text();
  const Arguments& given = platform.arguments;
  platform.flops_s = given.real("compute_gflop_s") * given.real("compute_share") * 1e9;
  platform.dram_bytes_s =
      given.real("dram_bandwidth_gb_s") * given.real("dram_bandwidth_share") * 1e9;
  platform.dram_bytes = given.integer("dram_bytes");
  platform.layer_overhead_ns = std::llround(given.real("layer_overhead_us") * 1e3);
  platform.selection_overhead_ns = std::llround(given.real("selection_overhead_us") * 1e3);
  platform.sequence_overhead_ns = std::llround(given.real("sequence_overhead_us") * 1e3);
  platform.compute_power_w = given.real("compute_power_w");
  platform.waiting_power_w = given.real("waiting_power_w");
  platform.dram_pj_bit = given.real("dram_pj_bit");
  platform.dram_idle_w = given.real("dram_idle_w");
  return platform;
}

SimTime PlatformSpec::kernel_ns(double flops, double bytes) const {
  const double seconds = std::max(flops / flops_s, bytes / dram_bytes_s);
  return static_cast<SimTime>(std::ceil(seconds * 1e9));
}

}  // namespace kvreplay
