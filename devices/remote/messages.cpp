#include "devices/remote/messages.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace kvreplay {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::uint64_t kMaxRequestBytes = 64 << 20;
constexpr std::uint64_t kMaxQueueDepth = 1024;
constexpr std::size_t kMaxGrid = 100'000;
constexpr double kMinTimeout = 0.01;  // seconds
constexpr std::uint64_t kMaxProbeRounds = 1000;
constexpr double kMaxTimeout = 86'400;

template <typename Number>
std::string range_text(Number min, Number max) {
  return std::to_string(min) + " to " + std::to_string(max);
}

/// Far deeper than any event, and far shallower than recursion over a value can handle.
constexpr int kMaxEventDepth = 32;

/// Texts of a device are printed and written to files.
void replace_control_characters(Json& value) {
  if (value.is_string()) {
    for (char& c : value.get_ref<std::string&>()) {
      if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
    }
  } else if (value.is_structured()) {
    for (Json& item : value) replace_control_characters(item);
  }
}

/// A nonempty list.
std::vector<ConfigNode> list(const ConfigNode& node) {
  std::vector<ConfigNode> items = node.items();
  if (!node.is_array() || items.empty() || items.size() > kMaxGrid) {
    throw UserError(node.place(), "is no list, empty or too long", "a list of values");
  }
  return items;
}

Pages pages_of(const ConfigNode& node) {
  const std::string name = node.text();
  std::vector<std::string> names;
  for (const Pages pages : {Pages::kOrdinary, Pages::kHuge, Pages::kScattered}) {
    if (to_text(pages) == name) return pages;
    names.push_back(to_text(pages));
  }
  throw unknown_name(node.place(), "pages", name, names);
}

}  // namespace

std::uint64_t whole_number(const ConfigNode& node, std::uint64_t min, std::uint64_t max) {
  const nlohmann::json& value = node.raw();
  const bool whole =
      value.is_number_integer() && (value.is_number_unsigned() || value.get<std::int64_t>() >= 0);
  if (!whole || value.get<std::uint64_t>() < min || value.get<std::uint64_t>() > max) {
    throw UserError(node.place(), "is no whole number in its range", range_text(min, max));
  }
  return value.get<std::uint64_t>();
}

double real_number(const ConfigNode& node, double min, double max) {
  const nlohmann::json& value = node.raw();
  if (!value.is_number() || !(value.get<double>() >= min && value.get<double>() <= max)) {
    throw UserError(node.place(), "is no number in its range", range_text(min, max));
  }
  return value.get<double>();
}

bool truth(const ConfigNode& node) {
  if (!node.raw().is_boolean()) throw UserError(node.place(), "is no truth value", "true, false");
  return node.raw().get<bool>();
}

Json to_json(const ProbeRequest& request) {
  const ProbeGrid& grid = request.grid;
  Json patterns = Json::array();
  for (const Pattern pattern : grid.patterns) patterns.push_back(to_text(pattern));
  return {{"patterns", patterns},
          {"write_shares", grid.write_shares},
          {"sizes_bytes", grid.sizes_bytes},
          {"depths", grid.depths},
          {"seconds", grid.seconds},
          {"seed", grid.seed},
          {"rounds", grid.rounds},
          {"request_timeout", request.request_timeout_seconds},
          {"engine", request.engine},
          {"pages", to_text(request.pages)}};
}

ProbeRequest parse_probe_request(const ConfigNode& node) {
  static const std::vector<std::string> kMembers{
      "patterns", "write_shares", "sizes_bytes", "depths",          "seconds",
      "seed",     "engine",       "pages",       "request_timeout", "rounds"};
  node.allow_only(kMembers);
  ProbeRequest request;
  ProbeGrid& grid = request.grid;
  grid.patterns.clear();
  for (const ConfigNode& item : list(node.at("patterns"))) {
    const std::string name = item.text();
    static const std::vector<std::string> kNames{to_text(Pattern::kRandom),
                                                 to_text(Pattern::kSequential)};
    if (name != kNames[0] && name != kNames[1]) {
      throw unknown_name(item.place(), "pattern", name, kNames);
    }
    grid.patterns.push_back(name == kNames[0] ? Pattern::kRandom : Pattern::kSequential);
  }
  grid.write_shares.clear();
  for (const ConfigNode& item : list(node.at("write_shares"))) {
    grid.write_shares.push_back(real_number(item, 0, 1));
  }
  for (const ConfigNode& item : list(node.at("sizes_bytes"))) {
    grid.sizes_bytes.push_back(static_cast<std::uint32_t>(whole_number(item, 1, kMaxRequestBytes)));
  }
  for (const ConfigNode& item : list(node.at("depths"))) {
    grid.depths.push_back(static_cast<std::uint32_t>(whole_number(item, 1, kMaxQueueDepth)));
  }
  grid.seconds = real_number(node.at("seconds"), 0, 3600);
  grid.seed = whole_number(node.at("seed"), 0, std::numeric_limits<std::uint64_t>::max());
  if (node.has("rounds")) {
    grid.rounds = static_cast<std::uint32_t>(whole_number(node.at("rounds"), 1, kMaxProbeRounds));
  }
  request.request_timeout_seconds =
      real_number(node.at("request_timeout"), kMinTimeout, kMaxTimeout);
  request.engine = node.at("engine").text();
  request.pages = pages_of(node.at("pages"));
  std::size_t points = 1;
  for (const std::size_t values : {grid.patterns.size(), grid.write_shares.size(),
                                   grid.sizes_bytes.size(), grid.depths.size()}) {
    points *= values;
    if (points > kMaxGrid) {
      throw UserError(node.place(), "a grid of too many points",
                      "up to " + std::to_string(kMaxGrid));
    }
  }
  return request;
}

Json to_json(const ReplayRequest& request) {
  return {{"engine", request.engine},
          {"depth", request.depth},
          {"wrap", request.wrap},
          {"pages", to_text(request.pages)},
          {"request_timeout", request.request_timeout_seconds}};
}

ReplayRequest parse_replay_request(const ConfigNode& node) {
  static const std::vector<std::string> kMembers{"engine", "depth", "wrap", "pages",
                                                 "request_timeout"};
  node.allow_only(kMembers);
  return {node.at("engine").text(),
          static_cast<std::uint32_t>(whole_number(node.at("depth"), 0, kMaxQueueDepth)),
          truth(node.at("wrap")), pages_of(node.at("pages")),
          real_number(node.at("request_timeout"), kMinTimeout, kMaxTimeout)};
}

Json to_json(const ReplayPart& part) {
  return {{"first_request", part.first_request}, {"text", to_json(part.measured)}};
}

ReplayPart parse_replay_part(const Json& part, const std::string& name) {
  try {
    return {part.at("first_request").get<std::size_t>(),
            parse_schedule_measurement(part.at("text").get<std::string>(), name)};
  } catch (const Json::exception&) {
    throw UserError({name, ""}, "sent no part of a measurement", "what kvreplay wrote");
  }
}

Json parse_event(std::string_view payload) {
  const auto depth_checked = [](int depth, Json::parse_event_t, const Json&) {
    if (depth > kMaxEventDepth) throw UserError({}, "an event that nests too deep", "");
    return true;
  };
  const UserError no_event({}, "an answer that is no event", "");
  Json event;
  try {
    event = Json::parse(payload, depth_checked);
  } catch (const Json::exception&) {
    throw no_event;
  }
  if (!event.is_object() || !event.contains("event") || !event["event"].is_string()) throw no_event;
  const bool is_piece = event["event"] == "steps" || event["event"] == "measurement";
  if (payload.size() > kMaxEventBytes && !is_piece) {
    throw UserError({}, "an event of " + std::to_string(payload.size()) + " bytes",
                    "up to " + std::to_string(kMaxEventBytes));
  }
  replace_control_characters(event);
  return event;
}

void check_setting(const Json& setting, const std::string& name) {
  static const std::vector<std::string> kMembers{
      "target", "host", "engine", "seconds_a_point", "seed", "points_wanted", "rounds"};
  const ConfigNode node = ConfigNode::parse(setting.dump(), name);
  node.allow_only(kMembers);
  (void)node.at("host").keys();
  const ConfigNode size = node.at("target").at("size_bytes");
  (void)whole_number(size, 1, std::numeric_limits<std::int64_t>::max());
  (void)node.at("engine").at("name").text();
  for (const ConfigNode& refusal : node.at("engine").at("refused").items()) {
    (void)refusal.at("engine").text();
    (void)refusal.at("reason").text();
  }
  if (node.has("points_wanted")) (void)whole_number(node.at("points_wanted"), 1, kMaxGrid);
}

Json to_json(const ProbeEnd& end) {
  return {{"ended_by", end.ended_by}, {"temperatures", to_json(end.temperatures)}};
}

ProbeEnd parse_probe_end(const ConfigNode& node) {
  ProbeEnd end;
  end.ended_by = node.at("ended_by").text();
  for (const ConfigNode& item : node.at("temperatures").items()) {
    end.temperatures.push_back(
        {item.at("zone").text(), real_number(item.at("celsius"), -1e6, 1e6)});
  }
  return end;
}

}  // namespace kvreplay
