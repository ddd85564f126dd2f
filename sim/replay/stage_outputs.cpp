#include "sim/replay/stage_outputs.hpp"

#include <algorithm>
#include <utility>

#include "sim/replay/stage_keys.hpp"
#include "sim/replay/stage_store.hpp"
#include "sim/time/timing_bytes.hpp"

namespace kvreplay {

StageOutputs::StageOutputs(const StageGraph& graph, StageStore& store,
                           const OutputRequests& requests)
    : decisions(graph.decisions().size()),
      placements(graph.placements().size()),
      timings(graph.timings().size()),
      graph_(graph) {
  if (requests.timeline_steps > 0) {
    shown_cells_ = std::min(graph.cells().size(), requests.timeline_cells);
  }
  for (std::size_t i = 0; i < shown_cells_; ++i) {
    timings[graph.timing_of(graph.cells()[i])].timeline.emplace(requests.timeline_steps);
  }
  for (std::size_t i = 0; i < timings.size(); ++i) {
    const TimingNode& node = graph.timings()[i];
    // Only a simulation that runs gives schedules and timelines.
    if (!node.in_shard || requests.schedule || timings[i].timeline) continue;
    timings[i].value = stored_value(store.read(kind::kTiming, node.key), timing_from);
  }
  for (std::size_t i = 0; i < placements.size(); ++i) {
    const PlacementNode& node = graph.placements()[i];
    placements[i].must_compute =
        node.in_shard && lacks_timings(i) && !store.find(kind::kPlan, node.key);
  }
  for (std::size_t i = 0; i < decisions.size(); ++i) {
    const DecisionNode& node = graph.decisions()[i];
    if (!node.in_shard) continue;
    if (auto means = stored_value(store.read(kind::kMeans, node.key), layer_means_from)) {
      decisions[i].means = std::move(*means);
    }
    decisions[i].must_compute =
        (requests.access_logs || needs_log(i)) && !store.find(kind::kLog, node.key);
  }
}

bool StageOutputs::lacks_timings(std::size_t placement) const {
  return !missing_timings(placement).empty();
}

std::vector<std::size_t> StageOutputs::missing_timings(std::size_t placement) const {
  std::vector<std::size_t> missing;
  for (const std::size_t timing : graph_.placements()[placement].timings) {
    if (graph_.timings()[timing].in_shard && !timings[timing].value) missing.push_back(timing);
  }
  return missing;
}

bool StageOutputs::needs_log(std::size_t decision) const {
  const std::vector<std::size_t>& all = graph_.decisions()[decision].placements;
  return decisions[decision].means.empty() ||
         std::any_of(all.begin(), all.end(),
                     [&](std::size_t placement) { return placements[placement].must_compute; });
}

}  // namespace kvreplay
