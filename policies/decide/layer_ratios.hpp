#pragma once

#include <span>
#include <vector>

#include "policies/decide/layer_policy.hpp"

namespace kvreplay {

/// Whether the system's retention part divides a budget among layers, and this layer takes part (it
/// does not use full attention).
[[nodiscard]] bool compares_layers(const DecideSpec& spec, const LayerShape& layer);

/// The part's score of a layer, from the prompt's entries and last queries.
[[nodiscard]] double layer_score(const DecideSpec& spec, const LayerShape& layer,
                                 const Entries& prompt, const QueryWindow& window);

/// Scores divided by the largest of them: the layer_ratio of each layer's policy. All 1 where the
/// scores are 0, as for layers that are not compared.
[[nodiscard]] std::vector<double> layer_ratios(std::span<const double> scores);

}  // namespace kvreplay
