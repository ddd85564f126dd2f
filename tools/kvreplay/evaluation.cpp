#include "tools/kvreplay/evaluation.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <optional>
#include <sstream>

#include "policies/adapt.hpp"
#include "policies/trace_adapters.hpp"
#include "sim/base/config_folder.hpp"
#include "sim/base/output_file.hpp"
#include "sim/system.hpp"
#include "sim/transformer/record.hpp"

namespace kvreplay {
namespace {

bool has_parameter(const ConfigNode& system, const std::string& role, const std::string& name) {
  if (!system.has(role)) return false;
  const auto part = part_catalogue().find({role, system.at(role).at("part").text()});
  return part != part_catalogue().end() &&
         std::any_of(part->second.parameters.begin(), part->second.parameters.end(),
                     [&](const Parameter& parameter) { return parameter.name == name; });
}

/// The parameter that holds a system's budget: tokens that a query head may attend to, or that are
/// kept, or else the bits of a stored element.
struct BudgetAxis {
  std::string path;
  std::string unit;
};

std::optional<BudgetAxis> budget_axis(const ConfigNode& system) {
  const auto named = [&](const char* role, const char* name) {
    return has_parameter(system, role, name);
  };
  if (named("selection", "budget_tokens")) return BudgetAxis{"selection.budget_tokens", "tokens"};
  for (const char* name : {"budget_tokens", "capacity_tokens"}) {
    if (named("retention", name)) return BudgetAxis{std::string("retention.") + name, "tokens"};
  }
  if (named("precision", "bits")) return BudgetAxis{"precision.bits", "bits"};
  return std::nullopt;
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
    const std::optional<BudgetAxis> axis = budget_axis(node);
    const std::vector<std::int64_t> none;
    const std::vector<std::int64_t>& values = !axis                    ? none
                                              : axis->unit == "tokens" ? options.budgets
                                                                       : options.bits;
    if (values.empty()) add(node, system, "", "");
    for (const std::int64_t value : values) {
      ConfigNode set = node.with(axis->path, std::to_string(value));
      // A share of the context would come on top.
      if (has_parameter(set, "selection", "budget_share")) {
        set = set.with("selection.budget_share", "0");
      }
      add(set, system, std::to_string(value), axis->unit);
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
      if (columns[i].numeric && !value.empty()) {
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
          {"budget", [=](std::size_t i) { return cells[i].budget; }, 0, true},
          {"budget_unit", [=](std::size_t i) { return cells[i].unit; }, 0, false}};
}

std::string number(double value) {
  return std::isfinite(value) ? to_text(Value{value}) : "";
}

void write(const ResultFolder& folder, const std::string& name, const std::string& text) {
  write_text_file((std::filesystem::path(folder.temporary_path()) / name).string(), text);
}

}  // namespace kvreplay
