#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/models/model_file.hpp"
#include "sim/time/platform.hpp"

namespace kvreplay {

struct PlatformProbeOptions {
  int threads = 1;
  double seconds = 1;  ///< of each point
  std::uint64_t seed = 1;
  std::function<void(const std::string& what)> on_point{};
};

/// Points of each kind, medians of repeated runs of the very code that `kvreplay live` runs, at the
/// model's shapes.
struct PlatformMeasurement {
  std::string model;
  int threads = 1;
  double weight_bits = 0;
  std::vector<MeasuredKernel::Point> matrix_vector;
  std::vector<MeasuredKernel::Point> attention;
  std::vector<MeasuredKernel::Point> score;
  double matrix_gflop_s = 0;  ///< of products with many rows, as in prefill
  double memory_gb_s = 0;     ///< of reads that no cache holds
  double barrier_us = 0;      ///< of an empty loop on all threads
  std::int64_t memory_bytes = 0;
  std::vector<std::string> notes;  ///< frequency, governor, temperature, where the host tells them
};

/// Takes some ten points of `seconds` each. The vectors that attention and scores run on are
/// random: their times do not depend on the values.
[[nodiscard]] PlatformMeasurement probe_platform(const Model& model,
                                                 const PlatformProbeOptions& options);

/// A platform file (configs/platforms): measured kernels, and rates for the roofline elsewhere,
/// each with `source`, which names command, host and date.
[[nodiscard]] std::string platform_json(const PlatformMeasurement& measurement,
                                        const std::string& title, const std::string& source);

}  // namespace kvreplay
