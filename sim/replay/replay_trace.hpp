#pragma once

#include <string>

#include "traces/trace.hpp"

namespace kvreplay {

/// A trace of the experiment, open for the time of a replay.
struct ReplayTrace {
  std::string name;  ///< as results name it
  TraceReader reader;
  std::string sha256;  ///< of the file
};

}  // namespace kvreplay
