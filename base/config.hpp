#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/parameters.hpp"

namespace kvreplay {

/// A value inside a JSON file that knows its place, so that every error names the file and the
/// path. A number may be written plainly or as {"value": 4, "source": "KVSwap 4.3"}.
class ConfigNode {
 public:
  /// Reads a file; comments are allowed. A syntax error names the line.
  [[nodiscard]] static ConfigNode load(const std::string& file);
  /// For values from elsewhere (the command line, a test).
  [[nodiscard]] static ConfigNode parse(std::string_view text, std::string file);

  [[nodiscard]] SourceLocation place() const { return {file_, within_}; }
  [[nodiscard]] const nlohmann::json& raw() const;

  [[nodiscard]] bool is_object() const;
  [[nodiscard]] bool is_array() const;
  [[nodiscard]] bool has(std::string_view key) const;
  /// The member; throws UserError when it is missing.
  [[nodiscard]] ConfigNode at(std::string_view key) const;
  /// An array's elements, or the value itself as the only element.
  [[nodiscard]] std::vector<ConfigNode> items() const;
  [[nodiscard]] std::vector<std::string> keys() const;
  /// Throws a UserError at the first member that is not in `allowed`. Members whose name starts
  /// with '_' are comments.
  void allow_only(std::span<const std::string> allowed) const;

  [[nodiscard]] std::string text() const;
  /// A scalar, unwrapped from {"value", "source"}.
  [[nodiscard]] Argument argument() const;

  /// This object with the member at `path` ("cache.capacity_groups") replaced; `text` is read as
  /// JSON where it parses and as a string otherwise. A source beside the old value is removed: it
  /// does not apply to the new number.
  [[nodiscard]] ConfigNode with(std::string_view path, std::string_view text) const;

  /// This object with the members of `base` that it does not have itself. Of an object that both
  /// have, such as a system's "cache", the members are merged; where it names another part, it
  /// keeps those of the base's arguments that the part also has. Errors about a member name the
  /// file that it stands in. The base's "name" is left out, and its "title" and "notes" say whose
  /// they are.
  [[nodiscard]] ConfigNode on_base(const ConfigNode& base) const;

 private:
  std::shared_ptr<const nlohmann::json> root_;
  const nlohmann::json* node_ = nullptr;
  std::string file_;
  std::string within_;
  /// The files of the members that stand in another one than the object around them, by path.
  std::shared_ptr<const std::map<std::string, std::string>> origins_;
};

/// Throws a UserError that names every one of the members, and of the parameters without a default,
/// that `object` lacks.
void check_complete(const ConfigNode& object, std::span<const std::string> members,
                    std::span<const Parameter> parameters = {});

/// What a config file of any kind says of itself.
struct ConfigHeader {
  /// "name", "title", "source" and "notes". Only the title is required.
  [[nodiscard]] static const std::vector<std::string>& members();
  /// `file_name`: the name where the file gives none. The other members of `object` are not read.
  [[nodiscard]] static ConfigHeader parse(const ConfigNode& object, std::string file_name);

  std::string name;
  std::string title;
  std::string source;  ///< may be empty
  std::string notes;   ///< may be empty
};

/// The members of `object` as values of `parameters`. Defaults fill the gaps; unknown members are
/// rejected with the nearest name. Members in `others` are skipped (they are not parameters).
[[nodiscard]] Arguments parse_arguments(const ConfigNode& object,
                                        std::span<const Parameter> parameters,
                                        std::span<const std::string> others = {});

}  // namespace kvreplay
