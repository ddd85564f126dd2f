#pragma once

#include <cstdint>
#include <optional>

#include "devices/device_config.hpp"
#include "sim/time/model_spec.hpp"
#include "sim/time/platform.hpp"

namespace kvreplay {

/// A prefix of a conversation whose entries lie on a device in 16 bits per element, one sequence.
struct Prefix {
  std::int64_t tokens = 0;
  std::int64_t new_tokens = 64;     ///< that are prefilled after it either way
  std::int64_t chunk_tokens = 512;  ///< that a layer computes together
};

struct RestoreTimes {
  std::int64_t bytes = 0;
  SimTime restore_ns = 0;     ///< the entries are read, with nothing else to do
  SimTime recompute_ns = 0;   ///< what prefilling the prefix adds to the prefill of the new tokens
  SimTime new_tokens_ns = 0;  ///< the prefill of the new tokens, with the LM head
};

/// Under full attention; a sliding window bounds what a layer keeps. A layer that uses an earlier
/// one's entries has none of its own.
[[nodiscard]] RestoreTimes restore_times(const ModelSpec& model, const PlatformSpec& platform,
                                         const DeviceSpec& device, const Prefix& prefix);

/// The fewest tokens, in place of Prefix::tokens, from which on restoring takes no longer than
/// recomputing; nothing where it takes longer even at `max_tokens`.
[[nodiscard]] std::optional<std::int64_t> restore_crossover(const ModelSpec& model,
                                                            const PlatformSpec& platform,
                                                            const DeviceSpec& device, Prefix prefix,
                                                            std::int64_t max_tokens);

}  // namespace kvreplay
