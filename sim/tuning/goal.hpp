#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/replay/replay.hpp"
#include "sim/tuning/pareto.hpp"

namespace kvreplay {

/// A number in a row of results, by its column's name (docs/metrics.md).
[[nodiscard]] double metric(const CellResult& cell, std::string_view column);

// Indices into Objectives.
inline constexpr std::size_t kQuality = 0;  ///< the loss of quality
inline constexpr std::size_t kLatency = 1;
inline constexpr std::size_t kDram = 2;

/// What a search is for: the measure of fidelity whose loss it minimises, in addition to latency
/// and DRAM, and the limits that it keeps to.
struct Goal {
  /// Columns that measure fidelity.
  [[nodiscard]] static const std::vector<std::string>& qualities();

  std::string quality = "output_error";
  std::optional<std::int64_t> max_dram_bytes{};  ///< limit of dram_kv_bytes
  std::optional<double> max_latency_ms{};
  std::optional<double> min_attention_mass{};
  std::optional<double> max_output_error{};

  /// output_error, or 1 - attention_mass; latency_ms; dram_kv_bytes.
  [[nodiscard]] Objectives objectives(const CellResult& cell) const;
  [[nodiscard]] Score score(const CellResult& cell) const;
  /// Reference point of hypervolumes: the limits or, where there is no limit, the worst of the
  /// points.
  [[nodiscard]] Objectives reference(const std::vector<Objectives>& points) const;
  /// "12.30 ms per token, output error 0.0123, 310.0 MiB"
  [[nodiscard]] std::string text(const Objectives& objectives) const;
  /// "output error 0.0123" for what is lost, or "attention mass 0.9877".
  [[nodiscard]] std::string quality_text(double lost) const;
  /// "dram_kv_bytes at most 310.0 MiB, ..."; "none" without limits.
  [[nodiscard]] std::string limits_text() const;
};

}  // namespace kvreplay
