#pragma once

#include <cstdint>
#include <string>

#include "sim/replay/system.hpp"
#include "sim/time/time_plan.hpp"

namespace kvreplay {

/// The kinds under which a StageStore keeps what a replay computes.
namespace kind {
inline constexpr const char* kLog = "decide";
inline constexpr const char* kMeans = "quality";  ///< under the key of their log
inline constexpr const char* kPlan = "place";
inline constexpr const char* kTiming = "time";
inline constexpr const char* kTraceHash = "trace";
inline constexpr const char* kRates = "rates";
}  // namespace kind

// The keys under which outputs of stages are kept. A key is a hash of all that the output depends
// on, including the sources of the stage's code, whose hashes the build computes
// (cmake/StageSources.cmake).
extern const char* const kDecideSources;
extern const char* const kPlaceSources;
extern const char* const kTimeSources;

/// `steps`: the number replayed, not 0. A text parameter called "file" counts by the file's
/// content.
[[nodiscard]] std::string decide_key(const std::string& trace_sha256, const DecideSpec& spec,
                                     std::uint64_t seed, std::int64_t steps, bool record_tokens);
[[nodiscard]] std::string place_key(const std::string& decide_key, const PlaceSpec& spec,
                                    const KvShape& shape);
[[nodiscard]] std::string time_key(const std::string& place_key, const ModelSpec& model,
                                   const PlatformSpec& platform, const DeviceSpec& device,
                                   const PartConfig<Pipeline>& pipeline,
                                   const TimeOptions& options);

}  // namespace kvreplay
