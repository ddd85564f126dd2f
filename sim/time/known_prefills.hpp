#pragma once

#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "sim/time/prefill.hpp"

namespace kvreplay {

/// Prefills that have been simulated. Cells often have the same one: it depends on what the plan
/// writes for the prompt and holds in memory, but neither on what its cache keeps later nor on
/// which steps are timed. Thread-safe.
class KnownPrefills {
 public:
  /// time_prefill() of a first turn, without a timeline and a schedule, unless an equal one is
  /// known. The model, platform and device are told apart by their addresses, so that they must
  /// outlive this object.
  [[nodiscard]] Prefill get(const PrefillCell& cell, const DeviceSpec& device);

 private:
  using Key = std::tuple<const ModelSpec*, const PlatformSpec*, const DeviceSpec*, std::string>;
  struct Known {
    std::once_flag once;
    Prefill prefill;
  };
  std::mutex mutex_;
  std::map<Key, Known> known_;
};

}  // namespace kvreplay
