#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/config.hpp"

namespace kvreplay {

/// "key=value" from --set, or a member of the file's "set", "zip" or "cases". The key is a member
/// of the experiment (device) or a parameter of what one names (device.ufs40.queue_depth).
struct Setting {
  std::string key;
  ConfigNode value;
  bool from_file = false;

  [[nodiscard]] SourceLocation place() const { return value.place(); }
  /// The key below `role` ("cache.part" of "system.cache.part"), if it is one of that role.
  [[nodiscard]] std::optional<std::string> below(const std::string& role) const;
};

/// One combination of an experiment's alternatives: what holds beside the file's own members.
class Point {
 public:
  Point(const ConfigNode& file, std::vector<Setting> settings, std::string case_name);

  /// In the order in which they apply; each key once.
  [[nodiscard]] const std::vector<Setting>& settings() const { return settings_; }
  [[nodiscard]] const Setting* find(const std::string& key) const;
  /// "" where the experiment has no cases.
  [[nodiscard]] const std::string& case_name() const { return case_name_; }
  /// A member of the experiment: as a setting replaces it, or as the file says.
  [[nodiscard]] ConfigNode member(const std::string& name) const;
  /// The experiment's own parameters.
  [[nodiscard]] Arguments arguments() const;

 private:
  ConfigNode file_;
  std::vector<Setting> settings_;
  std::string case_name_;
};

/// An experiment's file with the settings of the command line, as docs/experiments.md describes
/// them: everything but what the names in it stand for.
struct ExperimentSource {
  ExperimentSource(const std::string& file, std::span<const std::string> sets);

  ConfigNode file;
  /// Every combination of alternatives; one where there are none. Those of "set" first, then "zip",
  /// "cases" and the command line; the first varies slowest.
  std::vector<Point> points;
  /// Keys that differ between points, in that order; not the members that name things, whose
  /// names results show anyway.
  std::vector<std::string> swept;
  bool has_cases = false;
};

/// Members of an experiment that take one value or a list of them: trace, system, model, platform,
/// device, batch.
[[nodiscard]] std::span<const std::string> list_members();

/// The values of a list, a range, or the one value itself.
[[nodiscard]] std::vector<ConfigNode> values_of(const ConfigNode& node);

}  // namespace kvreplay
