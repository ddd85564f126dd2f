#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/config_folder.hpp"
#include "policies/decide/layer_policy.hpp"
#include "policies/place/place.hpp"
#include "sim/time/pipeline/pipeline.hpp"

namespace kvreplay {

/// A system: a named composition of parts, from configs/systems/NAME.json. There is no code for a
/// system beyond its parts.
struct SystemSpec {
  [[nodiscard]] static SystemSpec load(const std::string& file,
                                       const ConfigFolder& configs = ConfigFolder::standard());
  /// Checks that all members are known and that the parts fit each other.
  [[nodiscard]] static SystemSpec parse(const ConfigNode& node, std::string name);
  /// The members that choose a part, in the order of the three stages.
  [[nodiscard]] static std::span<const std::string> roles();
  /// The stage that reads a member ("cache", "stream"); none where there is no such member.
  [[nodiscard]] static std::optional<Stage> stage_of(const std::string& member);

  std::string name;
  std::string title;
  std::string source;                ///< paper, section, public code; may be empty
  std::string notes;                 ///< may be empty
  std::vector<std::string> differs;  ///< where the composition departs from the source
  DecideSpec decide;
  PlaceSpec place;
  PartConfig<Pipeline> pipeline;

  /// Calls visit(chosen) for every part of `spec`, a SystemSpec, in the order of the stages.
  template <typename Spec, typename Visit>
  static void for_parts(Spec& spec, Visit&& visit) {
    DecideSpec::for_parts(spec.decide, visit);
    PlaceSpec::for_parts(spec.place, visit);
    for_time_parts(spec, visit);
  }
  /// The parts of stage 3: its list of roles, like those of DecideSpec and PlaceSpec.
  template <typename Spec, typename Visit>
  static void for_time_parts(Spec& spec, Visit&& visit) {
    for_parts_of<Stage::kTime>(visit, spec.pipeline);
  }

  /// One chosen part (or the "stream" member) for display.
  struct Member {
    std::string role;
    std::string part;  ///< "" for "stream"
    std::span<const Parameter> parameters;
    const Arguments* arguments = nullptr;
  };
  /// "stream", then roles(). The views live as long as this object.
  [[nodiscard]] std::vector<Member> members() const;
  /// Resolved parts and arguments as canonical JSON.
  [[nodiscard]] std::string resolved() const;
};

}  // namespace kvreplay
