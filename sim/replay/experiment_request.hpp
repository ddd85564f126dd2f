#pragma once

#include <string>
#include <vector>

#include "base/config_folder.hpp"
#include "sim/replay/experiment.hpp"

namespace kvreplay {

/// An experiment as requested on a command line.
struct ExperimentRequest {
  std::string experiment{};         ///< a file, or a name in `configs`
  std::vector<std::string> sets{};  ///< KEY=VALUE; later ones win
  ConfigFolder configs = ConfigFolder::standard();

  /// `more` settings follow `sets` and win.
  [[nodiscard]] Experiment load(const std::vector<std::string>& more = {}) const;
};

}  // namespace kvreplay
