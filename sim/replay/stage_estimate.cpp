#include "sim/replay/stage_estimate.hpp"

#include <algorithm>
#include <string>

#include "base/hash.hpp"
#include "base/packed.hpp"
#include "sim/replay/replay_trace.hpp"
#include "sim/replay/stage_graph.hpp"
#include "sim/replay/stage_keys.hpp"
#include "sim/replay/stage_outputs.hpp"
#include "sim/replay/stage_store.hpp"

namespace kvreplay {
namespace {

/// Nanoseconds per unit (see the functions below) for ClusterKV on a server core (thousand.json).
constexpr std::array<double, kStageCount> kServerRates{0.3, 500, 10000};

/// Recorded layer x step x token x query head x element.
double decide_units(const DecisionNode& decision, const TraceInfo& info) {
  const double tokens =
      static_cast<double>(info.prompt_tokens) + static_cast<double>(decision.steps) / 2;
  return static_cast<double>(std::ssize(info.recorded_layers) * decision.steps * info.query_heads *
                             info.head_dim) *
         tokens;
}

/// Recorded layer x step x KV head of the target.
double place_units(const DecisionNode& decision, const TraceInfo& info, const ModelSpec& model) {
  return static_cast<double>(std::ssize(info.recorded_layers) * decision.steps * model.kv_heads);
}

/// Timed step x layer of the target x sequence.
double time_units(const TimingNode& timing, const DecisionNode& decision, const ModelSpec& model) {
  const TimeOptions& options = timing.options;
  const std::int64_t usable = decision.steps - options.warm_up_steps;
  const std::int64_t steps =
      options.timed_steps > 0 ? std::min(options.timed_steps, usable) : usable;
  return static_cast<double>(steps * model.layers * options.batch);
}

std::string rates_key() {
  return sha256_text(kind::kRates);
}

}  // namespace

StageEstimate::StageEstimate(const Experiment& experiment, std::span<const ReplayTrace> traces,
                             const StageGraph& graph, StageStore& store)
    : graph_(graph), store_(store), rates_(kServerRates) {
  const auto info = [&](const DecisionNode& decision) -> const TraceInfo& {
    return traces[decision.trace].reader.info();
  };
  for (const DecisionNode& decision : graph.decisions()) {
    units_[index_of(Stage::kDecide)].push_back(decide_units(decision, info(decision)));
  }
  for (const PlacementNode& placement : graph.placements()) {
    const DecisionNode& decision = graph.decisions()[placement.decision];
    units_[index_of(Stage::kPlace)].push_back(
        place_units(decision, info(decision), experiment.models[placement.model]));
  }
  for (const TimingNode& timing : graph.timings()) {
    const DecisionNode& decision = graph.decisions()[graph.placements()[timing.placement].decision];
    units_[index_of(Stage::kTime)].push_back(
        time_units(timing, decision, experiment.models[experiment.cells[timing.cell].model]));
  }
  if (const auto bytes = store.read(kind::kRates, rates_key())) {
    PackedReader read(*bytes);
    for (double& rate : rates_) read(rate);
    rates_measured_ = true;
  }
}

std::array<StageCost, kStageCount> StageEstimate::costs(const StageOutputs& outputs,
                                                        int threads) const {
  std::array<StageCost, kStageCount> costs;
  const auto count = [&](Stage stage, const auto& nodes, auto&& must_compute) {
    StageCost& cost = costs[index_of(stage)];
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (!nodes[i].in_shard) continue;
      ++cost.outputs;
      if (must_compute(i)) {
        cost.seconds += nanoseconds(stage, units(stage, i)) / threads / 1e9;
      } else {
        ++cost.stored;
      }
    }
  };
  count(Stage::kDecide, graph_.decisions(),
        [&](std::size_t i) { return outputs.decisions[i].must_compute; });
  count(Stage::kPlace, graph_.placements(),
        [&](std::size_t i) { return outputs.placements[i].must_compute; });
  count(Stage::kTime, graph_.timings(), [&](std::size_t i) { return !outputs.timings[i].value; });
  return costs;
}

void StageEstimate::add_measurement(Stage stage, double units, double thread_ns) {
  if (units == 0) return;
  Meter& meter = meters_[index_of(stage)];
  meter.units += units;
  meter.thread_ns += thread_ns;
}

void StageEstimate::store_rates() {
  for (std::size_t i = 0; i < kStageCount; ++i) {
    if (meters_[i].units > 0) rates_[i] = meters_[i].thread_ns / meters_[i].units;
  }
  const auto worked = [&](Stage stage) { return meters_[index_of(stage)].units > 0; };
  if (!worked(Stage::kDecide) && !worked(Stage::kTime)) return;
  PackedWriter write;
  for (const double rate : rates_) write(rate);
  store_.put(kind::kRates, rates_key(), write.bytes());
}

}  // namespace kvreplay
