#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "base/error.hpp"

namespace kvreplay {

/// The folder in which names are looked up: NAME of kind "systems" is FOLDER/systems/NAME.json.
class ConfigFolder {
 public:
  explicit ConfigFolder(std::string folder) : folder_(std::move(folder)) {}
  /// The configs/ folder of data_folder().
  [[nodiscard]] static ConfigFolder standard();

  [[nodiscard]] const std::string& folder() const { return folder_; }
  /// The names of a kind ("systems", "models", "platforms", "devices", "experiments"), sorted. A
  /// file in a folder of the kind is named with it: "papers/kvswap_load".
  [[nodiscard]] std::vector<std::string> names(const std::string& kind) const;
  /// The file of a name. A name that ends in .json is a path and is used as it is, and so is one
  /// with a slash that names a file, with or without its .json. Throws a UserError at `place` with
  /// the nearest name when there is none.
  [[nodiscard]] std::string file(const std::string& kind, const std::string& name,
                                 const SourceLocation& place) const;
  /// The config in a file. Its member "base" names another one of the kind (a path is relative to
  /// the file's own folder), whose members it takes where it has none of its own.
  [[nodiscard]] ConfigNode load(const std::string& kind, const std::string& file) const;
  /// The config of a name, or in a file, as file() finds it.
  [[nodiscard]] ConfigNode find(const std::string& kind, const std::string& name,
                                const SourceLocation& place) const {
    return load(kind, file(kind, name, place));
  }

 private:
  std::string folder_;
};

}  // namespace kvreplay
