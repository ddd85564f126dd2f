#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
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

/// One kind of work, whose time depends on the part of a system that does it, or not.
struct MeasuredKind {
  MeasuredKernel any;                                          ///< of every part that is not named
  std::map<std::string, MeasuredKernel, std::less<>> parts{};  ///< by name

  [[nodiscard]] bool measured() const { return any.measured() || !parts.empty(); }
  /// Null where the part is not measured.
  [[nodiscard]] const MeasuredKernel* find(std::string_view part) const {
    const auto named = parts.find(part);
    if (named != parts.end()) return &named->second;
    return any.measured() ? &any : nullptr;
  }
};

/// What `kvreplay platform probe` measured, for one sequence. Of a kind or part that it did not
/// measure, and of a batch of several sequences, the first three are estimates by the roofline, and
/// the others are taken to be none.
struct MeasuredKernels {
  std::string source;      ///< command, host, date
  double weight_bits = 0;  ///< of the products
  std::int64_t threads = 0;
  MeasuredKind matrix_vector;  ///< by weights; with norms, RoPE and barriers of its part
  /// By tokens * query heads * head_dim; part `together` where the query heads of a KV head share
  /// their tokens, else by grouping part.
  MeasuredKind attention;
  MeasuredKind score;  ///< by flops of the scores, with the selection; by scoring part
  // Of entries outside memory, each counted once per KV head.
  MeasuredKind fetch;     ///< by entries read: cache, commands, and slots in memory
  MeasuredKind decode;    ///< by entries of requested groups, by precision part
  MeasuredKind buffered;  ///< likewise of entries outside groups
  MeasuredKind append;    ///< by new entries and those regrouped, by grouping part
  MeasuredKind submit;    ///< by commands that are handed to the system at once
  /// By operations of the factorisation of a layer's keys; one that was not measured is part of
  /// the index, at the rate of products.
  MeasuredKind factorise;
  // What a transfer takes longer than on the device alone, in a closed loop, by the time (us) for
  // which the device had nothing to do while the processor computed; parts `transfer`, once for
  // reads, `command`, for each of them, `kib`, for each of their 1024 bytes, and `write`, once for
  // writes. Beyond the first and the last point as there.
  MeasuredKind wake;    ///< where the processor waits for it
  MeasuredKind beside;  ///< where the processor computes meanwhile
  /// What a computation beside transfers takes longer, since a thread of its own does it, by the
  /// time (us) since the last one. Beyond the first and the last point as there.
  MeasuredKind hand_over;

  /// For a transfer of so many commands and bytes; `idle_ns` 0: others are under way.
  [[nodiscard]] SimTime transfer_delay_ns(SimTime idle_ns, std::int64_t commands,
                                          std::int64_t bytes, bool writing, bool computing) const;
  /// For a computation that begins `idle_ns` after the last one beside transfers.
  [[nodiscard]] SimTime hand_over_time_ns(SimTime idle_ns) const;

  /// Calls visit(name, kind) for each of `kernels`.
  template <typename Kernels, typename Visit>
  static void for_kinds(Kernels& kernels, Visit&& visit) {
    visit("matrix_vector", kernels.matrix_vector);
    visit("attention", kernels.attention);
    visit("score", kernels.score);
    visit("fetch", kernels.fetch);
    visit("decode", kernels.decode);
    visit("buffered", kernels.buffered);
    visit("append", kernels.append);
    visit("submit", kernels.submit);
    visit("factorise", kernels.factorise);
    visit("wake", kernels.wake);
    visit("beside", kernels.beside);
    visit("hand_over", kernels.hand_over);
  }
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
  double cache_insert_ns = 0;         ///< of the processor, per read that a cache keeps
  double append_overhead_ns = 0;      ///< likewise, per layer and step that writes new entries
  double similarity_bytes = 0;        ///< moved to and from DRAM, per similarity of a clustering

  // 0 = not known.
  double compute_power_w = 0;  ///< of the processor while it computes
  double waiting_power_w = 0;  ///< of the processor while it waits
  double dram_pj_bit = 0;      ///< per bit read or written
  double dram_idle_w = 0;      ///< of the DRAM, whatever it does

  // PowerLimit's.
  double throttled_rate = 1;     ///< share of the full rate; 1 = no limit
  double sustained_power_w = 0;  ///< that the processor may take for any time
  SimTime power_time_constant_ns = 0;

  std::optional<MeasuredKernels> kernels;
  std::string kernels_text;  ///< as canonical JSON; "" without

  /// Every number that results depend on, as canonical JSON.
  [[nodiscard]] std::string resolved() const;

  /// Roofline: the longer of arithmetic and memory traffic (Williams et al., CACM 2009), in whole
  /// nanoseconds, rounded up.
  [[nodiscard]] SimTime kernel_ns(double flops, double bytes) const;

  /// Processor time of a layer and step for keeping `inserted_reads` reads in the cache and for
  /// writing new entries of a share of the sequences, besides the kernels.
  [[nodiscard]] SimTime buffer_ns(double inserted_reads, double writing_share) const;
};

}  // namespace kvreplay
