#pragma once

#include <string>
#include <vector>

#include "base/config_folder.hpp"
#include "sim/replay/experiment.hpp"

namespace kvreplay {

/// An experiment as a command line asks for it.
struct ExperimentRequest {
  std::string experiment{};         ///< a file, or a name in `configs`
  std::vector<std::string> sets{};  ///< KEY=VALUE, the later ones win
  ConfigFolder configs = ConfigFolder::standard();

  /// `more` settings come after `sets`, and win.
  [[nodiscard]] Experiment load(const std::vector<std::string>& more = {}) const;
};

}  // namespace kvreplay
