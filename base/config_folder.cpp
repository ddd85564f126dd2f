#include "base/config_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/build_info.hpp"

namespace kvreplay {

namespace fs = std::filesystem;

ConfigFolder ConfigFolder::standard() {
  return ConfigFolder(data_folder() + "/configs");
}

std::vector<std::string> ConfigFolder::names(const std::string& kind) const {
  std::vector<std::string> names;
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(folder_) / kind, code)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  if (code) {
    throw UserError({(fs::path(folder_) / kind).string(), ""},
                    "cannot be read (" + code.message() + ")", "a folder of JSON files");
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ConfigFolder::file(const std::string& kind, const std::string& name,
                               const SourceLocation& place) const {
  if (name.find('/') != std::string::npos || name.ends_with(".json")) return name;
  const std::vector<std::string> known = names(kind);
  if (!std::binary_search(known.begin(), known.end(), name)) {
    std::error_code ignored;
    if (fs::is_regular_file(name + ".json", ignored)) {
      throw UserError(place, "unknown " + kind.substr(0, kind.size() - 1) + " '" + name + "'",
                      "./" + name + ".json for the file of this folder");
    }
    throw unknown_name(place, kind.substr(0, kind.size() - 1), name, known);
  }
  return (fs::path(folder_) / kind / (name + ".json")).string();
}

}  // namespace kvreplay
