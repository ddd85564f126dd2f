#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/config.hpp"
#include "devices/real/probe.hpp"
#include "devices/real/replay_target.hpp"

namespace kvreplay {

/// Version of the messages between kvreplay and its agent (docs/real-devices.md). Both come from
/// one build: other versions are refused, and no compatibility is kept.
constexpr std::int64_t kProtocolVersion = 1;

/// Interval at which a working agent sends a sign of life.
constexpr int kHeartbeatMs = 1000;

[[nodiscard]] nlohmann::ordered_json to_json(const ProbeRequest& request);
/// Throws UserError for a member that is missing, unknown, of another type or out of its range.
[[nodiscard]] ProbeRequest parse_probe_request(const ConfigNode& node);

[[nodiscard]] nlohmann::ordered_json to_json(const ReplayRequest& request);
[[nodiscard]] ReplayRequest parse_replay_request(const ConfigNode& node);

[[nodiscard]] nlohmann::ordered_json to_json(const ReplayPart& part);
/// Throws UserError, naming `name`, where the message is invalid.
[[nodiscard]] ReplayPart parse_replay_part(const nlohmann::ordered_json& part,
                                           const std::string& name);

/// One piece of a text that is longer than a frame may be: a schedule, a measurement.
constexpr std::size_t kPieceBytes = std::size_t{2} << 20;
constexpr std::size_t kLongestText = std::size_t{256} << 20;

/// The longest event that is no piece of a text.
constexpr std::size_t kMaxEventBytes = std::size_t{64} << 10;

/// An event of an agent, which need not be ours: an object that nests no deeper than events do, of
/// at most kMaxEventBytes unless it is a piece of a text. Throws UserError otherwise. Control
/// characters in its texts, which may be printed, become spaces.
[[nodiscard]] nlohmann::ordered_json parse_event(std::string_view payload);

/// Throws UserError, naming `name`, unless the event `setting` of a probe or a replay has the
/// members that kvreplay uses, and no others.
void check_setting(const nlohmann::ordered_json& setting, const std::string& name);

[[nodiscard]] nlohmann::ordered_json to_json(const ProbeEnd& end);
[[nodiscard]] ProbeEnd parse_probe_end(const ConfigNode& node);

/// The node's whole number, from `min` to `max`; throws UserError otherwise.
[[nodiscard]] std::uint64_t whole_number(const ConfigNode& node, std::uint64_t min,
                                         std::uint64_t max);
[[nodiscard]] double real_number(const ConfigNode& node, double min, double max);
[[nodiscard]] bool truth(const ConfigNode& node);

}  // namespace kvreplay
