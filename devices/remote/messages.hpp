#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/config.hpp"
#include "devices/real/probe.hpp"
#include "devices/real/replay_target.hpp"

namespace kvreplay {

/// Of what kvreplay and its agent say to each other (docs/real-devices.md). Both are of one build:
/// there is no compatibility to keep, only other versions to refuse.
constexpr std::int64_t kProtocolVersion = 1;

/// How often an agent says that it lives, while it works.
constexpr int kHeartbeatMs = 1000;

[[nodiscard]] nlohmann::ordered_json to_json(const ProbeRequest& request);
/// UserError for a member that is missing, unknown, of another type or out of its range.
[[nodiscard]] ProbeRequest parse_probe_request(const ConfigNode& node);

[[nodiscard]] nlohmann::ordered_json to_json(const ReplayRequest& request);
[[nodiscard]] ReplayRequest parse_replay_request(const ConfigNode& node);

[[nodiscard]] nlohmann::ordered_json to_json(const ReplayPart& part);
/// UserError, which names `name`, where it is none.
[[nodiscard]] ReplayPart parse_replay_part(const nlohmann::ordered_json& part,
                                           const std::string& name);

/// Of a text that is longer than a frame may be: a schedule, a measurement.
constexpr std::size_t kPieceBytes = std::size_t{2} << 20;
constexpr std::size_t kLongestText = std::size_t{256} << 20;

[[nodiscard]] nlohmann::ordered_json to_json(const ProbeEnd& end);
[[nodiscard]] ProbeEnd parse_probe_end(const ConfigNode& node);

/// A whole number of the node, from `least` to `greatest`; UserError otherwise.
[[nodiscard]] std::uint64_t whole_number(const ConfigNode& node, std::uint64_t least,
                                         std::uint64_t greatest);
[[nodiscard]] double real_number(const ConfigNode& node, double least, double greatest);
[[nodiscard]] bool truth(const ConfigNode& node);

}  // namespace kvreplay
