#include "sim/replay/stage_graph.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "sim/replay/layer_choice.hpp"
#include "sim/replay/stage_keys.hpp"

namespace kvreplay {
namespace {

/// Nodes of one stage by key. Keys are slow to compute, so a cheap identity of a node's inputs is
/// compared first: cells with equal identities have equal keys.
template <typename Node, typename Identity>
class NodeList {
 public:
  explicit NodeList(std::vector<Node>& nodes) : nodes_(nodes) {}

  /// Returns the number of the node. `make` returns a node with its key, and `added` is called with
  /// the number of a new node.
  template <typename Make, typename Added>
  std::size_t take(const Identity& identity, Make&& make, Added&& added) {
    const auto [known, is_new_identity] = of_identity_.try_emplace(identity);
    if (is_new_identity) {
      Node node = make();
      const auto [at, is_new] = of_key_.try_emplace(node.key, nodes_.size());
      if (is_new) {
        added(at->second);
        nodes_.push_back(std::move(node));
      }
      known->second = at->second;
    }
    return known->second;
  }

 private:
  std::vector<Node>& nodes_;
  std::map<Identity, std::size_t> of_identity_;
  std::map<std::string, std::size_t> of_key_;
};

TimeOptions time_options(const Cell& cell) {
  TimeOptions options;
  options.batch = cell.batch;
  options.timed_steps = cell.timed_steps;
  options.warm_up_steps = cell.warm_up_steps;
  options.seed = cell.seed;
  options.prefill_chunk_tokens = cell.prefill_chunk_tokens;
  options.after_prefill = cell.after_prefill;
  options.shared_prefix = cell.shared_prefix;
  options.idle_ns = std::llround(cell.idle_s * 1e9);
  options.idle_drops = cell.idle_drops == "memory"  ? IdleDrops::kMemory
                       : cell.idle_drops == "cache" ? IdleDrops::kCache
                                                    : IdleDrops::kNothing;
  options.turns_read_selected = cell.turns_read == "selected";
  options.sustained_ns = std::llround(cell.sustained_s * 1e9);
  return options;
}

/// DecisionNode::model_heads.
HeadShape model_heads_of(const SystemSpec& system, const ModelSpec& model,
                         const TraceIdentity& trace) {
  const HeadShape heads{model.kv_heads, model.head_dim};
  return system.decide.depends_on_model() && heads != trace.heads ? heads : HeadShape{};
}

}  // namespace

StageGraph::StageGraph(const Experiment& experiment, std::span<const TraceIdentity> traces,
                       bool record_tokens, const Shard& shard) {
  list_outputs(experiment, traces, record_tokens);
  choose_cells(shard);
}

void StageGraph::list_outputs(const Experiment& experiment, std::span<const TraceIdentity> traces,
                              bool record_tokens) {
  NodeList<DecisionNode, std::tuple<std::size_t, std::size_t, std::uint64_t, std::int64_t,
                                    std::vector<WindowedLayer>, HeadShape>>
      decisions(decisions_);
  NodeList<PlacementNode, std::tuple<std::size_t, std::size_t, std::size_t>> placements(
      placements_);
  NodeList<TimingNode, std::size_t> timings(timings_);  // no two cells have the same identity
  for (std::size_t number = 0; number < experiment.cells.size(); ++number) {
    const Cell& cell = experiment.cells[number];
    const SystemSpec& system = experiment.systems[cell.system];
    const ModelSpec& model = experiment.models[cell.model];

    const TraceIdentity& trace = traces[cell.trace];
    const std::vector<WindowedLayer> layers = layers_for(model, trace.layers, trace.file);
    const HeadShape model_heads = model_heads_of(system, model, trace);
    const std::size_t decision = decisions.take(
        {cell.trace, cell.system, cell.seed, cell.steps, layers, model_heads},
        [&] {
          DecisionNode node;
          node.trace = cell.trace;
          node.system = cell.system;
          node.seed = cell.seed;
          node.steps =
              cell.steps > 0 ? std::min(cell.steps, trace.decode_steps) : trace.decode_steps;
          node.layers = layers;
          node.model_heads = model_heads;
          node.key = decide_key(trace.sha256, system.decide, node.seed, node.steps, record_tokens,
                                layers == trace.layers ? std::span<const WindowedLayer>{} : layers,
                                model_heads);
          return node;
        },
        [](std::size_t) {});
    decisions_[decision].systems.insert(system.name);

    const std::size_t placement = placements.take(
        {decision, cell.system, cell.model},
        [&] {
          PlacementNode node;
          node.decision = decision;
          node.system = cell.system;
          node.model = cell.model;
          node.key = place_key(decisions_[decision].key, system.place, model.kv_kinds());
          return node;
        },
        [&](std::size_t added) { decisions_[decision].placements.push_back(added); });

    const std::size_t timing = timings.take(
        number,
        [&] {
          TimingNode node;
          node.placement = placement;
          node.cell = number;
          node.options = time_options(cell);
          node.key =
              time_key(placements_[placement].key, model, experiment.platforms[cell.platform],
                       experiment.devices[cell.device], system.pipeline, node.options);
          return node;
        },
        [&](std::size_t added) { placements_[placement].timings.push_back(added); });
    timings_[timing].cells.push_back(number);
    timing_of_.push_back(timing);
  }
}

void StageGraph::choose_cells(const Shard& shard) {
  std::map<LockstepGroup, std::size_t> number_of;  // in the order of appearance
  for (const DecisionNode& decision : decisions_) {
    number_of.try_emplace(decision.group(), number_of.size());
  }
  std::vector<std::size_t> order(timing_of_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto rank = [&](std::size_t cell) {
    const std::size_t decision = decision_of(cell);
    return std::tuple(number_of[decisions_[decision].group()], decision, placement_of(cell), cell);
  };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  const std::size_t count = order.size();
  const auto begin = count * (shard.index - 1) / shard.count;
  const auto end = count * shard.index / shard.count;
  cells_.assign(order.begin() + static_cast<std::ptrdiff_t>(begin),
                order.begin() + static_cast<std::ptrdiff_t>(end));
  std::sort(cells_.begin(), cells_.end());
  for (const std::size_t cell : cells_) {
    timings_[timing_of(cell)].in_shard = true;
    placements_[placement_of(cell)].in_shard = true;
    decisions_[decision_of(cell)].in_shard = true;
  }
}

bool StageGraph::in_shard(std::size_t cell) const {
  return std::binary_search(cells_.begin(), cells_.end(), cell);
}

}  // namespace kvreplay
