#include "tools/kvreplay/evaluation.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>

#include "base/config_folder.hpp"
#include "base/output_file.hpp"
#include "policies/adapters/adapt.hpp"
#include "policies/decide/trace_adapters.hpp"
#include "sim/models/record.hpp"
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

/// What holds a system's budget: tokens that a query head may attend to, or that are kept, or else
/// the bits of a stored element.
struct BudgetAxis {
  std::string unit;
  std::function<ConfigNode(const ConfigNode& system, std::int64_t budget)> set;
};

/// `prompt_tokens`: 0 where prompts differ in length, so that no share of one is a budget.
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
                        // A share of the context would come on top.
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
                        // Halves; half a token more, since a share of the prompt is rounded down.
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
  std::vector<std::pair<std::string, std::string>> values;  ///< what a table says, value
};

/// By system.
std::map<std::string, Sweep> parse_sets(const EvaluateOptions& options) {
  std::map<std::string, Sweep> sweeps;
  for (const std::string& set : options.sets) {
    const std::size_t equals = set.find('=');
    const std::size_t dot = set.find('.');
    if (equals == std::string::npos || dot > equals) {
      throw UserError({"--set", ""}, "found '" + set + "'", "SYSTEM.PART.PARAMETER=VALUE,VALUE");
    }
    const std::string system = set.substr(0, dot);
    if (std::find(options.systems.begin(), options.systems.end(), system) ==
        options.systems.end()) {
      throw unknown_name({"--set", ""}, "system", system, options.systems);
    }
    Sweep sweep{.path = set.substr(dot + 1, equals - dot - 1), .values = {}};
    std::istringstream values(set.substr(equals + 1));
    for (std::string value; std::getline(values, value, ',');) {
      std::string label = value;
      if (sweep.path.ends_with(".file")) {
        // A config's files are looked up beside it; these are not of the config.
        label = std::filesystem::path(value).stem().string();
        value = std::filesystem::absolute(value).string();
      }
      sweep.values.emplace_back(label, value);
    }
    if (sweep.values.empty() || !sweeps.emplace(system, std::move(sweep)).second) {
      throw UserError({"--set", ""}, "found '" + set + "'", "values, and one --set a system");
    }
  }
  return sweeps;
}

/// Where a system asks for a matrix and no trace was given to make it from.
class NoAdapters final : public AdapterSource {
 public:
  [[nodiscard]] Adapter adapter(std::int64_t, const std::string& name) const override {
    throw UserError({"--adapter-trace", ""}, "not given, but a system needs " + name,
                    "a recording of another text by the same model, with all layers");
  }
};

}  // namespace

std::vector<EvaluationCell> make_cells(const EvaluateOptions& options) {
  const ConfigFolder configs = ConfigFolder::standard();
  const std::map<std::string, Sweep> sweeps = parse_sets(options);
  std::vector<EvaluationCell> cells;
  const auto add = [&](const ConfigNode& node, const std::string& system, const std::string& budget,
                       const std::string& unit) {
    const std::string name = budget.empty() ? system : system + " " + budget + " " + unit;
    cells.push_back({{name, SystemSpec::parse(node, name).decide}, system, budget, unit});
  };
  for (const std::string& name : options.systems) {
    const std::string file = configs.file("systems", name, {"--systems", ""});
    const ConfigNode node = ConfigNode::load(file);
    const std::string system = std::filesystem::path(file).stem().string();
    if (const auto sweep = sweeps.find(name); sweep != sweeps.end()) {
      const std::string& path = sweep->second.path;
      for (const auto& [label, value] : sweep->second.values) {
        add(node.with(path, value), system, label, path.substr(path.rfind('.') + 1));
      }
      continue;
    }
    const std::optional<BudgetAxis> axis = budget_axis(node, options.needle ? 0 : options.prompt);
    const std::vector<std::int64_t> none;
    const std::vector<std::int64_t>& budgets = !axis                    ? none
                                               : axis->unit == "tokens" ? options.budgets
                                                                        : options.bits;
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

OwnTrace::OwnTrace(const EvaluateOptions& options, const Model& model, const ModelText& text,
                   std::int64_t prompt_tokens, std::int64_t steps, const ResultFolder& folder)
    : file_(folder.temporary_path() + "/own.kvtrace.h5") {
  RecordOptions record{.ids = text.ids,
                       .prompt_tokens = prompt_tokens,
                       .steps = steps,
                       .threads = options.threads,
                       .text_source = text.source,
                       .text_sha256 = text.sha256,
                       .created_utc = "1970-01-01T00:00:00Z"};
  record.query_window = std::min(record.query_window, prompt_tokens);
  record_trace(model, record, file_);
  if (options.adapter_trace.empty()) {
    trace_ = std::make_unique<TraceReader>(file_);
    adapters_ = std::make_shared<NoAdapters>();
    return;
  }
  const std::string plain = file_ + ".plain";
  std::filesystem::rename(file_, plain);
  const TraceReader other(options.adapter_trace);
  if (!text.sha256.empty() && other.info().text_sha256 == text.sha256) {
    std::cerr << "kvreplay: warning: the adapter trace is of the very text that is evaluated\n";
  }
  const std::int64_t rank = std::min<std::int64_t>(48, model.architecture().kv_size());
  adapt_trace(other, TraceReader(plain), {.rank = rank}, file_);
  std::filesystem::remove(plain);
  trace_ = std::make_unique<TraceReader>(file_);
  adapters_ = std::make_shared<TraceAdapters>(*trace_);
}

OwnTrace::~OwnTrace() {
  std::error_code ignored;
  std::filesystem::remove(file_, ignored);
}

std::string csv(std::span<const Column> columns, std::size_t rows) {
  std::string text;
  for (const Column& column : columns) text += (text.empty() ? "" : ",") + column.name;
  text += '\n';
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      text += (i == 0 ? "" : ",") + columns[i].value(row);
    }
    text += '\n';
  }
  return text;
}

std::string table(std::span<const Column> columns, std::size_t rows) {
  std::vector<std::vector<std::string>> cells(columns.size());
  std::ostringstream text;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    cells[i].push_back(columns[i].name);
    for (std::size_t row = 0; row < rows; ++row) {
      std::string value = columns[i].value(row);
      if (columns[i].numeric && columns[i].decimals >= 0 && !value.empty()) {
        std::ostringstream rounded;
        rounded << std::fixed << std::setprecision(columns[i].decimals) << std::stod(value);
        value = rounded.str();
      }
      cells[i].push_back(value.empty() ? "-" : value);
    }
  }
  for (std::size_t row = 0; row <= rows; ++row) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      std::size_t width = 0;
      for (const std::string& cell : cells[i]) width = std::max(width, cell.size());
      text << (i == 0 ? "" : "  ") << (columns[i].numeric ? std::right : std::left)
           << std::setw(static_cast<int>(width)) << cells[i][row];
    }
    text << '\n';
  }
  return text.str();
}

std::vector<Column> cell_columns(std::span<const EvaluationCell> cells) {
  return {{"system", [=](std::size_t i) { return cells[i].system; }, 0, false},
          {"budget", [=](std::size_t i) { return cells[i].budget; }, -1, true},
          {"budget_unit", [=](std::size_t i) { return cells[i].unit; }, 0, false}};
}

std::string number(double value) {
  return std::isfinite(value) ? to_text(Value{value}) : "";
}

void write(const ResultFolder& folder, const std::string& name, const std::string& text) {
  write_text_file((std::filesystem::path(folder.temporary_path()) / name).string(), text);
}

}  // namespace kvreplay
