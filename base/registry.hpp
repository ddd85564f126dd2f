#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "base/error.hpp"
#include "base/parameters.hpp"
#include "base/stage.hpp"

namespace kvreplay {

/// A part's description, whatever its role: for `kvreplay list`, `explain` and the docs.
struct PartInfo {
  std::string role;            ///< "grouping", "scoring", ...
  std::optional<Stage> stage;  ///< of the role
  std::string name;
  std::string help;    ///< one line
  std::string source;  ///< paper and section, or "ours"
  std::vector<Parameter> parameters;
};

/// Every registered part of every role, by (role, name).
[[nodiscard]] std::map<std::pair<std::string, std::string>, PartInfo>& part_catalogue();

/// Parts that were registered under a name which their role had already: a line each, which says
/// where. A program reports them when it starts.
[[nodiscard]] std::vector<std::string>& twice_registered_parts();

/// A part of a role: its description and how to make one. A role is an abstract class with
///   static constexpr std::string_view kRole;         its name in configs
///   static constexpr Stage kStage;                   where a stage uses its parts (stage.hpp)
///   static constexpr std::string_view kDefaultPart;  where a config need not name a part
///   struct Context;                                  what every part of the role is made from
template <typename Role>
struct Part {
  std::string name;
  std::string help;
  std::string source;
  std::vector<Parameter> parameters;
  std::function<std::unique_ptr<Role>(const Arguments&, const typename Role::Context&)> make;
};

/// The parts of one role by name. A part adds itself with a Registered<Role> object at namespace
/// scope in its own source file; nothing else changes when a part is added.
template <typename Role>
class Registry {
 public:
  static Registry& instance() {
    static Registry registry;
    return registry;
  }

  /// Throws std::logic_error where the role has a part of that name.
  void add(Part<Role> part) {
    const std::string role{Role::kRole};
    if (parts_.contains(part.name)) {
      throw std::logic_error("two parts of role " + role + " are named " + part.name);
    }
    part_catalogue()[{role, part.name}] = {role,      stage_of<Role>(), part.name,
                                           part.help, part.source,      part.parameters};
    std::string name = part.name;
    parts_.emplace(std::move(name), std::move(part));
  }

  /// Throws a UserError at `place` when there is no part of that name.
  [[nodiscard]] const Part<Role>& find(const std::string& name, const SourceLocation& place) const {
    const auto found = parts_.find(name);
    if (found == parts_.end()) throw unknown_name(place, Role::kRole, name, names());
    return found->second;
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, part] : parts_) names.push_back(name);
    return names;
  }

 private:
  std::map<std::string, Part<Role>> parts_;
};

template <typename Role>
struct Registered {
  /// `file` and `line` are those of the object.
  explicit Registered(Part<Role> part, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
    const std::string name = part.name;
    static std::map<std::string, std::string> places;
    const std::string place = std::string(file) + ":" + std::to_string(line);
    const auto [known, is_new] = places.emplace(name, place);
    if (is_new) {
      Registry<Role>::instance().add(std::move(part));
    } else {
      twice_registered_parts().push_back("two parts of role " + std::string(Role::kRole) +
                                         " are named " + name + ": " + known->second + " and " +
                                         place);
    }
  }
};

/// The part that stands for a role where a config names none; "" where it must name one.
template <typename Role>
[[nodiscard]] std::string default_part_of() {
  if constexpr (requires { Role::kDefaultPart; }) {
    return std::string(Role::kDefaultPart);
  } else {
    return "";
  }
}

/// A part picked by a config, with its arguments: {"part": "page", "group_tokens": 16}.
template <typename R>
class PartConfig {
 public:
  using Role = R;

  /// `others`: members beside the part's own, which the caller reads.
  [[nodiscard]] static PartConfig parse(const ConfigNode& node,
                                        std::vector<std::string> others = {}) {
    others.emplace_back("part");
    PartConfig chosen;
    const ConfigNode name = node.at("part");
    chosen.part_ = &Registry<Role>::instance().find(name.text(), name.place());
    chosen.arguments_ = parse_arguments(node, chosen.part_->parameters, others);
    return chosen;
  }
  /// The part named by the member of `object` that has the role's name. Without such a member:
  /// `default_part` at its defaults or, where there is no default part, a UserError.
  [[nodiscard]] static PartConfig parse_member(
      const ConfigNode& object, const std::string& default_part = default_part_of<Role>()) {
    return object.has(Role::kRole) || default_part.empty() ? parse(object.at(Role::kRole))
                                                           : by_name(default_part);
  }
  /// A part at its defaults.
  [[nodiscard]] static PartConfig by_name(const std::string& name) {
    PartConfig chosen;
    chosen.part_ = &Registry<Role>::instance().find(name, {});
    chosen.arguments_ = Arguments::defaults(chosen.part_->parameters, {});
    return chosen;
  }

  [[nodiscard]] const std::string& name() const { return part_->name; }
  [[nodiscard]] const Part<Role>& part() const { return *part_; }
  [[nodiscard]] const Arguments& arguments() const { return arguments_; }
  [[nodiscard]] std::unique_ptr<Role> make(const typename Role::Context& context) const {
    return part_->make(arguments_, context);
  }

 private:
  const Part<Role>* part_ = nullptr;
  Arguments arguments_;
};

/// Calls visit(chosen) for each of the parts, in order. All of them work in stage `kOf`.
template <Stage kOf, typename Visit, typename... Parts>
void for_parts_of(Visit&& visit, Parts&... parts) {
  static_assert(((Parts::Role::kStage == kOf) && ...));
  (visit(parts), ...);
}

}  // namespace kvreplay
