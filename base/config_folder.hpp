#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace kvreplay {

/// The folder in which names are looked up: NAME of kind "systems" is FOLDER/systems/NAME.json.
class ConfigFolder {
 public:
  explicit ConfigFolder(std::string folder) : folder_(std::move(folder)) {}
  /// The configs/ folder of data_folder().
  [[nodiscard]] static ConfigFolder standard();

  [[nodiscard]] const std::string& folder() const { return folder_; }
  /// The names of a kind ("systems", "models", "platforms", "devices", "experiments"), sorted.
  [[nodiscard]] std::vector<std::string> names(const std::string& kind) const;
  /// The file of a name. A name with a slash or that ends in .json is a path and is used as it is.
  /// Throws a UserError at `place` with the nearest name when there is none.
  [[nodiscard]] std::string file(const std::string& kind, const std::string& name,
                                 const SourceLocation& place) const;

 private:
  std::string folder_;
};

}  // namespace kvreplay
