#pragma once

#include <string>

#include "traces/trace.hpp"

namespace kvreplay {

/// A trace of the experiment, open during a replay.
struct ReplayTrace {
  std::string name;  ///< name in results
  TraceReader reader;
  std::string sha256;  ///< of the file, taken after the reader opened it
};

}  // namespace kvreplay
