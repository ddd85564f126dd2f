#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/replay/replay.hpp"
#include "sim/replay/results.hpp"
#include "sim/tuning/pareto.hpp"

namespace kvreplay {

/// A number in a row of results, by its column's name (docs/metrics.md).
[[nodiscard]] double metric(const CellResult& cell, std::string_view column);

/// Of Goal::qualities(). Of a context longer than the recording, results have none; this one is
/// then that of the recording's own length.
[[nodiscard]] double recorded_quality(const CellResult& cell, std::string_view quality);
/// Puts it into a row of results.
void take_recorded_quality(ResultTable& table, std::size_t row, const CellResult& cell);
/// What an answer says of it; empty where the context is the recording's.
[[nodiscard]] std::string stretched_text(const CellResult& cell);

// Indices into Objectives.
inline constexpr std::size_t kQuality = 0;  ///< the loss of quality
inline constexpr std::size_t kLatency = 1;
inline constexpr std::size_t kDram = 2;

/// What a search is for: the limits that it keeps to, and what it minimises of the loss of
/// fidelity, latency and DRAM: those without a limit. Within a limit, less is worth nothing.
struct Goal {
  /// Columns that measure fidelity.
  [[nodiscard]] static const std::vector<std::string>& qualities();

  std::string quality = "output_error";
  std::optional<std::int64_t> max_dram_bytes{};  ///< limit of dram_kv_bytes
  std::optional<double> max_latency_ms{};
  std::optional<double> min_attention_mass{};
  std::optional<double> max_output_error{};
  /// Objectives to minimise although they have a limit: of objective_names().
  std::vector<std::string> also{};

  /// "quality", "latency", "dram": by index.
  [[nodiscard]] static const std::vector<std::string>& objective_names();
  /// Whether each objective is minimised. Where all have limits, all are.
  [[nodiscard]] std::array<bool, kObjectives> minimised() const;
  /// output_error, or 1 - attention_mass; latency_ms; dram_kv_bytes.
  [[nodiscard]] Objectives objectives(const CellResult& cell) const;
  /// Objectives that are not minimised are 0. Without a limit of output_error, one above 1
  /// violates: an output of zeros would be nearer.
  [[nodiscard]] Score score(const CellResult& cell) const;
  /// Reference point of hypervolumes: the limits or, where there is no limit, the worst of the
  /// points.
  [[nodiscard]] Objectives reference(const std::vector<Objectives>& points) const;
  /// "12.30 ms per token, output error 0.0123, 310.0 MiB"
  [[nodiscard]] std::string text(const Objectives& objectives) const;
  /// "output error 0.0123" for what is lost, or "attention mass 0.9877".
  [[nodiscard]] std::string quality_text(double lost) const;
  /// "quality and latency": what is minimised.
  [[nodiscard]] std::string minimised_text() const;
  /// "dram_kv_bytes at most 310.0 MiB, ..."; "none" without limits.
  [[nodiscard]] std::string limits_text() const;
};

}  // namespace kvreplay
