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
  const fs::path folder = fs::path(folder_) / kind;
  for (fs::recursive_directory_iterator at(folder, code), end; !code && at != end;
       at.increment(code)) {
    if (at->path().extension() != ".json") continue;
    names.push_back(at->path().lexically_relative(folder).replace_extension().generic_string());
  }
  if (code) {
    throw UserError({folder.string(), ""}, "cannot be read (" + code.message() + ")",
                    "a folder of JSON files");
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ConfigFolder::file(const std::string& kind, const std::string& name,
                               const SourceLocation& place) const {
  if (name.ends_with(".json")) return name;
  std::error_code ignored;
  const bool has_slash = name.find('/') != std::string::npos;
  const bool is_file = fs::is_regular_file(name, ignored);
  const bool lacks_ending = !is_file && fs::is_regular_file(name + ".json", ignored);
  if (has_slash && (is_file || lacks_ending)) return lacks_ending ? name + ".json" : name;
  if (name.starts_with('/') || name.starts_with("./") || name.starts_with("../")) return name;
  const std::vector<std::string> known = names(kind);
  if (!std::binary_search(known.begin(), known.end(), name)) {
    if (lacks_ending) {
      throw UserError(place, "unknown " + kind.substr(0, kind.size() - 1) + " '" + name + "'",
                      "./" + name + ".json for the file of this folder");
    }
    throw unknown_name(place, kind.substr(0, kind.size() - 1), name, known);
  }
  return (fs::path(folder_) / kind / (name + ".json")).string();
}

namespace {

/// `chain`: the files that led here, so that a circle is found.
ConfigNode load_on_base(const ConfigFolder& configs, const std::string& kind,
                        const std::string& file, std::vector<std::string> chain) {
  ConfigNode node = ConfigNode::load(file);
  if (!node.has("base")) return node;
  const ConfigNode base = node.at("base");
  std::string name = base.text();
  const bool is_path = name.ends_with(".json") || name.starts_with("./") || name.starts_with("../");
  if (is_path) name = (fs::path(file).parent_path() / name).lexically_normal().string();
  const std::string of_base = configs.file(kind, name, base.place());
  chain.push_back(fs::weakly_canonical(file).string());
  if (std::find(chain.begin(), chain.end(), fs::weakly_canonical(of_base).string()) !=
      chain.end()) {
    throw UserError(base.place(), "found '" + base.text() + "', which leads back to this file",
                    "a " + kind.substr(0, kind.size() - 1) + " that is not based on this one");
  }
  return node.on_base(load_on_base(configs, kind, of_base, std::move(chain)));
}

}  // namespace

ConfigNode ConfigFolder::load(const std::string& kind, const std::string& file) const {
  return load_on_base(*this, kind, file, {});
}

}  // namespace kvreplay
