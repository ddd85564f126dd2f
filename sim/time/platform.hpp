#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "base/config_folder.hpp"
#include "base/engine/simulation.hpp"
#include "base/parameters.hpp"

namespace kvreplay {

/// Measured times of one kind of kernel, by the work that it does: linear between the points, and
/// on along the first two or the last two beyond them; of one point, in proportion.
class MeasuredKernel {
 public:
  struct Point {
    double work = 0;  ///< rising from point to point
    double us = 0;
  };
  MeasuredKernel() = default;
  explicit MeasuredKernel(std::vector<Point> points) : points_(std::move(points)) {}

  [[nodiscard]] bool measured() const { return !points_.empty(); }
  [[nodiscard]] std::span<const Point> points() const { return points_; }
  [[nodiscard]] SimTime ns(double work) const;

 private:
  std::vector<Point> points_;
};

/// What `kvreplay platform probe` measured, for one sequence. A kind that it did not measure, and a
/// batch of several sequences, is an estimate by the roofline.
struct MeasuredKernels {
  std::string source;      ///< command, host, date
  double weight_bits = 0;  ///< of the products
  std::int64_t threads = 0;
  MeasuredKernel matrix_vector;  ///< by weights; with norms, RoPE and barriers of its part
  MeasuredKernel attention;      ///< by tokens * query heads * head_dim, decoding included
  MeasuredKernel score;          ///< by flops of the scores, with top-k

  /// The kinds by name, in this order.
  [[nodiscard]] std::vector<std::pair<std::string, const MeasuredKernel*>> kinds() const;
};

/// The SoC: compute rate, DRAM bandwidth and size, power, from configs/platforms/NAME.json.
struct PlatformSpec {
  [[nodiscard]] static std::span<const Parameter> parameters();
  [[nodiscard]] static PlatformSpec load(const std::string& file,
                                         const ConfigFolder& configs = ConfigFolder::standard());
  [[nodiscard]] static PlatformSpec parse(const ConfigNode& node, std::string name);

  std::string name;
  std::string title;
  std::string source;  ///< may be empty
  std::string notes;   ///< may be empty
  Arguments arguments;

  double flops_s = 0;       ///< peak rate times the share that kernels reach, flop/s
  double dram_bytes_s = 0;  ///< peak bandwidth times the share that kernels reach, bytes/s
  std::int64_t dram_bytes = 0;
  SimTime layer_overhead_ns = 0;      ///< kernel launches and synchronisation, once per layer
  SimTime selection_overhead_ns = 0;  ///< likewise for scoring, top-k and gathering
  double read_request_ns = 0;         ///< of the processor, per read request
  double read_copy_bytes_s = 0;       ///< of what was read; 0 = takes no time

  // 0 = not known.
  double compute_power_w = 0;  ///< of the processor while it computes
  double waiting_power_w = 0;  ///< of the processor while it waits
  double dram_pj_bit = 0;      ///< per bit read or written
  double dram_idle_w = 0;      ///< of the DRAM, whatever it does

  std::optional<MeasuredKernels> kernels;
  std::string kernels_text;  ///< as canonical JSON; "" without

  /// Every number that results depend on, as canonical JSON.
  [[nodiscard]] std::string resolved() const;

  /// Roofline: the longer of arithmetic and memory traffic (Williams et al., CACM 2009), in whole
  /// nanoseconds, rounded up.
  [[nodiscard]] SimTime kernel_ns(double flops, double bytes) const;

  /// Processor time for `requests` reads of `bytes` altogether, besides the kernels.
  [[nodiscard]] SimTime read_ns(std::int64_t requests, std::int64_t bytes) const;
};

}  // namespace kvreplay
