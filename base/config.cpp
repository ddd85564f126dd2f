#include "base/config.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/files.hpp"
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
      throw unknown_name(place(), "member", key, allowed);
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

Arguments parse_arguments(const ConfigNode& object, std::span<const Parameter> parameters,
                          std::span<const std::string> others) {
  std::vector<std::string> allowed(others.begin(), others.end());
  for (const Parameter& parameter : parameters) allowed.push_back(parameter.name);
  object.allow_only(allowed);

  Arguments arguments;
  arguments.set_place(object.place());
  for (const Parameter& parameter : parameters) {
    if (object.has(parameter.name)) {
      arguments.set(parameter, object.at(parameter.name).argument());
    } else if (parameter.default_value) {
      arguments.set(parameter, {*parameter.default_value, "", true});
    } else {
      throw UserError(object.place(), "required parameter '" + parameter.name + "' is missing",
                      allowed_text(parameter));
    }
  }
  return arguments;
}

}  // namespace kvreplay
