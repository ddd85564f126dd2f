#pragma once

#include <span>
#include <string>
#include <vector>

#include "policies/decide/decide.hpp"
#include "sim/time/model_spec.hpp"

namespace kvreplay {

/// Which of a trace's layers stage 1 replays for a model, and through which windows; `recorded`:
/// all of them, with their own (recorded_layers()). A model whose file gives no windows gets all as
/// they are. Otherwise each window of the model follows the layers that were recorded with it;
/// where there are none, those that saw more tokens, through the model's window. UserError where
/// none did: an entry that no recorded query saw says nothing of attention to it. `trace`: its
/// file, for errors.
[[nodiscard]] std::vector<WindowedLayer> layers_for(const ModelSpec& model,
                                                    std::span<const WindowedLayer> recorded,
                                                    const std::string& trace);

}  // namespace kvreplay
