#include "sim/replay/replay_rows.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "policies/decide/layer_means.hpp"
#include "sim/replay/marks.hpp"

namespace kvreplay {
namespace {

std::string heads_text(std::int64_t query_heads, std::int64_t kv_heads, std::int64_t head_dim) {
  return std::to_string(query_heads) + "/" + std::to_string(kv_heads) + "x" +
         std::to_string(head_dim);
}

std::string shape_text(std::int64_t layers, std::int64_t query_heads, std::int64_t kv_heads,
                       std::int64_t head_dim) {
  return std::to_string(layers) + " layers " + heads_text(query_heads, kv_heads, head_dim);
}

/// How the layers of a model differ, as in "4 see all tokens, 22 see 512 tokens"; empty where they
/// are alike and the model's file gives no windows.
std::string kinds_text(const ModelSpec& model) {
  const std::string first = heads_text(model.query_heads, model.kv_heads, model.head_dim);
  std::map<std::int64_t, std::int64_t> windows;
  std::map<std::string, std::int64_t> other_heads;
  std::int64_t sharing = 0;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const LayerSpec& layer = model.layer(i);
    if (!layer.attends) continue;
    const KvShape& kind = model.kv_kinds()[static_cast<std::size_t>(layer.kind)];
    if (kind.sliding_window) ++windows[*kind.sliding_window];
    if (layer.source != i) ++sharing;
    const std::string heads = heads_text(layer.query_heads, layer.kv_heads, layer.head_dim);
    if (heads != first) ++other_heads[heads];
  }
  std::vector<std::string> parts;
  for (const auto& [window, count] : windows) {
    parts.push_back(std::to_string(count) + " see " +
                    (window == 0 ? "all tokens" : std::to_string(window) + " tokens"));
  }
  for (const auto& [heads, count] : other_heads) {
    parts.push_back(std::to_string(count) + " of " + heads);
  }
  const std::int64_t without = model.layers - model.attention_layers();
  if (without > 0) parts.push_back(std::to_string(without) + " without attention");
  if (sharing > 0) parts.push_back(std::to_string(sharing) + " use earlier entries");
  return join(parts);
}

/// "none", or how the recorded shape stands for the model's: layers query heads/KV heads x size,
/// and the length of the sequence where it differs.
std::string projection_text(const TraceInfo& trace, const ModelSpec& model,
                            std::int64_t stretched_from) {
  const std::int64_t recorded = std::ssize(trace.recorded_layers);
  const std::string from = shape_text(recorded, trace.query_heads, trace.kv_heads, trace.head_dim);
  const std::string to =
      shape_text(model.layers, model.query_heads, model.kv_heads, model.head_dim);
  const std::string kinds = kinds_text(model);
  std::string text = from == to && kinds.empty() ? "none" : from + " -> " + to;
  if (!kinds.empty()) text += ": " + kinds;
  if (model.context_tokens > 0) text += " at " + std::to_string(model.context_tokens) + " tokens";
  if (stretched_from > 0) text += ", stretched from " + std::to_string(stretched_from);
  return text;
}

/// One line that tells a cell from all others.
std::string cell_text(const CellResult& cell) {
  std::string text = cell.system + " on " + cell.device + ", " + cell.model + ", " + cell.platform +
                     ", batch " + std::to_string(cell.batch) + ", " + cell.trace;
  if (cell.synthetic) text += " (SYNTHETIC)";
  for (const auto& [name, value] : cell.settings) {
    if (value) text += ", " + name + " = " + to_text(*value);
  }
  return text;
}

/// Whether stage 1 may depend on a swept key: for "system.[NAME.]MEMBER.PARAMETER", whether it
/// reads the member.
bool concerns_decide(const std::string& key) {
  if (key == "case" || key == "experiment.seed" || key == "experiment.steps") return true;
  if (!key.starts_with("system.")) return false;
  const std::size_t parameter = key.rfind('.');
  const std::size_t member = key.rfind('.', parameter - 1) + 1;
  return SystemSpec::stage_of(key.substr(member, parameter - member)) == Stage::kDecide;
}

RowSettings settings_of(const Experiment& experiment, const Cell& cell) {
  RowSettings settings;
  for (std::size_t i = 0; i < experiment.swept.size(); ++i) {
    settings.emplace_back(experiment.swept[i], cell.settings[i]);
  }
  return settings;
}

/// Whether the file of some model says what its layers see: stage 1 then depends on the model.
bool models_have_windows(const Experiment& experiment) {
  return std::any_of(experiment.models.begin(), experiment.models.end(),
                     [](const ModelSpec& model) { return model.has_windows(); });
}

/// With the model and, at the end, a place for the layer's window, where models have windows.
RowSettings decide_settings(const Experiment& experiment, const Cell& cell) {
  RowSettings settings = settings_of(experiment, cell);
  std::erase_if(settings, [](const auto& named) { return !concerns_decide(named.first); });
  if (models_have_windows(experiment)) {
    settings.emplace_back("model", experiment.models[cell.model].name);
    settings.emplace_back("sliding_window", std::nullopt);
  }
  return settings;
}

/// For each cell, the first one with the same trace, system and stage-1 settings, to which the rows
/// of quality.csv belong.
std::vector<std::size_t> blocks_of(const Experiment& experiment) {
  std::vector<std::size_t> blocks;
  std::map<std::string, std::size_t> first;
  for (const Cell& cell : experiment.cells) {
    std::string identity = std::to_string(cell.trace) + '\n' + experiment.systems[cell.system].name;
    for (const auto& [key, value] : decide_settings(experiment, cell)) {
      identity += '\n' + (value ? to_text(*value) : "-");
    }
    blocks.push_back(first.try_emplace(identity, blocks.size()).first->second);
  }
  return blocks;
}

}  // namespace

ReplayRows::ReplayRows(const Experiment& experiment, std::span<const ReplayTrace> traces,
                       const StageGraph& graph, const StageOutputs& outputs)
    : experiment_(experiment), traces_(traces), graph_(graph), outputs_(outputs) {}

CellResult ReplayRows::cell(std::size_t number) const {
  const Cell& cell = experiment_.cells[number];
  const ReplayTrace& trace = traces_[cell.trace];
  const ModelSpec& model = experiment_.models[cell.model];
  const PlatformSpec& platform = experiment_.platforms[cell.platform];
  CellResult row;
  row.trace = trace.name;
  row.synthetic = trace.reader.synthetic();
  row.system = experiment_.systems[cell.system].name;
  row.model = model.name;
  row.platform = platform.name;
  row.device = experiment_.devices[cell.device].name;
  row.batch = cell.batch;
  const DecisionNode& decision = graph_.decisions()[graph_.decision_of(number)];
  const std::int64_t recorded = trace.reader.info().prompt_tokens + decision.steps;
  row.stretched_from_tokens = model.context_tokens > recorded ? recorded : 0;
  row.projection = projection_text(trace.reader.info(), model, row.stretched_from_tokens);
  row.settings = settings_of(experiment_, cell);
  row.platform_dram_bytes = platform.dram_bytes;
  row.endurance = endurance_of(experiment_.devices[cell.device]);
  row.conversation = {cell.conversation_tokens, cell.conversations_per_day};
  row.timing = *outputs_.timings[graph_.timing_of(number)].value;
  const std::vector<LayerMeans>& means = outputs_.decisions[graph_.decision_of(number)].means;
  row.quality = system_means(means);
  row.turn_quality = turn_means(means);
  const LayerMeans& worst = worst_layer(means);
  row.worst_layer = worst.layer;
  row.worst_layer_error = worst.means.output_error;
  const std::int64_t steps = graph_.decisions()[graph_.decision_of(number)].steps;
  const double tokens =
      static_cast<double>(trace.reader.info().prompt_tokens) + static_cast<double>(steps) / 2;
  row.marks = marks_of(experiment_.systems[cell.system], row, tokens, means);
  return row;
}

ReplayResult ReplayRows::all() const {
  ReplayResult result;
  for (const ReplayTrace& trace : traces_) {
    result.traces.push_back({trace.name, trace.sha256, trace.reader.synthetic()});
  }
  const std::vector<std::size_t> blocks = blocks_of(experiment_);
  result.cell_numbers = graph_.cells();
  const bool has_windows = models_have_windows(experiment_);
  std::map<std::size_t, std::size_t> cell_of_block;
  for (const std::size_t number : graph_.cells()) {
    result.cells.push_back(cell(number));
    cell_of_block.try_emplace(blocks[number], number);
  }
  for (std::size_t i = 0; i < outputs_.shown_cells(); ++i) {
    const std::size_t timing = graph_.timing_of(graph_.cells()[i]);
    result.timelines.push_back({cell_text(result.cells[i]), *outputs_.timings[timing].timeline});
  }
  for (const auto& [block, number] : cell_of_block) {
    const Cell& cell = experiment_.cells[number];
    RowSettings settings = decide_settings(experiment_, cell);
    for (const LayerMeans& layer : outputs_.decisions[graph_.decision_of(number)].means) {
      if (has_windows) settings.back().second = layer.sliding_window;
      result.layers.push_back({traces_[cell.trace].name, traces_[cell.trace].reader.synthetic(),
                               experiment_.systems[cell.system].name, settings, layer.layer,
                               layer.full_attention, layer.means});
      result.layer_blocks.push_back(block);
    }
  }
  return result;
}

}  // namespace kvreplay
