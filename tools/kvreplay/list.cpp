#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/number_text.hpp"
#include "base/printable.hpp"
#include "base/registry.hpp"
#include "base/table.hpp"
#include "devices/device_config.hpp"
#include "devices/endurance.hpp"
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

/// What each device holds and is rated for, and where its file has that from.
void list_endurance(const ConfigFolder& configs) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"device", Table::Align::kLeft},
               {"capacity GB", kRight},
               {"rated TB written", kRight},
               {"cycles", kRight},
               {"spare %", kRight},
               {"source of the rating", Table::Align::kLeft}});
  for (const std::string& name : configs.names("devices")) {
    const ConfigNode node = configs.find("devices", name, {});
    const DeviceSpec device = DeviceSpec::load(configs.file("devices", name, {}), configs);
    const Endurance endurance = endurance_of(device);
    if (endurance.capacity_bytes == 0 && endurance.rated_bytes == 0) continue;
    const Arguments& given = device.device.arguments();
    const bool has_rating = given.integer("rated_write_bytes") > 0;
    const nlohmann::json& rating = node.at(has_rating ? "rated_write_bytes" : "rated_cycles").raw();
    table.add_row({name, fixed_text(static_cast<double>(endurance.capacity_bytes) / 1e9, 0),
                   fixed_text(endurance.rated_bytes / 1e12, 1),
                   has_rating ? "-" : std::to_string(given.integer("rated_cycles")),
                   shortest_text(given.real("gc_spare_percent")),
                   rating.is_object() ? rating.value("source", "") : ""});
  }
  std::cout << table.text();
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
  bool endurance = false;
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
  command->add_flag("--endurance", options->endurance,
                    "For devices: capacity, rating and over-provisioning, each with its source");
  command->footer(
      "Examples:\n  kvreplay list systems\n  kvreplay list parts cache\n"
      "  kvreplay list devices --endurance");
  command->callback([options, kinds] {
    if (std::find(kinds.begin(), kinds.end(), options->kind) == kinds.end()) {
      throw unknown_name({}, "kind", options->kind, kinds);
    }
    if (options->markdown && options->kind != "systems") {
      throw UserError({}, "unexpected --markdown after " + options->kind,
                      "--markdown after systems");
    }
    if (options->endurance && options->kind != "devices") {
      throw UserError({}, "unexpected --endurance after " + options->kind,
                      "--endurance after devices");
    }
    if (options->endurance) {
      list_endurance(options->configs);
    } else if (options->kind == "parts") {
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
