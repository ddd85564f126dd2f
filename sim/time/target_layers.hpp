#pragma once

#include <cstdint>
#include <vector>

#include "policies/place/place.hpp"
#include "sim/time/model_spec.hpp"

namespace kvreplay {

/// What layer i of the target model does.
struct TargetLayer {
  const LayerPlan* plan = nullptr;  ///< that it follows; none where it does not attend
  bool full_attention = false;  ///< in memory: the plan says the size of entries, and the window
  std::int64_t sliding_window = 0;    ///< of full attention
  bool uses_earlier_entries = false;  ///< those of a layer before it, which has fetched them
  bool is_used_later = false;         ///< by such a layer
  // Device offsets by sequence; empty without groups of its own, and without an index on flash.
  std::vector<std::uint64_t> region{};
  std::vector<std::uint64_t> index_region{};
};

/// Whether it keeps groups of its own, in a region of its own.
[[nodiscard]] bool has_groups(const TargetLayer& layer);

/// The plans of a kind of layer that do not attend in full.
[[nodiscard]] std::vector<const LayerPlan*> plans_to_follow(const IoPlan& plan, std::int64_t kind);

/// What every layer of the target model does, without regions. They point into `plan`.
[[nodiscard]] std::vector<TargetLayer> target_layers(const IoPlan& plan, const ModelSpec& model);

/// Entries of a layer with full attention, which are all in memory, when the plan ends.
[[nodiscard]] std::int64_t full_attention_bytes(const IoPlan& plan, const TargetLayer& layer);

}  // namespace kvreplay
