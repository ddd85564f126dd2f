#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/config.hpp"

namespace kvreplay {

/// "key=value" from --set, or a member of the file's "set", "zip" or "cases". The key is a member
/// of the experiment (device) or a parameter of a config that it names (device.ufs40.queue_depth).
struct Setting {
  std::string key;
  ConfigNode value;
  bool from_file = false;

  [[nodiscard]] SourceLocation place() const { return value.place(); }
  /// The rest of the key behind `role` ("cache.part" of "system.cache.part"), if the key is of that
  /// role.
  [[nodiscard]] std::optional<std::string> below(const std::string& role) const;
};

/// One combination of an experiment's alternatives, in addition to the file's own members.
class Point {
 public:
  Point(const ConfigNode& file, std::vector<Setting> settings, std::string case_name);

  /// In the order in which they apply, with each key once.
  [[nodiscard]] const std::vector<Setting>& settings() const { return settings_; }
  [[nodiscard]] const Setting* find(const std::string& key) const;
  /// "" where the experiment has no cases.
  [[nodiscard]] const std::string& case_name() const { return case_name_; }
  /// A member of the experiment: from a setting that replaces it, or from the file.
  [[nodiscard]] ConfigNode member(const std::string& name) const;
  /// The experiment's own parameters.
  [[nodiscard]] Arguments arguments() const;

 private:
  ConfigNode file_;
  std::vector<Setting> settings_;
  std::string case_name_;
};

/// An experiment's file with the settings of the command line, as docs/experiments.md describes
/// them. The names in it are not resolved.
struct ExperimentSource {
  ExperimentSource(const std::string& file, std::span<const std::string> sets);

  ConfigNode file;
  /// Every combination of alternatives; a single one where there are none. The axes are those of
  /// "set", then "zip", "cases" and the command line; the first varies slowest.
  std::vector<Point> points;
  /// Keys that differ between points, in that order. Members that name configs are left out,
  /// because results show those names anyway.
  std::vector<std::string> swept;
  bool has_cases = false;
};

/// Members of an experiment that take one value or a list of them: trace, system, model, platform,
/// device, batch.
[[nodiscard]] std::span<const std::string> list_members();

/// The text of a member that names a config. A path that begins with ./ or ../ and leads to a file
/// from the folder of the experiment's own file is completed by that folder; otherwise it is one of
/// the working folder.
[[nodiscard]] std::string beside_experiment(const ConfigNode& item);

/// The values of a list or a range, or the single value itself.
[[nodiscard]] std::vector<ConfigNode> values_of(const ConfigNode& node);

}  // namespace kvreplay
