#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "policies/decide/group_statistics.hpp"
#include "policies/place/place.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "traces/trace.hpp"

namespace kvreplay {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::int64_t, 5> kWithin{1, 2, 4, 8, 16};
constexpr std::array kLayouts{"sequence", "grouped", "correlated"};
constexpr double kHotShare = 0.8;
constexpr std::int64_t kPageTokens = 16;

/// Of one layer of one log, or of all of its layers that select. A mean of nothing is "-" or null.
struct Row {
  std::string system;
  std::string layer;
  Mean variance{};
  std::array<Mean, kWithin.size()> selected{};
  Mean reused{};
  Mean hot{};
  Mean in_page{};
  Mean evicted{};
  Mean reencoded{};
  std::array<Mean, kLayouts.size()> read_bytes{};

  Row& operator+=(const Row& other) {
    variance += other.variance;
    for (std::size_t i = 0; i < selected.size(); ++i) selected[i] += other.selected[i];
    reused += other.reused;
    hot += other.hot;
    in_page += other.in_page;
    evicted += other.evicted;
    reencoded += other.reencoded;
    for (std::size_t i = 0; i < read_bytes.size(); ++i) read_bytes[i] += other.read_bytes[i];
    return *this;
  }
};

struct Field {
  std::string name;
  Mean mean;
  int decimals;
};

std::vector<Field> fields_of(const Row& row) {
  std::vector<Field> fields{{"key_variance", row.variance, 3}};
  for (std::size_t i = 0; i < kWithin.size(); ++i) {
    fields.push_back({"selected_within_" + std::to_string(kWithin[i]), row.selected[i], 3});
  }
  fields.push_back({"reused_share", row.reused, 3});
  fields.push_back({"hot_groups_share", row.hot, 3});
  fields.push_back({"attended_in_page", row.in_page, 2});
  fields.push_back({"evicted_share", row.evicted, 3});
  fields.push_back({"reencoded_share", row.reencoded, 3});
  for (std::size_t i = 0; i < kLayouts.size(); ++i) {
    fields.push_back({std::string(kLayouts[i]) + "_read_bytes", row.read_bytes[i], 0});
  }
  return fields;
}

/// Groups' own statistics; the keys' variance where there is a trace.
void add_groups(const AccessLog& log, const LayerLog& layer, const TraceReader* trace, Row& row) {
  std::optional<TraceLayer> data;
  if (trace != nullptr) {
    const std::vector<std::int64_t>& recorded = trace->info().recorded_layers;
    const auto found = std::find(recorded.begin(), recorded.end(), layer.layer);
    data = trace->load_layer(found - recorded.begin());
  }
  for (const StreamLog& stream : layer.streams) {
    if (data) {
      const Entries entries = Entries{data->keys, data->values}
                                  .first_tokens(log.prompt_tokens + log.steps)
                                  .select_heads(stream.first_kv_head, stream.kv_heads);
      row.variance += group_variance(stream, entries);
    }
    const std::vector<Mean> selected = selected_after_update(stream, kWithin);
    for (std::size_t i = 0; i < kWithin.size(); ++i) row.selected[i] += selected[i];
    row.reused += reused_groups(stream);
    row.hot += hot_groups(stream, kHotShare);
    row.in_page += attended_in_page(stream, kPageTokens);
    row.evicted += evicted_tokens(stream, log.prompt_tokens + log.steps);
    row.reencoded += reencoded_tokens(stream, log.prompt_tokens + log.steps);
  }
}

/// The lengths of the reads without a cache, whatever the system's own layout.
void add_reads(const AccessLog& log, std::vector<Row>& rows) {
  for (std::size_t i = 0; i < kLayouts.size(); ++i) {
    PlaceSpec spec{Chosen<Cache>::by_name("none"), Chosen<Layout>::by_name(kLayouts[i])};
    const bool has_window =
        std::any_of(log.layers.begin(), log.layers.end(), [](const LayerLog& layer) {
          return !layer.streams.empty() && layer.streams.front().window_begin.size() > 1;
        });
    if (spec.layout.make({})->needs_window() && !has_window) continue;
    const IoPlan plan =
        place(log, spec, {std::ssize(log.layers), log.query_heads, log.kv_heads, log.head_dim});
    for (std::size_t l = 0; l < rows.size(); ++l)
      rows[l].read_bytes[i] = read_length(plan.layers[l]);
  }
}

/// A row for each layer that selects, or their sum.
std::vector<Row> rows_of(const AccessLog& log, const TraceReader* trace, bool by_layer) {
  std::vector<Row> rows;
  for (const LayerLog& layer : log.layers) {
    Row& row = rows.emplace_back(Row{.system = log.system, .layer = std::to_string(layer.layer)});
    if (!layer.full_attention) add_groups(log, layer, trace, row);
  }
  add_reads(log, rows);
  std::vector<Row> selecting;
  Row all{.system = log.system, .layer = "all"};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (log.layers[i].full_attention) continue;
    all += rows[i];
    selecting.push_back(std::move(rows[i]));
  }
  if (!by_layer) selecting.assign(1, all);
  return selecting;
}

/// The logs that a path names: itself, or those of a folder of results.
std::vector<std::string> logs_at(const std::string& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<std::string> logs;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.path().string().ends_with(".access.h5")) logs.push_back(entry.path().string());
  }
  std::sort(logs.begin(), logs.end());
  if (logs.empty()) {
    throw UserError({path, ""}, "holds no access log", "a folder of `kvreplay run --access-log`");
  }
  return logs;
}

std::string cell_text(const Field& field) {
  if (field.mean.count == 0) return "-";
  std::ostringstream text;
  text << std::fixed << std::setprecision(field.decimals) << field.mean.value();
  return text.str();
}

void print_table(const std::vector<Row>& rows) {
  std::vector<std::vector<std::string>> lines{{"system", "layer"}};
  for (const Field& field : fields_of(rows.front())) lines.front().push_back(field.name);
  for (const Row& row : rows) {
    std::vector<std::string>& line = lines.emplace_back();
    line = {row.system, row.layer};
    for (const Field& field : fields_of(row)) line.push_back(cell_text(field));
  }
  for (const std::vector<std::string>& line : lines) {
    for (std::size_t column = 0; column < line.size(); ++column) {
      std::size_t width = 0;
      for (const auto& other : lines) width = std::max(width, other[column].size());
      std::cout << (column == 0 ? std::left : std::right) << (column == 0 ? "" : "  ")
                << std::setw(static_cast<int>(width)) << line[column];
    }
    std::cout << '\n';
  }
}

void print_json(const std::vector<Row>& rows) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json object{{"system", row.system}, {"layer", row.layer}};
    for (const Field& field : fields_of(row)) {
      object[field.name] = nullptr;
      if (field.mean.count > 0) object[field.name] = field.mean.value();
    }
    all.push_back(std::move(object));
  }
  std::cout << all.dump(2) << '\n';
}

struct StatisticsOptions {
  std::vector<std::string> paths;
  std::string trace;
  bool by_layer = false;
  bool json = false;
};

void print_statistics(const StatisticsOptions& options) {
  std::optional<TraceReader> trace;
  if (!options.trace.empty()) trace.emplace(options.trace);
  std::vector<Row> rows;
  for (const std::string& path : options.paths) {
    for (const std::string& file : logs_at(path)) {
      const AccessLog log = read_access_log(file);
      if (trace && trace->content_hash() != log.trace_hash) {
        throw UserError({file, "/trace_sha256"}, "found " + log.trace_hash,
                        trace->content_hash() + ", that of " + options.trace);
      }
      for (Row& row : rows_of(log, trace ? &*trace : nullptr, options.by_layer)) {
        rows.push_back(std::move(row));
      }
    }
  }
  options.json ? print_json(rows) : print_table(rows);
}

}  // namespace

void add_statistics(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "statistics", "Say how groups are spread, updated, selected again and read");
  auto options = std::make_shared<StatisticsOptions>();
  command
      ->add_option("ACCESSLOG", options->paths,
                   "Files or folders that `kvreplay run --access-log` wrote")
      ->required()
      ->type_name("");
  takes_traces(command->add_option("--trace", options->trace,
                                   "The trace that was replayed: key_variance needs its keys"))
      ->type_name("TRACE");
  command->add_flag("--by-layer", options->by_layer, "A row a layer, in place of one a system");
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(
      "key_variance        mean squared distance of a key from its group's mean, at the end\n"
      "selected_within_N   share of the groups a step changes that are asked for within N more "
      "steps\n"
      "reused_share        share of the groups asked for that the step before asked for, too\n"
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
