#include "base/config.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/files.hpp"
#include "base/registry.hpp"
#include "base/utf8.hpp"

namespace kvreplay {

using nlohmann::json;

namespace {

/// Far deeper than any config, and far shallower than recursion over a value can handle.
constexpr int kMaxDepth = 64;

std::string found_text(const json& node) {
  std::string text = node.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return "found " + std::string(node.type_name()) + " " + text;
}

/// Watches a text while it is parsed: how deep it nests, and that no member stands twice.
class MemberCheck {
 public:
  explicit MemberCheck(std::string file) : file_(std::move(file)) {}

  void operator()(int depth, json::parse_event_t event, const json& parsed) {
    using Event = json::parse_event_t;
    if (depth > kMaxDepth) {
      throw UserError({file_, ""}, "found members nested deeper than " + std::to_string(kMaxDepth),
                      "a flatter JSON object");
    }
    switch (event) {
      case Event::object_start:
      case Event::array_start:
        count_item();
        levels_.push_back({.is_array = event == Event::array_start, .name = "", .seen = {}});
        break;
      case Event::object_end:
      case Event::array_end:
        levels_.pop_back();
        break;
      case Event::key:
        levels_.back().name = parsed.get<std::string>();
        if (!levels_.back().seen.insert(levels_.back().name).second) {
          throw UserError({file_, within()}, "stands twice", "each member once");
        }
        break;
      case Event::value:
        count_item();
        break;
    }
  }

 private:
  struct Level {
    bool is_array = false;
    std::string name;  ///< of the member that is being parsed
    std::set<std::string> seen;
    std::size_t items = 0;
  };

  void count_item() {
    if (!levels_.empty() && levels_.back().is_array) ++levels_.back().items;
  }
  [[nodiscard]] std::string within() const {
    std::string path;
    for (const Level& level : levels_) {
      path += "/" + (level.is_array ? std::to_string(level.items - 1) : level.name);
    }
    return path;
  }

  std::string file_;
  std::vector<Level> levels_;
};

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

using Origins = std::map<std::string, std::string>;

/// Removes the origins of a member and of everything in it.
void forget(Origins& origins, const std::string& within) {
  std::erase_if(origins, [&](const auto& entry) {
    return entry.first == within || entry.first.starts_with(within + "/");
  });
}

/// Whether two values of one member are merged, and not replaced: both are objects of members.
bool are_merged(const json& base, const json& own) {
  return base.is_object() && own.is_object() && !base.contains("value") && !own.contains("value");
}

/// The base's arguments that the part named by `own` has. All, where it names no other part.
json kept_arguments(const json& base, const json& own, const std::string& role) {
  if (!own.contains("part") || !base.contains("part") || own["part"] == base["part"]) return base;
  json kept = json::object();
  const std::string part = own["part"].is_string() ? own["part"].get<std::string>() : "";
  const auto found = part_catalogue().find({role, part});
  if (found == part_catalogue().end()) return kept;  // parsing reports it
  for (const Parameter& parameter : found->second.parameters) {
    if (base.contains(parameter.name)) kept[parameter.name] = base[parameter.name];
  }
  return kept;
}

/// "'a', 'b' and 'c'"
std::string quoted_list(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 < names.size() ? ", " : " and ";
    text += "'" + names[i] + "'";
  }
  return text;
}

}  // namespace

ConfigNode ConfigNode::load(const std::string& file) {
  return parse(read_text_file(file, "a readable JSON file"), file);
}

ConfigNode ConfigNode::parse(std::string_view text, std::string file) {
  ConfigNode node;
  node.file_ = std::move(file);
  try {
    MemberCheck check(node.file_);
    const auto checked = [&check](int depth, json::parse_event_t event, const json& parsed) {
      check(depth, event, parsed);
      return true;
    };
    node.root_ = std::make_shared<const json>(json::parse(text, checked, true, true));
  } catch (const json::exception& error) {
    std::string message = first_line(error.what());
    const std::size_t bracket = message.find("] ");
    if (bracket != std::string::npos) message = message.substr(bracket + 2);
    throw UserError(node.place(), "not valid JSON (" + message + ")", "a JSON object");
  }
  node.node_ = node.root_.get();
  return node;
}

const json& ConfigNode::raw() const {
  return *node_;
}
bool ConfigNode::is_object() const {
  return node_->is_object();
}
bool ConfigNode::is_array() const {
  return node_->is_array();
}
bool ConfigNode::has(std::string_view key) const {
  return node_->is_object() && node_->contains(std::string(key));
}

ConfigNode ConfigNode::at(std::string_view key) const {
  if (!is_object()) throw UserError(place(), found_text(*node_), "an object");
  const auto member = node_->find(std::string(key));
  if (member == node_->end()) {
    throw UserError(place(), "required member '" + std::string(key) + "' is missing", "");
  }
  ConfigNode child = *this;
  child.node_ = &*member;
  child.within_ += "/" + std::string(key);
  if (origins_ != nullptr) {
    const auto origin = origins_->find(child.within_);
    if (origin != origins_->end()) child.file_ = origin->second;
  }
  return child;
}

std::vector<ConfigNode> ConfigNode::items() const {
  if (!is_array()) return {*this};
  std::vector<ConfigNode> items;
  for (std::size_t i = 0; i < node_->size(); ++i) {
    ConfigNode child = *this;
    child.node_ = &(*node_)[i];
    child.within_ += "/" + std::to_string(i);
    items.push_back(std::move(child));
  }
  return items;
}

std::vector<std::string> ConfigNode::keys() const {
  if (!is_object()) throw UserError(place(), found_text(*node_), "an object");
  std::vector<std::string> keys;
  for (const auto& member : node_->items()) keys.push_back(member.key());
  return keys;
}

void ConfigNode::allow_only(std::span<const std::string> allowed) const {
  for (const std::string& key : keys()) {
    if (key.starts_with('_')) continue;
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      throw unknown_name({at(key).file_, within_}, "member", key, allowed);
    }
  }
}

std::string ConfigNode::text() const {
  if (!node_->is_string()) throw UserError(place(), found_text(*node_), "text");
  return node_->get<std::string>();
}

Argument ConfigNode::argument() const {
  Argument argument;
  const json* scalar = node_;
  if (is_object()) {
    static const std::vector<std::string> kMembers{"value", "source"};
    allow_only(kMembers);
    scalar = at("value").node_;
    if (has("source")) argument.source = at("source").text();
  }
  if (scalar->is_boolean()) {
    argument.value = scalar->get<bool>();
  } else if (scalar->is_number_integer()) {
    argument.value = scalar->get<std::int64_t>();
  } else if (scalar->is_number()) {
    argument.value = scalar->get<double>();
  } else if (scalar->is_string()) {
    argument.value = scalar->get<std::string>();
  } else {
    throw UserError(place(), found_text(*scalar),
                    R"(a number, text, true or false, or {"value", "source"})");
  }
  return argument;
}

ConfigNode ConfigNode::with(std::string_view path, std::string_view text) const {
  auto root = std::make_shared<json>(*node_);
  json* member = root.get();
  std::stringstream names{std::string(path)};
  for (std::string name; std::getline(names, name, '.');) {
    if (!member->is_object()) {
      throw UserError({"", std::string(path)}, "no such member in " + file_, "a path of names");
    }
    member = &(*member)[name];
  }
  check_utf8(text, {"", std::string(path)});
  json value = json::parse(text, nullptr, false);
  if (value.is_structured()) value = parse(text, "--set " + std::string(path)).raw();
  *member = value.is_discarded() ? json(std::string(text)) : std::move(value);
  ConfigNode changed = *this;
  changed.node_ = root.get();
  changed.root_ = std::move(root);
  return changed;
}

ConfigNode ConfigNode::on_base(const ConfigNode& base) const {
  if (!is_object()) throw UserError(place(), found_text(*node_), "an object");
  auto root = std::make_shared<json>(*base.node_);
  auto origins = std::make_shared<Origins>();
  if (base.origins_ != nullptr) *origins = *base.origins_;
  for (const std::string& key : base.keys()) origins->try_emplace("/" + key, base.file_);
  root->erase("name");
  std::vector<std::string> changed;
  for (const auto& [key, value] : node_->items()) {
    if (key == "base") continue;
    const std::vector<std::string>& header = ConfigHeader::members();
    if (std::find(header.begin(), header.end(), key) == header.end()) changed.push_back(key);
    const std::string within = "/" + key;
    json& member = (*root)[key];
    if (!are_merged(member, value)) {
      member = value;
      forget(*origins, within);
      continue;
    }
    const std::string file = origins->contains(within) ? origins->at(within) : base.file_;
    member = kept_arguments(member, value, key);
    origins->erase(within);
    for (const auto& [inner, of_base] : member.items()) {
      origins->try_emplace(within + "/" + inner, file);
    }
    for (const auto& [inner, own] : value.items()) {
      member[inner] = own;
      forget(*origins, within + "/" + inner);
    }
  }
  const std::string name = node_->contains("base") && (*node_)["base"].is_string()
                               ? (*node_)["base"].get<std::string>()
                               : base.file_;
  if (!has("title") && root->contains("title") && (*root)["title"].is_string() &&
      !changed.empty()) {
    (*root)["title"] =
        (*root)["title"].get<std::string>() + " (" + name + ") with other " + join(changed);
  }
  if (!has("notes") && root->contains("notes") && (*root)["notes"].is_string()) {
    (*root)["notes"] = "Of " + name + ": " + (*root)["notes"].get<std::string>();
  }
  ConfigNode merged;
  merged.file_ = file_;
  merged.node_ = root.get();
  merged.root_ = std::move(root);
  merged.origins_ = std::move(origins);
  return merged;
}

void check_complete(const ConfigNode& object, std::span<const std::string> members,
                    std::span<const Parameter> parameters) {
  if (!object.is_object()) throw UserError(object.place(), found_text(object.raw()), "an object");
  std::vector<std::string> missing;
  for (const std::string& member : members) {
    if (!object.has(member)) missing.push_back(member);
  }
  std::vector<const Parameter*> of_parameters;
  for (const Parameter& parameter : parameters) {
    if (!parameter.default_value && !object.has(parameter.name)) {
      of_parameters.push_back(&parameter);
    }
  }
  if (missing.empty() && of_parameters.empty()) return;
  if (missing.empty() && of_parameters.size() == 1) {
    throw UserError(object.place(),
                    "required parameter '" + of_parameters.front()->name + "' is missing",
                    allowed_text(*of_parameters.front()));
  }
  if (of_parameters.empty() && missing.size() == 1) {
    throw UserError(object.place(), "required member '" + missing.front() + "' is missing", "");
  }
  std::vector<std::string> allowed;
  for (const Parameter* parameter : of_parameters) {
    missing.push_back(parameter->name);
    allowed.push_back(parameter->name + " " + allowed_text(*parameter));
  }
  throw UserError(object.place(), "required members " + quoted_list(missing) + " are missing",
                  join(allowed));
}

const std::vector<std::string>& ConfigHeader::members() {
  static const std::vector<std::string> kMembers{"name", "title", "source", "notes"};
  return kMembers;
}

ConfigHeader ConfigHeader::parse(const ConfigNode& object, std::string file_name) {
  ConfigHeader header;
  header.name = object.has("name") ? object.at("name").text() : std::move(file_name);
  header.title = object.at("title").text();
  if (object.has("source")) header.source = object.at("source").text();
  if (object.has("notes")) header.notes = object.at("notes").text();
  return header;
}

Arguments parse_arguments(const ConfigNode& object, std::span<const Parameter> parameters,
                          std::span<const std::string> others) {
  std::vector<std::string> allowed(others.begin(), others.end());
  for (const Parameter& parameter : parameters) allowed.push_back(parameter.name);
  object.allow_only(allowed);
  check_complete(object, {}, parameters);

  Arguments arguments;
  arguments.set_place(object.place());
  for (const Parameter& parameter : parameters) {
    if (!object.has(parameter.name)) {
      arguments.set(parameter, {*parameter.default_value, "", true});
      continue;
    }
    const ConfigNode member = object.at(parameter.name);
    if (member.place().file != object.place().file) {
      arguments.set_file(parameter.name, member.place().file);
    }
    arguments.set(parameter, member.argument());
  }
  return arguments;
}

}  // namespace kvreplay
