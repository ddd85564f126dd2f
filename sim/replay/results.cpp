#include "sim/replay/results.hpp"

#include <H5public.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/build_info.hpp"
#include "base/hash.hpp"
#include "base/number_text.hpp"
#include "base/output_file.hpp"
#include "base/shell.hpp"
#include "base/statistics.hpp"
#include "base/table.hpp"
#include "sim/replay/phase_columns.hpp"
#include "sim/replay/stage_keys.hpp"
#include "sim/replay/sustained_rows.hpp"
#include "sim/replay/turn_rows.hpp"

namespace kvreplay {
namespace {

using nlohmann::ordered_json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// NaN, which gives an empty field, where the denominator is 0.
double ratio(double numerator, double denominator) {
  return denominator == 0 ? kNone : numerator / denominator;
}

/// Mean over the timed steps of a member of StepTiming.
template <typename Number>
double step_mean(const CellResult& cell, Number StepTiming::*member) {
  double sum = 0;
  for (const StepTiming& step : cell.timing.steps) sum += static_cast<double>(step.*member);
  return sum / static_cast<double>(cell.timing.steps.size());
}

double milliseconds(double nanoseconds) {
  return nanoseconds / 1e6;
}

double latency_percentile(const CellResult& cell, double share) {
  std::vector<SimTime> latencies;
  for (const StepTiming& step : cell.timing.steps) latencies.push_back(step.latency_ns);
  std::sort(latencies.begin(), latencies.end());
  return static_cast<double>(percentile(latencies, share));
}

/// Converts nanojoules over the timed steps and the batch to millijoules per token.
double mj_per_token(const CellResult& cell, double nanojoules) {
  return ratio(nanojoules / 1e6,
               static_cast<double>(std::ssize(cell.timing.steps) * cell.timing.batch));
}

/// Empty where the recording lacks what it is computed from.
constexpr const char* kResidualError = "residual_error";

double hidden_ns(const CellResult& cell) {
  return step_mean(cell, &StepTiming::busy_io_ns) - step_mean(cell, &StepTiming::exposed_io_ns);
}

/// What a recording cannot say of a longer sequence: NaN, an empty field.
double of_own_length(const CellResult& cell, double value) {
  return cell.stretched_from_tokens > 0 ? kNone : value;
}

std::vector<Column<CellResult>> make_result_columns() {
  using Cell = CellResult;
  const auto count = [](std::int64_t number) { return CellValue{number}; };
  return {
      {"trace", "the recording that was replayed", [](const Cell& c) { return c.trace; }, 0},
      {"synthetic", "1: the trace was generated, not recorded from a model",
       [=](const Cell& c) { return count(c.synthetic ? 1 : 0); }},
      {"model", "the model whose shape and compute the plan was made for",
       [](const Cell& c) { return c.model; }, 0},
      {"platform", "the SoC", [](const Cell& c) { return c.platform; }, 0},
      {"batch", "sequences decoded together", [=](const Cell& c) { return count(c.batch); }, 0},
      {"projection", "recorded shape -> the model's shape, where they differ",
       [](const Cell& c) { return c.projection; }, 0},
      {"device", "the flash device", [](const Cell& c) { return c.device; }, 0},
      {"system", "the composition of parts", [](const Cell& c) { return c.system; }, 0},
      {"steps", "decode steps timed",
       [=](const Cell& c) { return count(std::ssize(c.timing.steps)); }, 0},
      {"tokens_per_s", "decoded tokens per second, over the whole batch",
       [](const Cell& c) {
         return static_cast<double>(c.batch) * 1e9 / step_mean(c, &StepTiming::latency_ns);
       },
       2, 1},
      {"latency_ms", "mean time per step: compute + exposed I/O",
       [](const Cell& c) { return milliseconds(step_mean(c, &StepTiming::latency_ns)); }, 1, 1},
      {"latency_p99_ms", "99th percentile of the time per step",
       [](const Cell& c) { return milliseconds(latency_percentile(c, 0.99)); }},
      {"compute_ms", "mean time per step that the processor computes",
       [](const Cell& c) { return milliseconds(step_mean(c, &StepTiming::compute_ns)); }, 1, 7},
      {"exposed_io_ms", "mean time per step that the processor waits for I/O",
       [](const Cell& c) { return milliseconds(step_mean(c, &StepTiming::exposed_io_ns)); }, 1, 3},
      {"hidden_io_ms", "mean time per step that I/O runs while the processor computes",
       [](const Cell& c) { return milliseconds(hidden_ns(c)); }},
      {"read_bytes_per_step", "bytes per step that cross the link to the host",
       [](const Cell& c) { return step_mean(c, &StepTiming::read_bytes); }, 0, 4},
      {"least_read_bytes_per_step",
       "bytes of entries per step that the oracle of best_hit_rate misses",
       [](const Cell& c) {
         return static_cast<double>(c.timing.min_read_bytes) /
                static_cast<double>(c.timing.steps.size());
       }},
      {"read_requests_per_step", "read commands per step",
       [](const Cell& c) { return step_mean(c, &StepTiming::read_requests); }},
      {"mean_read_bytes", "bytes per read command",
       [](const Cell& c) {
         return ratio(step_mean(c, &StepTiming::read_bytes),
                      step_mean(c, &StepTiming::read_requests));
       }},
      {"written_bytes_per_step", "bytes per step that cross the link to the device",
       [](const Cell& c) { return step_mean(c, &StepTiming::write_bytes); }},
      {"write_requests_per_step", "write commands per step",
       [](const Cell& c) { return step_mean(c, &StepTiming::write_requests); }},
      {"moved_bytes_per_step", "bytes per step that the layout reads only to write them elsewhere",
       [](const Cell& c) {
         return static_cast<double>(c.timing.moved_bytes) /
                static_cast<double>(c.timing.steps.size());
       }},
      {"flash_region_bytes", "bytes of flash that the layouts take",
       [=](const Cell& c) { return count(c.timing.region_bytes); }},
      {"flash_live_bytes", "of these, bytes of entries in groups when the recording ends",
       [=](const Cell& c) { return count(c.timing.live_bytes); }},
      {"nand_read_bytes_per_step", "bytes per step sensed in flash for the host",
       [](const Cell& c) {
         return static_cast<double>(c.timing.flash_read_bytes) /
                static_cast<double>(c.timing.steps.size());
       }},
      {"nand_written_bytes_per_step", "bytes per step programmed in flash, moved ones included",
       [](const Cell& c) {
         return static_cast<double>(c.timing.flash_write_bytes) /
                static_cast<double>(c.timing.steps.size());
       }},
      {"write_amplification", "bytes programmed in flash / bytes that cross the link to the device",
       [](const Cell& c) {
         return ratio(
             static_cast<double>(c.timing.flash_write_bytes),
             step_mean(c, &StepTiming::write_bytes) * static_cast<double>(c.timing.steps.size()));
       }},
      {"erases_per_step", "erase blocks of a die erased per step",
       [](const Cell& c) {
         return static_cast<double>(c.timing.erases) / static_cast<double>(c.timing.steps.size());
       }},
      {"prompt_written_bytes", "bytes of the prompt's entries written before the first step",
       [=](const Cell& c) { return count(c.timing.prompt_write_bytes); }},
      {"read_amplification", "bytes sensed in flash / bytes of entries missed in the cache",
       [](const Cell& c) {
         return ratio(static_cast<double>(c.timing.flash_read_bytes),
                      static_cast<double>(c.timing.missed_bytes));
       }},
      {"device_mb_s", "bytes read and written / time that the device is busy",
       [](const Cell& c) {
         const double bytes =
             step_mean(c, &StepTiming::read_bytes) + step_mean(c, &StepTiming::write_bytes);
         return ratio(bytes * 1e3, step_mean(c, &StepTiming::busy_io_ns));
       }},
      {"hit_rate", "bytes of groups found in the cache / bytes of groups requested",
       [](const Cell& c) {
         return ratio(static_cast<double>(c.timing.hit_bytes),
                      static_cast<double>(c.timing.requested_bytes));
       },
       3, 4},
      {"best_hit_rate", "hit_rate of an oracle with the cache's capacity",
       [](const Cell& c) {
         return ratio(static_cast<double>(c.timing.best_hit_bytes),
                      static_cast<double>(c.timing.requested_bytes));
       }},
      {"dram_kv_bytes", "DRAM for key-value management, all uses but the weights",
       [=](const Cell& c) { return count(c.timing.dram.kv_bytes()); }, 0, 3},
      {"dram_cache_bytes", "of these, groups held in memory",
       [=](const Cell& c) { return count(c.timing.dram.cache_bytes); }},
      {"dram_dense_bytes", "of these, layers with full attention",
       [=](const Cell& c) { return count(c.timing.dram.full_attention_bytes); }},
      {"dram_index_bytes", "of these, representatives of groups",
       [=](const Cell& c) { return count(c.timing.dram.index_bytes); }},
      {"dram_buffered_bytes", "of these, entries outside groups: sinks, window, unfinished groups",
       [=](const Cell& c) { return count(c.timing.dram.buffered_bytes); }},
      {"dram_landing_bytes", "of these, read buffers",
       [=](const Cell& c) { return count(c.timing.dram.read_buffer_bytes); }},
      {"dram_weights_bytes", "DRAM for the model's weights",
       [=](const Cell& c) { return count(c.timing.dram.weights_bytes); }},
      {"dram_bytes", "DRAM for key-value management and weights",
       [=](const Cell& c) {
         return count(c.timing.dram.kv_bytes() + c.timing.dram.weights_bytes);
       }},
      {"dram_share", "dram_bytes / the platform's DRAM; above 1 it would not fit",
       [](const Cell& c) {
         return ratio(static_cast<double>(c.timing.dram.kv_bytes() + c.timing.dram.weights_bytes),
                      static_cast<double>(c.platform_dram_bytes));
       }},
      {"energy_mj_per_token", "energy per token: processor, DRAM and flash",
       [](const Cell& c) { return mj_per_token(c, c.timing.energy.total_nj()); }, 0, 6},
      {"compute_energy_mj_per_token", "energy per token of the processor, computing and waiting",
       [](const Cell& c) { return mj_per_token(c, c.timing.energy.compute_nj); }},
      {"dram_energy_mj_per_token", "energy per token of the DRAM: bits moved, and standby",
       [](const Cell& c) { return mj_per_token(c, c.timing.energy.dram_nj); }},
      {"flash_energy_mj_per_token",
       "energy per token of the flash device: pages, bits moved, idle power",
       [](const Cell& c) { return mj_per_token(c, c.timing.energy.flash_nj); }},
      {"recall", "share of the true top tokens that are attended to",
       [](const Cell& c) { return of_own_length(c, c.quality.recall); }},
      {"attention_mass", "share of full attention's weight on the tokens attended to",
       [](const Cell& c) { return of_own_length(c, c.quality.attention_mass); }, 3, 2},
      {"best_attention_mass", "attention_mass of as many tokens chosen by the true logits",
       [](const Cell& c) { return of_own_length(c, c.quality.best_attention_mass); }},
      {"output_error", "relative error of the attention output against full attention",
       [](const Cell& c) { return of_own_length(c, c.quality.output_error); }, 4, 2},
      {kResidualError,
       "error behind the output projection / norm of the residual stream, over all layers",
       [](const Cell& c) { return of_own_length(c, c.quality.residual_error); }, 4, 3},
      {"worst_layer", "the recorded layer whose errors harm the model most",
       [=](const Cell& c) {
         const bool unknown = c.stretched_from_tokens > 0 || std::isnan(c.worst_layer_error);
         return unknown ? CellValue{kNone} : count(c.worst_layer);
       },
       0, 8},
      {"worst_layer_error", "output_error of that layer",
       [](const Cell& c) { return of_own_length(c, c.worst_layer_error); }, 4, 8},
      {"attended_tokens", "tokens that a query head attends to, in recorded layers that select",
       [](const Cell& c) { return of_own_length(c, c.quality.attended_tokens); }, 0, 8},
      {"layer_attended_tokens", "tokens that a query head attends to, mean over the model's layers",
       [](const Cell& c) { return c.timing.attended_tokens; }},
      {"stored_bits", "bits per element of stored keys and values, in layers that select",
       [](const Cell& c) { return c.timing.stored_bits; }},
      {"marks", "why the numbers are of another case than was asked for; empty: they are not",
       [](const Cell& c) { return c.marks; }, 0, 5},
  };
}

std::vector<Column<LayerQuality>> make_quality_columns() {
  using Row = LayerQuality;
  return {
      {"trace", "the recording that was replayed", [](const Row& r) { return r.trace; }},
      {"synthetic", "1: the trace was generated, not recorded from a model",
       [](const Row& r) { return CellValue{std::int64_t{r.synthetic}}; }},
      {"system", "the composition of parts", [](const Row& r) { return r.system; }},
      {"layer", "the recorded model's layer", [](const Row& r) { return r.layer; }},
      {"dense", "1: full attention, in memory",
       [](const Row& r) { return CellValue{std::int64_t{r.full_attention}}; }},
      {"recall", "share of the true top tokens that are attended to",
       [](const Row& r) { return r.means.recall; }},
      {"attention_mass", "share of full attention's weight on the tokens attended to",
       [](const Row& r) { return r.means.attention_mass; }},
      {"best_attention_mass", "attention_mass of as many tokens chosen by the true logits",
       [](const Row& r) { return r.means.best_attention_mass; }},
      {"output_error", "relative error of the attention output against full attention",
       [](const Row& r) { return r.means.output_error; }},
      {kResidualError, "error behind the output projection / norm of the residual stream",
       [](const Row& r) { return r.means.residual_error; }},
      {"attended_tokens", "tokens that a query head attends to",
       [](const Row& r) { return r.means.attended_tokens; }},
  };
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char character : text) {
    if (character == '"') quoted += '"';
    quoted += character;
  }
  return quoted + '"';
}

CellValue setting_value(const std::optional<Value>& value) {
  if (!value) return kNone;
  if (const auto* integer = std::get_if<std::int64_t>(&*value)) return *integer;
  if (const auto* real = std::get_if<double>(&*value)) return *real;
  return to_text(*value);
}

template <typename Row>
ResultTable table_of(std::span<const Column<Row>> columns, std::span<const Row> rows) {
  ResultTable table;
  // A swept key has no fixed place among the columns: it follows the system.
  for (const Column<Row>& column : columns) {
    table.columns.push_back({column.name, column.table_decimals});
    if (column.name != "system" || rows.empty()) continue;
    for (const auto& [name, value] : rows.front().settings) table.columns.push_back({name, 3});
  }
  for (const Row& row : rows) {
    std::vector<CellValue>& values = table.rows.emplace_back();
    for (const Column<Row>& column : columns) {
      values.push_back(column.value(row));
      if (column.name != "system") continue;
      for (const auto& [name, value] : row.settings) values.push_back(setting_value(value));
    }
  }
  return table;
}

ordered_json json_value(const CellValue& value) {
  if (const auto* number = std::get_if<double>(&value); number != nullptr && std::isnan(*number)) {
    return nullptr;
  }
  return std::visit([](const auto& scalar) { return ordered_json(scalar); }, value);
}

std::string command_text(const Experiment& experiment) {
  std::string text = "kvreplay run " + shell_word(experiment.name);
  for (const std::string& set : experiment.sets) text += " --set " + shell_word(set);
  return text;
}

/// Of the sources of each stage, as they were built: what a version number does not tell apart.
ordered_json sources_json() {
  return {{"decide", kDecideSources}, {"place", kPlaceSources}, {"time", kTimeSources}};
}

std::string compiler_text() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

}  // namespace

std::string exact_text(const CellValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  const double number = std::get<double>(value);
  if (std::isnan(number)) return "";
  return shortest_text(number);
}

std::span<const Column<CellResult>> result_columns() {
  static const std::vector<Column<CellResult>> columns = [] {
    std::vector<Column<CellResult>> all = make_result_columns();
    for (Column<CellResult>& column : phase_columns()) all.push_back(std::move(column));
    return all;
  }();
  return columns;
}

std::span<const Column<LayerQuality>> quality_columns() {
  static const std::vector<Column<LayerQuality>> columns = make_quality_columns();
  return columns;
}

ResultTable result_rows(std::span<const CellResult> cells) {
  return table_of(result_columns(), cells);
}

ResultTable quality_rows(std::span<const LayerQuality> layers) {
  return table_of(quality_columns(), layers);
}

std::string csv_text(const ResultTable& table) {
  std::string text;
  const auto add_field = [&](std::size_t column, const std::string& field) {
    if (column > 0) text += ',';
    text += csv_field(field);
  };
  for (std::size_t i = 0; i < table.columns.size(); ++i) add_field(i, table.columns[i].name);
  text += '\n';
  for (const std::vector<CellValue>& row : table.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) add_field(i, exact_text(row[i]));
    text += '\n';
  }
  return text;
}

std::string json_text(const ResultTable& table) {
  ordered_json rows = ordered_json::array();
  for (const std::vector<CellValue>& values : table.rows) {
    ordered_json row;
    for (std::size_t i = 0; i < values.size(); ++i) {
      row[table.columns[i].name] = json_value(values[i]);
    }
    rows.push_back(std::move(row));
  }
  return rows.dump(2) + '\n';
}

std::string results_table(std::span<const CellResult> cells) {
  return table_text(result_rows(cells));
}

std::string results_csv(std::span<const CellResult> cells) {
  return csv_text(result_rows(cells));
}

std::string results_json(std::span<const CellResult> cells) {
  return json_text(result_rows(cells));
}

std::string quality_csv(std::span<const LayerQuality> layers) {
  return csv_text(quality_rows(layers));
}

std::string manifest_json(const Experiment& experiment, const ReplayResult& result) {
  ordered_json manifest;
  manifest["experiment"] = experiment.name;
  manifest["title"] = experiment.title;
  manifest["command"] = command_text(experiment);
  const std::string resolved = experiment.resolved();
  manifest["config"] = ordered_json::parse(resolved);
  manifest["config_sha256"] = sha256_text(resolved);
  for (const TraceHash& trace : result.traces) {
    manifest["traces"].push_back(
        {{"trace", trace.trace}, {"sha256", trace.sha256}, {"synthetic", trace.synthetic}});
  }
  for (const SystemSpec& system : experiment.systems) {
    manifest["differs"][system.name] = system.differs;
  }
  if (!experiment.notes.empty()) manifest["notes"] = experiment.notes;
  manifest["kvreplay_version"] = version();
  manifest["sources_sha256"] = sources_json();
  manifest["hdf5_version"] = H5_VERS_INFO;
  manifest["compiler"] = compiler_text();
  utsname host{};
  ::uname(&host);
  manifest["host"] = {{"name", host.nodename}, {"system", host.sysname}, {"machine", host.machine}};
  return manifest.dump(2) + '\n';
}

void write_results(const std::string& folder, const ResultTable& cells, const ResultTable& layers,
                   const std::string& manifest) {
  const auto write = [&](const std::string& name, const std::string& text) {
    write_text_file((std::filesystem::path(folder) / name).string(), text);
  };
  write("results.csv", csv_text(cells));
  write("results.json", json_text(cells));
  write("quality.csv", csv_text(layers));
  write("table.txt", table_text(cells));
  write("manifest.json", manifest);
}

void write_results(const std::string& folder, const Experiment& experiment,
                   const ReplayResult& result) {
  const ResultTable turns = turn_rows(result.cells);
  if (!turns.rows.empty()) {
    write_text_file((std::filesystem::path(folder) / "turns.csv").string(), csv_text(turns));
  }
  const bool has_minutes =
      std::any_of(result.cells.begin(), result.cells.end(),
                  [](const CellResult& cell) { return !cell.timing.sustained.empty(); });
  if (has_minutes) {
    write_text_file((std::filesystem::path(folder) / "minutes.csv").string(),
                    csv_text(sustained_rows(result.cells)));
  }
  write_results(folder, result_rows(result.cells), quality_rows(result.layers),
                manifest_json(experiment, result));
}

}  // namespace kvreplay
