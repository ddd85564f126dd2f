#pragma once

#include <string>
#include <vector>

#include "base/config.hpp"

namespace kvreplay {

/// A model file made of another program's description of the model.
struct ConvertedModel {
  std::string json;                ///< as of configs/models, with the source of each number
  std::vector<std::string> notes;  ///< what was taken for granted: a line each
};

/// Makes a model file of a Hugging Face config.json (of a model of several modalities, of its text
/// part). `source` says where the file is from, such as "Hugging Face Qwen/Qwen3-0.6B". Throws
/// UserError where a member is missing or impossible, and for what no member of a model file says
/// (multi-head latent attention, state space layers), by name.
[[nodiscard]] ConvertedModel model_of_config(const ConfigNode& config, const std::string& title,
                                             const std::string& source);

}  // namespace kvreplay
