#include "sim/replay/system.hpp"

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <vector>

#include "base/argument_json.hpp"
#include "base/error.hpp"

namespace kvreplay {
namespace {

constexpr const char* kStream = "stream";

/// Checks what a layout or a cache requires of other members.
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

/// Checks that no reads start before the selection is known.
void check_order(const ConfigNode& node, const SystemSpec& system) {
  const std::unique_ptr<Pipeline> pipeline = system.pipeline.make({});
  if (system.decide.selection.name() == "everything" || !pipeline->selects_ahead()) return;
  if (system.decide.stream.text("query") == "current") {
    throw UserError(node.at("pipeline").place(),
                    "found '" + system.pipeline.name() +
                        "', which selects before the layer's own query is known",
                    "stream.query = look_ahead, selection 'everything', or a serial pipeline");
  }
  // One buffer is for the attending layer, the others for layers ahead of it.
  if (const std::int64_t ahead = pipeline->read_buffers() - 1; ahead > 1) {
    throw UserError(node.at("pipeline").place(),
                    "found '" + system.pipeline.name() + "', which selects " +
                        std::to_string(ahead) +
                        " layers ahead; a look-ahead query is known one layer ahead",
                    "one layer ahead, selection 'everything', or a serial pipeline");
  }
}

}  // namespace

SystemSpec SystemSpec::load(const std::string& file, const ConfigFolder& configs) {
  return parse(configs.load("systems", file), std::filesystem::path(file).stem().string());
}

std::span<const std::string> SystemSpec::roles() {
  static const std::vector<std::string> kRoles = [] {
    std::vector<std::string> roles;
    const SystemSpec none;
    for_parts(none,
              [&]<typename Role>(const PartConfig<Role>&) { roles.emplace_back(Role::kRole); });
    return roles;
  }();
  return kRoles;
}

std::optional<Stage> SystemSpec::stage_of(const std::string& member) {
  std::optional<Stage> stage;
  if (member == kStream) stage = DecideSpec::kStage;
  const SystemSpec none;
  for_parts(none, [&]<typename Role>(const PartConfig<Role>&) {
    if (member == Role::kRole) stage = Role::kStage;
  });
  return stage;
}

namespace {

/// The title and the roles that have no default part. Whether a system needs a layout depends on
/// its cache.
const std::vector<std::string>& required_members() {
  static const std::vector<std::string> kRequired = [] {
    std::vector<std::string> required{"title"};
    const SystemSpec none;
    SystemSpec::for_parts(none, [&]<typename Role>(const PartConfig<Role>&) {
      if constexpr (!std::is_same_v<Role, Layout>) {
        if (default_part_of<Role>().empty()) required.emplace_back(Role::kRole);
      }
    });
    return required;
  }();
  return kRequired;
}

}  // namespace

SystemSpec SystemSpec::parse(const ConfigNode& node, std::string name) {
  std::vector<std::string> members = ConfigHeader::members();
  members.insert(members.end(), {"differs", "judged_with", kStream});
  members.insert(members.end(), roles().begin(), roles().end());
  node.allow_only(members);
  check_complete(node, required_members());
  SystemSpec system;
  ConfigHeader header = ConfigHeader::parse(node, std::move(name));
  system.name = std::move(header.name);
  system.title = std::move(header.title);
  system.source = std::move(header.source);
  system.notes = std::move(header.notes);
  if (node.has("differs")) {
    for (const ConfigNode& difference : node.at("differs").items()) {
      system.differs.push_back(difference.text());
    }
  }
  system.decide = DecideSpec::parse(node);
  system.place = PlaceSpec::parse(node);
  for_time_parts(system, [&]<typename Role>(PartConfig<Role>& chosen) {
    chosen = PartConfig<Role>::parse_member(node);
  });
  check_order(node, system);
  check_needs(node, system);
  return system;
}

std::vector<SystemSpec::Member> SystemSpec::members() const {
  std::vector<Member> members{{kStream, "", DecideSpec::stream_parameters(), &decide.stream}};
  for_parts(*this, [&]<typename Role>(const PartConfig<Role>& chosen) {
    members.push_back(
        {std::string(Role::kRole), chosen.name(), chosen.part().parameters, &chosen.arguments()});
  });
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
