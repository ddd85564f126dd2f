#include "sim/replay.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "policies/decide.hpp"
#include "sim/base/parallel.hpp"
#include "sim/base/progress.hpp"
#include "traces/trace.hpp"

namespace kvreplay {
namespace {

int threads_of(const Experiment& experiment) {
  if (experiment.threads > 0) return experiment.threads;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::vector<AccessLog> decide_all(const TraceReader& trace, const Experiment& experiment,
                                  const ReplayOptions& options) {
  std::vector<NamedDecideSpec> specs;
  for (const SystemSpec& system : experiment.systems) specs.push_back({system.name, system.decide});
  const TraceInfo& info = trace.info();
  const std::int64_t steps =
      experiment.steps > 0 ? std::min(experiment.steps, info.decode_steps()) : info.decode_steps();
  std::optional<Progress> progress;
  if (options.show_progress) {
    progress.emplace("decide " + trace_name(trace.file()),
                     steps * std::ssize(info.recorded_layers));
  }
  DecideOptions decide_options;
  decide_options.seed = experiment.seed;
  decide_options.threads = threads_of(experiment);
  decide_options.max_steps = steps;
  decide_options.record_tokens = options.record_tokens;
  decide_options.progress = progress ? &*progress : nullptr;
  return decide(trace, specs, decide_options);
}

void write_logs(const std::vector<AccessLog>& logs, const std::string& trace,
                const std::string& folder) {
  for (const AccessLog& log : logs) {
    const std::string file = trace + "." + log.system + ".access.h5";
    write_access_log(log, (std::filesystem::path(folder) / file).string());
  }
}

double mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

QualityMeans layer_means(const LayerLog& layer) {
  QualityMeans means;
  means.recall = mean(layer.quality.recall);
  means.attention_mass = mean(layer.quality.attention_mass);
  means.best_attention_mass = mean(layer.quality.best_attention_mass);
  means.output_error = mean(layer.quality.output_error);
  double attended = 0;
  std::size_t count = 0;
  for (const StreamLog& stream : layer.streams) {
    for (const std::int32_t tokens : stream.attended_count) attended += tokens;
    count += stream.attended_count.size();
  }
  means.attended_tokens = count == 0 ? 0 : attended / static_cast<double>(count);
  return means;
}

/// Every layer has the same number of steps and query heads, so the mean of means is the mean.
QualityMeans system_means(const AccessLog& log) {
  QualityMeans sum;
  double count = 0;
  const bool all_dense = std::all_of(log.layers.begin(), log.layers.end(),
                                     [](const LayerLog& layer) { return layer.dense; });
  for (const LayerLog& layer : log.layers) {
    if (layer.dense && !all_dense) continue;
    const QualityMeans means = layer_means(layer);
    sum.recall += means.recall;
    sum.attention_mass += means.attention_mass;
    sum.best_attention_mass += means.best_attention_mass;
    sum.output_error += means.output_error;
    sum.attended_tokens += means.attended_tokens;
    count += 1;
  }
  for (double* value : {&sum.recall, &sum.attention_mass, &sum.best_attention_mass,
                        &sum.output_error, &sum.attended_tokens}) {
    *value /= count;
  }
  return sum;
}

std::string shape_text(std::int64_t layers, std::int64_t query_heads, std::int64_t kv_heads,
                       std::int64_t head_dim) {
  return std::to_string(layers) + " layers " + std::to_string(query_heads) + "/" +
         std::to_string(kv_heads) + "x" + std::to_string(head_dim);
}

/// "none", or how the recorded shape stands for the model's: layers query heads/KV heads x size,
/// and the length of the sequence where it differs.
std::string projection_text(const TraceInfo& trace, const ModelSpec& model) {
  const std::int64_t recorded = std::ssize(trace.recorded_layers);
  const std::string from = shape_text(recorded, trace.query_heads, trace.kv_heads, trace.head_dim);
  const std::string to =
      shape_text(model.layers, model.query_heads, model.kv_heads, model.head_dim);
  std::string text = from == to ? "none" : from + " -> " + to;
  if (model.context_tokens > 0) text += " at " + std::to_string(model.context_tokens) + " tokens";
  return text;
}

/// The cells of one trace: every combination of indices, in the order of the results.
struct Cell {
  std::size_t model;
  std::size_t platform;
  std::size_t batch;
  std::size_t device;
  std::size_t system;
};

std::vector<Cell> cells_of(const Experiment& experiment) {
  std::vector<Cell> cells;
  for (std::size_t model = 0; model < experiment.models.size(); ++model) {
    for (std::size_t platform = 0; platform < experiment.platforms.size(); ++platform) {
      for (std::size_t batch = 0; batch < experiment.batches.size(); ++batch) {
        for (std::size_t device = 0; device < experiment.devices.size(); ++device) {
          for (std::size_t system = 0; system < experiment.systems.size(); ++system) {
            cells.push_back({model, platform, batch, device, system});
          }
        }
      }
    }
  }
  return cells;
}

/// plans[system * models + model]
std::vector<IoPlan> place_all(const std::vector<AccessLog>& logs, const Experiment& experiment) {
  const std::size_t models = experiment.models.size();
  std::vector<IoPlan> plans(logs.size() * models);
  parallel_for(std::ssize(plans), threads_of(experiment), [&](std::int64_t index) {
    const auto at = static_cast<std::size_t>(index);
    plans[at] = place(logs[at / models], experiment.systems[at / models].place,
                      experiment.models[at % models].kv_shape());
  });
  return plans;
}

void replay_trace(const std::string& file, const Experiment& experiment,
                  const ReplayOptions& options, ReplayResult& result) {
  const TraceReader trace(file);
  const std::string name = trace_name(file);
  result.traces.push_back({name, trace.content_hash(), trace.synthetic()});
  const std::vector<AccessLog> logs = decide_all(trace, experiment, options);
  if (!options.access_log_folder.empty()) write_logs(logs, name, options.access_log_folder);
  std::vector<QualityMeans> quality;
  for (const AccessLog& log : logs) {
    quality.push_back(system_means(log));
    for (const LayerLog& layer : log.layers) {
      result.layers.push_back(
          {name, trace.synthetic(), log.system, layer.layer, layer.dense, layer_means(layer)});
    }
  }

  const std::vector<IoPlan> plans = place_all(logs, experiment);
  const std::vector<Cell> cells = cells_of(experiment);
  std::vector<CellResult> timed(cells.size());
  std::optional<Progress> progress;
  if (options.show_progress) progress.emplace("time " + name, std::ssize(cells));
  parallel_for(std::ssize(cells), threads_of(experiment), [&](std::int64_t index) {
    const Cell& cell = cells[static_cast<std::size_t>(index)];
    const SystemSpec& system = experiment.systems[cell.system];
    const ModelSpec& model = experiment.models[cell.model];
    const PlatformSpec& platform = experiment.platforms[cell.platform];
    const DeviceSpec& device = experiment.devices[cell.device];
    TimeOptions time_options;
    time_options.batch = experiment.batches[cell.batch];
    time_options.dense_layers = system.decide.stream.integer("dense_layers");
    time_options.timed_steps = experiment.timed_steps;
    time_options.warm_up_steps = experiment.warm_up_steps;
    time_options.seed = experiment.seed;
    time_options.schedule = options.schedule;
    CellResult& row = timed[static_cast<std::size_t>(index)];
    row.trace = name;
    row.synthetic = trace.synthetic();
    row.system = system.name;
    row.model = model.name;
    row.platform = platform.name;
    row.device = device.name;
    row.batch = time_options.batch;
    row.projection = projection_text(trace.info(), model);
    row.platform_dram_bytes = platform.dram_bytes;
    row.quality = quality[cell.system];
    row.timing = time_plan(plans[cell.system * experiment.models.size() + cell.model], model,
                           platform, device, system.pipeline, time_options);
    if (progress) progress->advance();
  });
  for (CellResult& row : timed) result.cells.push_back(std::move(row));
}

/// UserError that names the members which list more than one thing.
void check_one_cell(const Experiment& experiment) {
  const std::pair<const char*, std::size_t> members[] = {
      {"trace", experiment.traces.size()},   {"system", experiment.systems.size()},
      {"model", experiment.models.size()},   {"platform", experiment.platforms.size()},
      {"device", experiment.devices.size()}, {"batch", experiment.batches.size()}};
  for (const auto& [name, count] : members) {
    if (count == 1) continue;
    throw UserError(
        {experiment.name, name}, "has " + std::to_string(count) + " of them",
        std::string("one: a schedule is of one cell; choose it by --set ") + name + "=NAME");
  }
}

}  // namespace

ReplayResult replay(const Experiment& experiment, const ReplayOptions& options) {
  if (options.schedule != nullptr) check_one_cell(experiment);
  ReplayResult result;
  for (const std::string& trace : experiment.traces) {
    replay_trace(trace, experiment, options, result);
  }
  return result;
}

}  // namespace kvreplay
