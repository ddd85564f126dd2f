#include "sim/time/platform.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/argument_json.hpp"
#include "base/error.hpp"
#include "base/number_text.hpp"

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
      real_parameter("cache_insert_us", "us", 0, {0, 1e6},
                     "processor time per read that a cache keeps: its slot found, the entries put "
                     "there"),
      real_parameter("append_overhead_us", "us", 0, {0, 1e6},
                     "processor time per layer and step that writes new entries to the device"),
      real_parameter("similarity_bytes", "bytes", 0, {0, 64},
                     "DRAM traffic of a clustering per key, centroid and iteration: 0 where the "
                     "nearest centroid is found during the products, 4 where similarities of 16 "
                     "bits are stored and read back"),
      real_parameter("compute_power_w", "W", 0, {0, 1e6},
                     "power of the processor while it computes, without DRAM; 0: not known"),
      real_parameter("waiting_power_w", "W", 0, {0, 1e6},
                     "power of the processor while it waits for I/O; 0: not known"),
      real_parameter("dram_pj_bit", "pJ/bit", 0, {0, 1e6},
                     "energy per bit read from or written to DRAM; 0: not known"),
      real_parameter("dram_idle_w", "W", 0, {0, 1e6},
                     "power of the DRAM whatever it does (refresh, standby); 0: not known"),
      real_parameter("throttled_rate_percent", "%", 100, {1, 100},
                     "rate of kernels while the mean power is at sustained_power_w; 100: the "
                     "processor is not throttled"),
      real_parameter("sustained_power_w", "W", 0, {0, 1e6},
                     "power that the processor may take for any time, and takes while throttled"),
      real_parameter("power_time_constant_s", "s", 60, {0.001, 1e6},
                     "time in which the mean power gets to within 1/e of a new power"),
  };
  return kParameters;
}

namespace {

/// Longest time of a kernel, us; sums of millions of them can still be counted in nanoseconds.
constexpr double kMostUs = 1e9;

/// [[work, us], ...]
MeasuredKernel parse_points(const ConfigNode& node) {
  std::vector<MeasuredKernel::Point> points;
  if (node.raw().empty()) {
    throw UserError(node.place(), "found no points", "[work, us] once or more");
  }
  for (const ConfigNode& item : node.items()) {
    const nlohmann::json& pair = item.raw();
    const bool numbers =
        pair.is_array() && pair.size() == 2 && pair[0].is_number() && pair[1].is_number();
    if (!numbers || !(pair[0].get<double>() > 0) || !(pair[1].get<double>() > 0) ||
        pair[1].get<double>() > kMostUs ||
        (!points.empty() && pair[0].get<double>() <= points.back().work)) {
      throw UserError(
          item.place(), "found " + pair.dump(),
          "[work, us], both above 0, us up to 1e9, with more work than the point before");
    }
    points.push_back({pair[0].get<double>(), pair[1].get<double>()});
  }
  return MeasuredKernel(std::move(points));
}

/// [[work, us], ...], or such a list for each part
MeasuredKind parse_kind(const ConfigNode& node, std::string_view name) {
  MeasuredKind kind;
  const bool of_transfers = name == "wake" || name == "beside";
  const bool whole = name == "matrix_vector" || name == "fetch" || name == "submit" ||
                     name == "factorise" || name == "hand_over";
  if (node.is_object() ? whole : of_transfers) {
    throw UserError(
        node.place(), node.is_object() ? "found parts" : "found no parts",
        whole ? "[[work, us], ...]" : "such lists for transfer, command, kib and write");
  }
  if (!node.is_object()) {
    kind.any = parse_points(node);
    return kind;
  }
  static const std::vector<std::string> kOfTransfers{"transfer", "command", "kib", "write"};
  if (of_transfers) node.allow_only(kOfTransfers);
  for (const std::string& part : node.keys()) kind.parts[part] = parse_points(node.at(part));
  return kind;
}

MeasuredKernels parse_kernels(const ConfigNode& node) {
  MeasuredKernels kernels;
  std::vector<std::string> members{"source", "weight_bits", "threads", "about"};
  MeasuredKernels::for_kinds(kernels,
                             [&](const char* name, MeasuredKind&) { members.emplace_back(name); });
  node.allow_only(members);
  const auto number = [&](const char* name) {
    const nlohmann::json& value = node.at(name).raw();
    if (!value.is_number() || !(value.get<double>() > 0)) {
      throw UserError(node.at(name).place(), "found " + value.dump(), "a number above 0");
    }
    return value.get<double>();
  };
  kernels.source = node.at("source").text();
  kernels.weight_bits = number("weight_bits");
  kernels.threads = std::llround(number("threads"));
  MeasuredKernels::for_kinds(kernels, [&](const char* name, MeasuredKind& kind) {
    if (node.has(name)) kind = parse_kind(node.at(name), name);
  });
  return kernels;
}

/// Of a kernel that is measured by a time (us): within its points, and beyond them as at the
/// nearest.
SimTime within_points(const MeasuredKernel& kernel, SimTime idle_ns) {
  const std::span<const MeasuredKernel::Point> points = kernel.points();
  const double idle_us = static_cast<double>(idle_ns) * 1e-3;
  return kernel.ns(std::clamp(idle_us, points.front().work, points.back().work));
}

}  // namespace

SimTime MeasuredKernel::ns(double work) const {
  const auto at = std::find_if(points_.begin(), points_.end(),
                               [&](const Point& point) { return point.work >= work; });
  double us = 0;
  if (points_.size() == 1) {
    us = points_.front().us * work / points_.front().work;
  } else {
    const auto last = std::clamp(at, points_.begin() + 1, points_.end() - 1);
    const auto first = last - 1;
    us = first->us + (work - first->work) * (last->us - first->us) / (last->work - first->work);
  }
  return static_cast<SimTime>(std::ceil(std::clamp(us, 0.0, kMostUs) * 1e3));
}

SimTime MeasuredKernels::hand_over_time_ns(SimTime idle_ns) const {
  return hand_over.any.measured() ? within_points(hand_over.any, idle_ns) : 0;
}

SimTime MeasuredKernels::transfer_delay_ns(SimTime idle_ns, std::int64_t commands,
                                           std::int64_t bytes, bool writing, bool computing) const {
  const MeasuredKind& kind = computing ? beside : wake;
  const auto after_idle = [&](const char* part) -> SimTime {
    const MeasuredKernel* kernel = kind.find(part);
    if (kernel == nullptr || (idle_ns <= 0 && !computing)) return 0;
    return within_points(*kernel, idle_ns);
  };
  if (writing) return after_idle("write");
  return after_idle("transfer") + commands * after_idle("command") +
         bytes * after_idle("kib") / 1024;
}

std::string PlatformSpec::resolved() const {
  nlohmann::json object = to_json(arguments);
  if (kernels) object["kernels"] = nlohmann::json::parse(kernels_text);
  return object.dump();
}

PlatformSpec PlatformSpec::load(const std::string& file, const ConfigFolder& configs) {
  return parse(configs.load("platforms", file), std::filesystem::path(file).stem().string());
}

PlatformSpec PlatformSpec::parse(const ConfigNode& node, std::string name) {
  static const std::vector<std::string> kRequired{"title"};
  static const std::vector<std::string> kOthers{"name", "title", "source", "notes", "kernels"};
  check_complete(node, kRequired, parameters());
  PlatformSpec platform;
  ConfigHeader header = ConfigHeader::parse(node, std::move(name));
  platform.name = std::move(header.name);
  platform.title = std::move(header.title);
  platform.source = std::move(header.source);
  platform.notes = std::move(header.notes);
  platform.arguments = parse_arguments(node, parameters(), kOthers);
  const Arguments& given = platform.arguments;
  platform.flops_s = given.real("compute_gflop_s") * given.real("compute_share") * 1e9;
  platform.dram_bytes_s =
      given.real("dram_bandwidth_gb_s") * given.real("dram_bandwidth_share") * 1e9;
  platform.dram_bytes = given.integer("dram_bytes");
  platform.layer_overhead_ns = std::llround(given.real("layer_overhead_us") * 1e3);
  platform.selection_overhead_ns = std::llround(given.real("selection_overhead_us") * 1e3);
  platform.cache_insert_ns = given.real("cache_insert_us") * 1e3;
  platform.append_overhead_ns = given.real("append_overhead_us") * 1e3;
  platform.similarity_bytes = given.real("similarity_bytes");
  platform.compute_power_w = given.real("compute_power_w");
  platform.waiting_power_w = given.real("waiting_power_w");
  platform.dram_pj_bit = given.real("dram_pj_bit");
  platform.dram_idle_w = given.real("dram_idle_w");
  platform.throttled_rate = given.real("throttled_rate_percent") / 100;
  platform.sustained_power_w = given.real("sustained_power_w");
  platform.power_time_constant_ns = std::llround(given.real("power_time_constant_s") * 1e9);
  if (platform.throttled_rate < 1 && !(platform.sustained_power_w > platform.waiting_power_w &&
                                       platform.compute_power_w > platform.sustained_power_w)) {
    throw UserError(
        {node.place().file, "sustained_power_w"},
        "found " + shortest_text(platform.sustained_power_w),
        "with throttled_rate_percent, more than waiting_power_w = " +
            shortest_text(platform.waiting_power_w) +
            " and less than compute_power_w = " + shortest_text(platform.compute_power_w));
  }
  if (node.has("kernels")) {
    platform.kernels = parse_kernels(node.at("kernels"));
    platform.kernels_text = node.at("kernels").raw().dump();
  }
  return platform;
}

SimTime PlatformSpec::buffer_ns(double inserted_reads, double writing_share) const {
  return static_cast<SimTime>(
      std::ceil(inserted_reads * cache_insert_ns + writing_share * append_overhead_ns));
}

SimTime PlatformSpec::kernel_ns(double flops, double bytes) const {
  const double seconds = std::max(flops / flops_s, bytes / dram_bytes_s);
  return static_cast<SimTime>(std::ceil(seconds * 1e9));
}

}  // namespace kvreplay
