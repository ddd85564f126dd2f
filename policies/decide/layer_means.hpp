#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "policies/decide/log/access_log.hpp"

namespace kvreplay {

/// Means over decode steps (not the prefilled tokens of later turns), query heads and the recorded
/// layers in which the system selects (not those with full attention): docs/metrics.md.
struct QualityMeans {
  double recall = 0;
  double attention_mass = 0;
  double best_attention_mass = 0;
  double output_error = 0;
  /// Root of the mean square, of a system over all layers: one with full attention counts, since
  /// what it adds is exact. NaN where the trace lacks what it is computed from.
  double residual_error = 0;
  double attended_tokens = 0;
};

/// Of one recorded layer.
struct LayerMeans {
  std::int64_t layer = 0;           ///< the recorded model's number
  std::int64_t sliding_window = 0;  ///< LayerLog's
  bool full_attention = false;
  std::int64_t out_of_range = 0;     ///< elements, of StreamLog::out_of_range
  std::int64_t coarse_channels = 0;  ///< of StreamLog::coarse_channels
  QualityMeans means;
  std::vector<QualityMeans> turns{};  ///< of each turn's answer; none without turns
};

[[nodiscard]] std::vector<LayerMeans> layer_means(const AccessLog& log);
/// The mean over layers; layers with full attention count only where there are no others.
[[nodiscard]] QualityMeans system_means(const std::vector<LayerMeans>& layers);
/// system_means() of each turn.
[[nodiscard]] std::vector<QualityMeans> turn_means(const std::vector<LayerMeans>& layers);
/// The one that harms the model most: by residual_error, or by output_error where a layer lacks it.
[[nodiscard]] const LayerMeans& worst_layer(const std::vector<LayerMeans>& layers);

/// As bytes, and back: what comes back is equal in every bit.
[[nodiscard]] std::string to_bytes(const std::vector<LayerMeans>& layers);
[[nodiscard]] std::vector<LayerMeans> layer_means_from(std::string_view bytes);

}  // namespace kvreplay
