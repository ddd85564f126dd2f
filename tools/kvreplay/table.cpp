// `table`: the printed table of results that are there already.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/key_value.hpp"
#include "sim/replay/results.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"

namespace kvreplay {
namespace {

constexpr const char* kAllowedTable = "a folder of results, or a CSV file of one";

/// What a folder has one of, by the command that wrote it.
constexpr const char* kMainFiles[] = {"results.csv", "evaluated.csv", "closed_loop.csv",
                                      "needle.csv",  "claims.csv",    "steps.csv"};

std::string main_file(const std::string& given) {
  if (!std::filesystem::is_directory(given)) return given;
  for (const char* name : kMainFiles) {
    const std::filesystem::path file = std::filesystem::path(given) / name;
    if (std::filesystem::exists(file)) return file.string();
  }
  throw UserError({given, ""}, "has no results.csv, evaluated.csv or the like", kAllowedTable);
}

}  // namespace

void add_table(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "table", "Print a folder of results again: other columns, order or format");
  struct TableOptions {
    std::string given;
    std::vector<std::string> labels;
    TableView view;
  };
  auto options = std::make_shared<TableOptions>();
  command
      ->add_option("RESULTS", options->given,
                   "A folder that `run`, `sweep`, `merge`, `live`, `tune`, `evaluate` or "
                   "`reproduce` wrote, or a CSV file of one, such as FOLDER/quality.csv")
      ->required()
      ->type_name("");
  add_view_options(*command, options->view);
  command
      ->add_option("--label", options->labels,
                   "Show TEXT for a name of the table, of a column or in a row, as kvswap=Ours; "
                   "repeatable")
      ->type_name("NAME=TEXT")
      ->allow_extra_args(false);
  command->footer(
      "Examples:\n"
      "  kvreplay table results/first --columns device,system,latency_ms,dram_* --sort latency_ms\n"
      "  kvreplay table results/first --format latex --label kvswap=Ours > table.tex\n"
      "  kvreplay table results/first/quality.csv --sort output_error:desc");
  command->callback([options] {
    const std::string file = main_file(options->given);
    const ResultTable table = table_from_csv(read_text_file(file, kAllowedTable), file);
    std::vector<std::string> names;
    for (const ResultTable::Head& head : table.columns) names.push_back(head.name);
    check_view(options->view, names);
    for (const std::string& label : options->labels) {
      const std::optional<KeyValue> given = split_key_value(label);
      if (!given) throw UserError({"--label", ""}, "found '" + label + "'", "NAME=TEXT");
      options->view.labels[given->key] = given->value;
    }
    std::cout << view_text(table, options->view);
  });
}

}  // namespace kvreplay
