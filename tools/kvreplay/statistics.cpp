#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "sim/replay/log_statistics.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "traces/trace.hpp"

namespace kvreplay {
namespace {

struct StatisticsOptions {
  std::vector<std::string> paths;
  std::string trace;
  bool by_layer = false;
  bool json = false;
};

void print_statistics(const StatisticsOptions& options) {
  std::optional<TraceReader> trace;
  if (!options.trace.empty()) trace.emplace(options.trace);
  std::vector<LogStatistics> rows;
  for (const std::string& path : options.paths) {
    for (const std::string& file : access_logs_at(path)) {
      const AccessLog log = read_access_log(file);
      if (trace && trace->content_hash() != log.trace_hash) {
        throw UserError({file, "/trace_sha256"}, "found " + log.trace_hash,
                        trace->content_hash() + ", that of " + options.trace);
      }
      for (LogStatistics& row : log_statistics(log, trace ? &*trace : nullptr, options.by_layer)) {
        rows.push_back(std::move(row));
      }
    }
  }
  std::cout << (options.json ? statistics_json(rows) : statistics_table(rows));
}

}  // namespace

void add_statistics(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "statistics", "Show how groups are spread, updated, selected again and read");
  auto options = std::make_shared<StatisticsOptions>();
  command
      ->add_option("ACCESSLOG", options->paths,
                   "Files or folders that `kvreplay run --access-log` wrote")
      ->required()
      ->type_name("");
  takes_traces(command->add_option("--trace", options->trace,
                                   "The replayed trace, whose keys key_variance needs"))
      ->type_name("TRACE");
  command->add_flag("--by-layer", options->by_layer,
                    "Print one row per layer, in place of one per system");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "key_variance        mean squared distance of a key from its group's mean, at the end\n"
      "selected_within_N   share of the groups a step changes that are requested within N more "
      "steps\n"
      "reused_share        share of the requested groups that the previous step also requested\n"
      "hot_groups_share    share of the groups that, asked for most, make 80 % of what is asked "
      "for\n"
      "attended_in_page    tokens that a query head attends to in a page of 16, where it does\n"
      "evicted_share       share of the tokens that are evicted, at the end\n"
      "reencoded_share     share of the others that are not in their first format\n"
      "LAYOUT_read_bytes   mean length of a read without a cache (correlated: where the log has "
      "the\n"
      "                    selections of the prompt's last queries)\n\n"
      "Example:\n"
      "  kvreplay run crosses --access-log --out runs/crosses\n"
      "  kvreplay statistics runs/crosses --trace story");
  command->callback([options] { print_statistics(*options); });
}

}  // namespace kvreplay
