#include "sim/replay/log_statistics.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/config.hpp"
#include "base/error.hpp"
#include "base/number_text.hpp"
#include "base/table.hpp"
#include "policies/decide/group_statistics.hpp"
#include "policies/place/place.hpp"

namespace kvreplay {

namespace fs = std::filesystem;

namespace {

constexpr std::array<std::int64_t, 5> kWithin{1, 2, 4, 8, 16};
constexpr std::array kLayouts{"sequence", "grouped", "correlated"};
constexpr double kHotShare = 0.8;
constexpr std::int64_t kPageTokens = 16;

struct StatisticsRow {
  Mean variance{};
  std::array<Mean, kWithin.size()> selected{};
  Mean reused{};
  Mean hot{};
  Mean in_page{};
  Mean evicted{};
  Mean reencoded{};
  std::array<Mean, kLayouts.size()> read_bytes{};

  StatisticsRow& operator+=(const StatisticsRow& other) {
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

std::vector<LogStatistics::Field> fields_of(const StatisticsRow& row) {
  std::vector<LogStatistics::Field> fields{{"key_variance", row.variance, 3}};
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

/// Adds the statistics of groups, including the variance of their keys where there is a trace.
void add_groups(const AccessLog& log, const LayerLog& layer, const TraceReader* trace,
                StatisticsRow& row) {
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

/// Adds the lengths of the reads without a cache, whatever the system's own layout.
void add_reads(const AccessLog& log, std::vector<StatisticsRow>& rows) {
  for (std::size_t i = 0; i < kLayouts.size(); ++i) {
    const PlaceSpec spec = PlaceSpec::parse(ConfigNode::parse(
        R"({"cache": {"part": "none"}, "layout": {"part": ")" + std::string(kLayouts[i]) + R"("}})",
        "log statistics"));
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

}  // namespace

std::vector<LogStatistics> log_statistics(const AccessLog& log, const TraceReader* trace,
                                          bool by_layer) {
  std::vector<StatisticsRow> rows(log.layers.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!log.layers[i].full_attention) add_groups(log, log.layers[i], trace, rows[i]);
  }
  add_reads(log, rows);
  std::vector<LogStatistics> result;
  StatisticsRow all;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (log.layers[i].full_attention) continue;
    all += rows[i];
    if (!by_layer) continue;
    result.push_back({log.system, std::to_string(log.layers[i].layer), fields_of(rows[i])});
  }
  if (!by_layer) result.push_back({log.system, "all", fields_of(all)});
  return result;
}

std::vector<std::string> access_logs_at(const std::string& path) {
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

std::string statistics_table(std::span<const LogStatistics> rows) {
  std::vector<Table::Column> columns{{"system", Table::Align::kLeft}, {"layer"}};
  for (const LogStatistics::Field& field : rows.front().fields) columns.push_back({field.name});
  Table table(std::move(columns));
  for (const LogStatistics& row : rows) {
    std::vector<std::string> cells{row.system, row.layer};
    for (const LogStatistics::Field& field : row.fields) {
      cells.push_back(field.mean.count == 0 ? "-" : fixed_text(field.mean.value(), field.decimals));
    }
    table.add_row(std::move(cells));
  }
  return table.text();
}

std::string statistics_json(std::span<const LogStatistics> rows) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const LogStatistics& row : rows) {
    nlohmann::ordered_json object{{"system", row.system}, {"layer", row.layer}};
    for (const LogStatistics::Field& field : row.fields) {
      object[field.name] = nullptr;
      if (field.mean.count > 0) object[field.name] = field.mean.value();
    }
    all.push_back(std::move(object));
  }
  return all.dump(2) + '\n';
}

}  // namespace kvreplay
