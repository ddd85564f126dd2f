#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/printable.hpp"
#include "base/registry.hpp"
#include "base/table.hpp"
#include "sim/replay/experiment.hpp"
#include "sim/replay/results.hpp"
#include "sim/replay/system_page.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "traces/shipped.hpp"
#include "traces/trace.hpp"

namespace kvreplay {
namespace {

using Rows = std::vector<std::pair<std::string, std::string>>;  // name, what it is

void print_rows(const Rows& rows) {
  Table table({{"", Table::Align::kLeft}, {"", Table::Align::kLeft}});
  for (const auto& [name, text] : rows) table.add_row({name, text});
  std::cout << table.text(false);
}

void list_configs(const ConfigFolder& configs, const std::string& kind) {
  Rows rows;
  for (const std::string& name : configs.names(kind)) {
    const ConfigNode node = configs.find(kind, name, {});
    rows.emplace_back(name, node.has("title") ? node.at("title").text() : "");
  }
  print_rows(rows);
}

void list_traces() {
  Rows rows;
  for (const ShippedTrace& trace : shipped_traces()) {
    const TraceInfo info = TraceReader(trace.file).info();
    std::vector<std::string> layers;
    for (const std::int64_t layer : info.recorded_layers) layers.push_back(std::to_string(layer));
    rows.emplace_back(trace.name, printable(info.model) + ", layers " + join(layers) + ", " +
                                      std::to_string(info.prompt_tokens) + " + " +
                                      std::to_string(info.decode_steps()) + " tokens: " +
                                      std::filesystem::path(trace.file).filename().string());
  }
  print_rows(rows);
}

void list_parts(const std::string& wanted_role) {
  std::vector<std::string> roles;
  Rows rows;
  for (const auto& [key, part] : part_catalogue()) {
    if (roles.empty() || roles.back() != part.role) roles.push_back(part.role);
    if (wanted_role.empty() || part.role == wanted_role) {
      rows.emplace_back(part.role + "/" + part.name, part.help);
    }
  }
  if (rows.empty()) throw unknown_name({}, "role", wanted_role, roles);
  print_rows(rows);
}

template <typename Row>
void add_metrics(std::span<const Column<Row>> columns, Rows& rows) {
  for (const Column<Row>& column : columns) {
    const bool known = std::any_of(rows.begin(), rows.end(),
                                   [&](const auto& row) { return row.first == column.name; });
    if (!known) rows.emplace_back(column.name, column.help);
  }
}

void list_metrics() {
  Rows rows;
  add_metrics(result_columns(), rows);
  add_metrics(quality_columns(), rows);
  print_rows(rows);
}

struct ListOptions {
  std::string kind;
  std::string role;
  bool markdown = false;
  ConfigFolder configs = ConfigFolder::standard();
};

}  // namespace

void add_list(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("list", "List systems, parts, devices and so on by name");
  auto options = std::make_shared<ListOptions>();
  const std::vector<std::string> kinds{"systems", "devices",     "models",  "platforms",
                                       "parts",   "experiments", "metrics", "traces"};
  command->add_option("KIND", options->kind, join(kinds, "|"))->required()->type_name("");
  command->add_option("ROLE", options->role, "For parts: only those of this role")->type_name("");
  add_configs_option(*command, options->configs);
  command->add_flag("--markdown", options->markdown,
                    "For systems: print the index of docs/systems");
  command->footer("Examples:\n  kvreplay list systems\n  kvreplay list parts cache");
  command->callback([options, kinds] {
    if (std::find(kinds.begin(), kinds.end(), options->kind) == kinds.end()) {
      throw unknown_name({}, "kind", options->kind, kinds);
    }
    if (options->markdown && options->kind != "systems") {
      throw UserError({}, "unexpected --markdown after " + options->kind,
                      "--markdown after systems");
    }
    if (options->kind == "parts") {
      list_parts(options->role);
    } else if (!options->role.empty()) {
      throw UserError({}, "unexpected '" + options->role + "' after " + options->kind,
                      "a role after parts alone");
    } else if (options->kind == "metrics") {
      list_metrics();
    } else if (options->kind == "traces") {
      list_traces();
    } else if (options->markdown) {
      std::cout << system_index(options->configs);
    } else {
      list_configs(options->configs, options->kind);
    }
  });
}

}  // namespace kvreplay
