#pragma once

#include <string>
#include <vector>

#include "base/config_folder.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

/// Systems that a trace cannot replay, for one reason.
struct SystemProblem {
  std::string reason;  ///< an error's line, of the first of them
  std::vector<std::string> systems;
};

/// Every system of `configs` that the trace lacks something for (an adapter, look-ahead queries),
/// by what it lacks, in the order of names.
[[nodiscard]] std::vector<SystemProblem> system_problems(const TraceReader& trace,
                                                         const ConfigFolder& configs);

}  // namespace kvreplay
