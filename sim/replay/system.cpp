#include "sim/replay/system.hpp"

#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/argument_json.hpp"
#include "base/error.hpp"

namespace kvreplay {
namespace {

/// What a layout or a cache asks of other members.
void check_needs(const ConfigNode& node, const SystemSpec& system) {
  if (system.place.layout.make({})->needs_window() &&
      system.decide.stream.integer("window_queries") == 0) {
    throw UserError(node.at("layout").place(),
                    "found '" + system.place.layout.name() +
                        "', which orders groups by what the prompt's last queries select",
                    "stream.window_queries above 0, or another layout");
  }
  if (system.place.cache.make({})->paged_by_layer() && !system.pipeline.make({})->pages_cache()) {
    throw UserError(node.at("cache").place(),
                    "found paged_by_layer with pipeline '" + system.pipeline.name() +
                        "', which reads no cached groups",
                    "pipeline two_stage, or paged_by_layer = false");
  }
}

/// Reads cannot start before what they read is known.
void check_order(const ConfigNode& node, const SystemSpec& system) {
  const std::unique_ptr<Pipeline> pipeline = system.pipeline.make({});
  if (system.decide.selection.name() == "everything" || !pipeline->selects_ahead()) return;
  if (system.decide.stream.text("query") == "current") {
    throw UserError(node.at("pipeline").place(),
                    "found '" + system.pipeline.name() +
                        "', which selects before the layer's own query is known",
                    "stream.query = look_ahead, selection 'everything', or a serial pipeline");
  }
  // One buffer is of the layer that attends, the others of layers ahead of it.
  if (const std::int64_t ahead = pipeline->landing_buffers() - 1; ahead > 1) {
    throw UserError(node.at("pipeline").place(),
                    "found '" + system.pipeline.name() + "', which selects " +
                        std::to_string(ahead) +
                        " layers ahead; a look-ahead query is known one layer ahead",
                    "one layer ahead, selection 'everything', or a serial pipeline");
  }
}

}  // namespace

SystemSpec SystemSpec::load(const std::string& file) {
  return parse(ConfigNode::load(file), std::filesystem::path(file).stem().string());
}

std::span<const std::string> SystemSpec::roles() {
  static const std::array<std::string, 8> kRoles{"grouping",  "scoring", "selection", "precision",
                                                 "retention", "cache",   "layout",    "pipeline"};
  return kRoles;
}

SystemSpec SystemSpec::parse(const ConfigNode& node, std::string name) {
  std::vector<std::string> members{"title", "source", "differs", "stream"};
  members.insert(members.end(), roles().begin(), roles().end());
  node.allow_only(members);
  SystemSpec system;
  system.name = std::move(name);
  system.title = node.at("title").text();
  system.source = node.at("source").text();
  for (const ConfigNode& difference : node.at("differs").items()) {
    system.differs.push_back(difference.text());
  }
  system.decide = DecideSpec::parse(node);
  system.place = PlaceSpec::parse(node);
  system.pipeline = Chosen<Pipeline>::parse(node.at("pipeline"));
  check_order(node, system);
  check_needs(node, system);
  return system;
}

std::vector<SystemSpec::Member> SystemSpec::members() const {
  std::vector<Member> members{{"stream", "", DecideSpec::stream_parameters(), &decide.stream}};
  const auto add = [&]<typename Role>(const Chosen<Role>& chosen) {
    members.push_back(
        {std::string(Role::kRole), chosen.name(), chosen.part().parameters, &chosen.arguments()});
  };
  add(decide.grouping);
  add(decide.scoring);
  add(decide.selection);
  add(decide.precision);
  add(decide.retention);
  add(place.cache);
  add(place.layout);
  add(pipeline);
  return members;
}

std::string SystemSpec::resolved() const {
  nlohmann::json object;
  for (const Member& member : members()) {
    nlohmann::json arguments = to_json(*member.arguments);
    if (!member.part.empty()) arguments["part"] = member.part;
    object[member.role] = std::move(arguments);
  }
  return object.dump();
}

}  // namespace kvreplay
