#include "sim/replay/experiment_request.hpp"

namespace kvreplay {

Experiment ExperimentRequest::load(const std::vector<std::string>& more) const {
  std::vector<std::string> all = sets;
  all.insert(all.end(), more.begin(), more.end());
  return Experiment::load(configs.file("experiments", experiment, {}), all, configs);
}

}  // namespace kvreplay
