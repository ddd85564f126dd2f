#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sim/models/model_file.hpp"
#include "sim/replay/system.hpp"
#include "sim/time/platform.hpp"

namespace kvreplay {

struct PlatformProbeOptions {
  int threads = 1;
  double seconds = 1;  ///< of each point
  std::uint64_t seed = 1;
  /// Systems whose parts are measured; those that live cannot run, and those without entries
  /// outside memory, are left out.
  std::vector<SystemSpec> systems{};
  std::string scratch{};           ///< a new file for their entries, which goes with the process
  bool overwrite_scratch = false;  ///< `scratch` is there, and what it holds may be lost
  std::function<void(const std::string& what)> on_point{};
};

/// Measured times of one kind of work, by part; "" of every part.
using MeasuredParts = std::map<std::string, std::vector<MeasuredKernel::Point>>;

/// Points of each kind, medians of repeated runs of the very code that `kvreplay live` runs, at the
/// model's shapes.
struct PlatformMeasurement {
  std::string model;
  int threads = 1;
  double weight_bits = 0;
  std::map<std::string, MeasuredParts> kinds;  ///< as MeasuredKernels has them
  double matrix_gflop_s = 0;                   ///< of products with many rows, as in prefill
  double memory_gb_s = 0;                      ///< of reads that no cache holds
  double barrier_us = 0;                       ///< of an empty loop on all threads
  std::int64_t memory_bytes = 0;
  double stolen_share = 0;         ///< of the processors' time, which the host took meanwhile
  std::vector<std::string> notes;  ///< frequency, governor, temperature, where the host tells them
};

/// The vectors that attention and the systems' parts run on are random. Each of a system's layers
/// does a step after the products of the layer before it, so that its data come from where they
/// come from in a live run, and what is measured of it becomes a line by the work that it did.
[[nodiscard]] PlatformMeasurement probe_platform(const Model& model,
                                                 const PlatformProbeOptions& options);

/// A platform file (configs/platforms): measured kernels, and rates for the roofline elsewhere,
/// each with `source`, which names command, host and date.
[[nodiscard]] std::string platform_json(const PlatformMeasurement& measurement,
                                        const std::string& title, const std::string& source);

}  // namespace kvreplay
