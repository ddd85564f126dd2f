#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <sstream>

#include "base/error.hpp"
#include "base/key_value.hpp"
#include "sim/evaluation/evaluation.hpp"
#include "sim/replay/system.hpp"

namespace kvreplay {
namespace {

bool has_parameter(const ConfigNode& system, const std::string& role, const std::string& name) {
  if (!system.has(role)) return false;
  const auto part = part_catalogue().find({role, system.at(role).at("part").text()});
  return part != part_catalogue().end() &&
         std::any_of(part->second.parameters.begin(), part->second.parameters.end(),
                     [&](const Parameter& parameter) { return parameter.name == name; });
}

/// What a system's budget means: the tokens that a query head may attend to, the tokens that are
/// kept, or else the bits of a stored element.
struct BudgetAxis {
  std::string unit;
  std::function<ConfigNode(const ConfigNode& system, std::int64_t budget)> set;
};

/// `prompt_tokens`: 0 where prompts differ in length, so that a share of the prompt is not a
/// budget.
std::optional<BudgetAxis> budget_axis(const ConfigNode& system, std::int64_t prompt_tokens) {
  const auto has = [&](const char* role, const char* name) {
    return has_parameter(system, role, name);
  };
  const auto axis = [](const char* unit, const std::string& path) {
    return BudgetAxis{unit, [path](const ConfigNode& node, std::int64_t budget) {
                        return node.with(path, std::to_string(budget));
                      }};
  };
  if (has("selection", "budget_tokens")) {
    return BudgetAxis{"tokens", [](const ConfigNode& node, std::int64_t budget) {
                        const ConfigNode set =
                            node.with("selection.budget_tokens", std::to_string(budget));
                        // A share of the context would be added to the budget.
                        return has_parameter(set, "selection", "budget_share")
                                   ? set.with("selection.budget_share", "0")
                                   : set;
                      }};
  }
  for (const char* name : {"budget_tokens", "capacity_tokens"}) {
    if (has("retention", name)) return axis("tokens", std::string("retention.") + name);
  }
  if (prompt_tokens > 0 && has("retention", "heavy_share") && has("retention", "recent_share")) {
    return BudgetAxis{"tokens", [=](const ConfigNode& node, std::int64_t budget) {
                        // Two equal shares. Half a token is added because a share of the prompt is
                        // rounded down.
                        const auto share = [&](std::int64_t tokens) {
                          return to_text(Value{(static_cast<double>(tokens) + 0.5) /
                                               static_cast<double>(prompt_tokens)});
                        };
                        return node.with("retention.heavy_share", share(budget - budget / 2))
                            .with("retention.recent_share", share(budget / 2));
                      }};
  }
  if (has("retention", "sink_tokens") && has("retention", "window_tokens")) {
    return BudgetAxis{"tokens", [](const ConfigNode& node, std::int64_t budget) {
                        const ConfigNode retention = node.at("retention");
                        const std::int64_t sinks =
                            retention.has("sink_tokens")
                                ? std::stoll(to_text(retention.at("sink_tokens").argument().value))
                                : 0;
                        return node.with("retention.sink_tokens", std::to_string(sinks))
                            .with("retention.window_tokens", std::to_string(budget - sinks));
                      }};
  }
  if (has("precision", "bits")) return axis("bits", "precision.bits");
  return std::nullopt;
}

/// One --set: SYSTEM.PATH=VALUE,VALUE.
struct Sweep {
  std::string path;
  std::vector<std::pair<std::string, std::string>> values;  ///< label in tables, value
};

/// The parsed --set options, by system.
std::map<std::string, Sweep> parse_sets(const EvaluationRequest& request) {
  std::map<std::string, Sweep> sweeps;
  for (const std::string& set : request.sets) {
    const std::optional<KeyValue> given = split_key_value(set);
    const std::size_t dot = given ? given->key.find('.') : std::string::npos;
    if (dot == std::string::npos) {
      throw UserError({"--set", ""}, "found '" + set + "'", "SYSTEM.PART.PARAMETER=VALUE,VALUE");
    }
    const std::string system = given->key.substr(0, dot);
    if (std::find(request.systems.begin(), request.systems.end(), system) ==
        request.systems.end()) {
      throw unknown_name({"--set", ""}, "system", system, request.systems);
    }
    Sweep sweep{.path = given->key.substr(dot + 1), .values = {}};
    std::istringstream values(given->value);
    for (std::string value; std::getline(values, value, ',');) {
      std::string label = value;
      if (sweep.path.ends_with(".file")) {
        // Files named in a config are looked up beside it, but these names come from the command
        // line.
        label = std::filesystem::path(value).stem().string();
        value = std::filesystem::absolute(value).string();
      }
      sweep.values.emplace_back(label, value);
    }
    if (sweep.values.empty() || !sweeps.emplace(system, std::move(sweep)).second) {
      throw UserError({"--set", ""}, "found '" + set + "'",
                      "values, and at most one --set per system");
    }
  }
  return sweeps;
}

}  // namespace

std::vector<EvaluationCell> make_cells(const EvaluationRequest& request) {
  const std::map<std::string, Sweep> sweeps = parse_sets(request);
  std::vector<EvaluationCell> cells;
  const auto add = [&](const ConfigNode& node, const std::string& system, const std::string& budget,
                       const std::string& unit) {
    const std::string name = budget.empty() ? system : system + " " + budget + " " + unit;
    cells.push_back({{name, SystemSpec::parse(node, name).decide}, system, budget, unit});
  };
  for (const std::string& name : request.systems) {
    const ConfigNode node = request.configs.find("systems", name, {"--systems", ""});
    const std::string system =
        ConfigHeader::parse(node, std::filesystem::path(node.place().file).stem().string()).name;
    if (const auto sweep = sweeps.find(name); sweep != sweeps.end()) {
      const std::string& path = sweep->second.path;
      for (const auto& [label, value] : sweep->second.values) {
        add(node.with(path, value), system, label, path.substr(path.rfind('.') + 1));
      }
      continue;
    }
    const std::optional<BudgetAxis> axis = budget_axis(node, request.needle ? 0 : request.prompt);
    const std::vector<std::int64_t> none;
    const std::vector<std::int64_t>& budgets = !axis                    ? none
                                               : axis->unit == "tokens" ? request.budgets
                                                                        : request.bits;
    if (budgets.empty()) add(node, system, "", "");
    for (const std::int64_t budget : budgets) {
      add(axis->set(node, budget), system, std::to_string(budget), axis->unit);
    }
  }
  return cells;
}

std::vector<NamedDecideSpec> specs_of(std::span<const EvaluationCell> cells) {
  std::vector<NamedDecideSpec> specs;
  for (const EvaluationCell& cell : cells) specs.push_back(cell.decide);
  return specs;
}

}  // namespace kvreplay
