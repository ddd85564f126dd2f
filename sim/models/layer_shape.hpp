#pragma once

#include <cstdint>

#include "policies/decide/layer_policy.hpp"
#include "sim/models/model_file.hpp"

namespace kvreplay {

/// The layer of a running model as a policy sees it. The frequencies of a scaled RoPE count as
/// unknown, as in a recording.
[[nodiscard]] LayerShape layer_shape(const Architecture& architecture, std::int64_t layer,
                                     std::int64_t prompt_tokens, std::int64_t max_tokens);

}  // namespace kvreplay
