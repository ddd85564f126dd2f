#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "devices/real/io_engine.hpp"
#include "sim/live/live_run.hpp"

namespace kvreplay {

/// How a live run does its I/O.
struct LiveRequest {
  std::string engine{};  ///< "": the first one that the system permits
  DeviceLimits limits{};
  Pages pages = Pages::kOrdinary;
  double request_timeout_seconds = kRequestTimeoutSeconds;  ///< a longer request ends the run
};

struct LiveRun {
  LiveResult result;
  EngineChoice engine;  ///< nothing where no target is used
  std::string notes;
};

/// run_live() on a thread of its own, which may have to be left behind with a request that is never
/// answered: that is a UserError too. `target`: null where everything is in memory. The options'
/// on_token is called on the calling thread; their `stop` is `stop`. `adapters` are the options',
/// owned.
[[nodiscard]] LiveRun run_live_on(std::shared_ptr<const Model> model, const SystemSpec& system,
                                  const std::shared_ptr<const BlockTarget>& target,
                                  const LiveRequest& request, const LiveOptions& options,
                                  std::shared_ptr<const AdapterSource> adapters,
                                  const std::atomic<bool>& stop);

}  // namespace kvreplay
