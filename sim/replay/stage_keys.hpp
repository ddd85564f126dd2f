#pragma once

#include <cstdint>
#include <string>

#include "sim/replay/system.hpp"
#include "sim/time/time_plan.hpp"

namespace kvreplay {

/// The kinds under which a StageStore keeps what a replay knows.
namespace kind {
inline constexpr const char* kLog = "decide";
inline constexpr const char* kMeans = "quality";  ///< under the key of their log
inline constexpr const char* kPlan = "place";
inline constexpr const char* kTiming = "time";
inline constexpr const char* kTraceHash = "trace";
inline constexpr const char* kRates = "rates";
}  // namespace kind

// The keys under which outputs of stages are kept: a hash of all that an output depends on, the
// sources of the stage's code included. The build makes the hashes of the sources
// (cmake/StageSources.cmake).
extern const char* const kDecideSources;
extern const char* const kPlaceSources;
extern const char* const kTimeSources;

/// `steps` as they are replayed, not 0. A text parameter called "file" counts by its content.
[[nodiscard]] std::string decide_key(const std::string& trace_sha256, const DecideSpec& spec,
                                     std::uint64_t seed, std::int64_t steps, bool record_tokens,
                                     const HeadShape& model_heads = {});
[[nodiscard]] std::string place_key(const std::string& decide_key, const PlaceSpec& spec,
                                    const KvShape& shape);
[[nodiscard]] std::string time_key(const std::string& place_key, const ModelSpec& model,
                                   const PlatformSpec& platform, const DeviceSpec& device,
                                   const PartConfig<Pipeline>& pipeline,
                                   const TimeOptions& options);

}  // namespace kvreplay
