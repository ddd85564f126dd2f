#include "sim/replay/stage_executor.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "base/parallel.hpp"
#include "policies/decide/decide.hpp"
#include "policies/decide/layer_means.hpp"
#include "policies/place/io_plan_bytes.hpp"
#include "sim/replay/stage_keys.hpp"
#include "sim/time/timing_bytes.hpp"

namespace kvreplay {
namespace {

/// Decisions made together share full attention, which quality is measured against. Among so many
/// it is a small part of the work, and each further one takes memory.
constexpr std::size_t kMaxTogether = 18;

}  // namespace

StageExecutor::StageExecutor(const StageContext& context, StageOutputs& outputs,
                             ExecutorOptions options)
    : context_(context),
      outputs_(outputs),
      options_(std::move(options)),
      logs_(context, options_.record_tokens) {}

void StageExecutor::run() {
  check_traces();
  for (const std::vector<std::size_t>& chunk : chunks()) run_chunk(chunk);
}

/// What a trace lacks is said before the work begins.
void StageExecutor::check_traces() const {
  const std::vector<DecisionNode>& decisions = context_.graph.decisions();
  for (std::size_t i = 0; i < decisions.size(); ++i) {
    if (!decisions[i].in_shard || !outputs_.decisions[i].must_compute) continue;
    const SystemSpec& system = context_.experiment.systems[decisions[i].system];
    check_decidable(context_.traces[decisions[i].trace].reader,
                    {system.name, system.decide, decisions[i].model_heads});
  }
}

/// Decisions that are made together: they are of one LockstepGroup, at most kMaxTogether, and what
/// they take fits into half of the memory. The other half is for plans.
std::vector<std::vector<std::size_t>> StageExecutor::chunks() const {
  const std::vector<DecisionNode>& decisions = context_.graph.decisions();
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < decisions.size(); ++i) {
    if (decisions[i].in_shard) order.push_back(i);
  }
  std::map<LockstepGroup, std::size_t> first;
  for (const std::size_t i : order) first.try_emplace(decisions[i].group(), i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return first[decisions[a].group()] < first[decisions[b].group()];
  });
  std::vector<std::vector<std::size_t>> chunks;
  std::int64_t bytes = 0;
  for (const std::size_t i : order) {
    const std::int64_t own = logs_.estimated_bytes(i);
    const bool joins = !chunks.empty() && chunks.back().size() < kMaxTogether &&
                       decisions[chunks.back().front()].group() == decisions[i].group() &&
                       bytes + own <= options_.memory_bytes / 2;
    if (!joins) {
      chunks.emplace_back();
      bytes = 0;
    }
    chunks.back().push_back(i);
    bytes += own;
  }
  return chunks;
}

void StageExecutor::run_chunk(const std::vector<std::size_t>& chunk) {
  std::vector<std::size_t> missing;
  for (const std::size_t i : chunk) {
    if (outputs_.decisions[i].must_compute) missing.push_back(i);
  }
  logs_.decide(std::move(missing));
  for (const std::size_t i : chunk) {
    if (!options_.access_log_folder.empty()) write_logs(i);
    std::vector<LayerMeans>& means = outputs_.decisions[i].means;
    if (!means.empty()) continue;
    means = layer_means(*logs_.get(i));
    context_.store.put(kind::kMeans, context_.graph.decisions()[i].key, to_bytes(means));
  }
  run_plans(chunk);
  for (const std::size_t i : chunk) logs_.release(i);
}

/// What a decision's access log is named by: the settings that all of its cells share, where
/// another decision of the same trace and system has another value. ".budget_tokens=64"
std::string StageExecutor::settings_of(std::size_t decision, const std::string& system) const {
  const Experiment& experiment = context_.experiment;
  const std::vector<DecisionNode>& decisions = context_.graph.decisions();
  using Values =
      std::vector<std::optional<std::string>>;  // by swept key; none: not the same in all
  const auto values_of = [&](std::size_t number) {
    Values values;
    bool first = true;
    for (const std::size_t placement : decisions[number].placements) {
      for (const std::size_t timing : context_.graph.placements()[placement].timings) {
        for (const std::size_t at : context_.graph.timings()[timing].cells) {
          const Cell& cell = experiment.cells[at];
          if (experiment.systems[cell.system].name != system) continue;
          for (std::size_t i = 0; i < experiment.swept.size(); ++i) {
            std::optional<std::string> value;
            if (cell.settings[i]) value = to_text(*cell.settings[i]);
            if (first) {
              values.push_back(value);
            } else if (values[i] != value) {
              values[i] = std::nullopt;
            }
          }
          first = false;
        }
      }
    }
    return values;
  };
  const Values own = values_of(decision);
  std::set<std::size_t> differing;
  for (std::size_t other = 0; other < decisions.size(); ++other) {
    if (other == decision || decisions[other].trace != decisions[decision].trace ||
        !decisions[other].systems.contains(system)) {
      continue;
    }
    const Values values = values_of(other);
    for (std::size_t i = 0; i < own.size() && i < values.size(); ++i) {
      if (own[i] && own[i] != values[i]) differing.insert(i);
    }
  }
  std::string text;
  for (const std::size_t i : differing) {
    const std::string& key = experiment.swept[i];
    text += "." + key.substr(key.rfind('.') + 1) + "=" + *own[i];
  }
  // A value may be a path.
  std::replace(text.begin(), text.end(), '/', '_');
  return text;
}

void StageExecutor::write_logs(std::size_t decision) {
  const DecisionNode& node = context_.graph.decisions()[decision];
  for (const std::string& system : node.systems) {
    std::string name =
        context_.traces[node.trace].name + "." + system + settings_of(decision, system);
    // Decisions that differ in nothing that is named (in the model's heads) get numbers.
    const int number = ++logs_written_[name];
    if (number > 1) name += "-" + std::to_string(number);
    AccessLog log = *logs_.get(decision);
    log.system = system;
    write_access_log(
        log, (std::filesystem::path(options_.access_log_folder) / (name + ".access.h5")).string());
  }
}

/// Makes plans in windows that fit into memory: all plans of a window are placed, then timed.
void StageExecutor::run_plans(const std::vector<std::size_t>& chunk) {
  std::vector<std::size_t> waiting;
  for (const std::size_t i : chunk) {
    for (const std::size_t placement : context_.graph.decisions()[i].placements) {
      if (outputs_.lacks_timings(placement)) waiting.push_back(placement);
    }
  }
  const auto threads = static_cast<std::size_t>(context_.threads);
  std::size_t window = threads;  // until the size of a plan is known
  for (std::size_t begin = 0; begin < waiting.size();) {
    const std::size_t end = std::min(begin + window, waiting.size());
    const std::int64_t max_bytes = run_window(std::span(waiting).subspan(begin, end - begin));
    max_plan_bytes_ = std::max(max_plan_bytes_, max_bytes);
    window = std::clamp<std::size_t>(
        static_cast<std::size_t>(options_.memory_bytes / 4 /
                                 std::max<std::int64_t>(max_plan_bytes_, 1)),
        1, 64 * threads);
    begin = end;
  }
}

/// Returns the bytes of the largest plan.
std::int64_t StageExecutor::run_window(std::span<const std::size_t> placements) {
  const std::vector<IoPlan> plans = place_all(placements);
  time_all(placements, plans);
  std::int64_t max_bytes = 0;
  for (const IoPlan& plan : plans) max_bytes = std::max(max_bytes, memory_bytes(plan));
  return max_bytes;
}

std::vector<IoPlan> StageExecutor::place_all(std::span<const std::size_t> placements) {
  double ns = 0;
  for (const std::size_t i : placements) {
    if (!outputs_.placements[i].must_compute) continue;
    ns += context_.estimate.nanoseconds(Stage::kPlace, context_.estimate.units(Stage::kPlace, i));
  }
  const PlacementNode& first = context_.graph.placements()[placements.front()];
  context_.begin_stage("place", context_.graph.decisions()[first.decision].trace,
                       ns / static_cast<double>(placements.size()));
  std::vector<IoPlan> plans(placements.size());
  std::vector<double> units(placements.size());
  const Stopwatch watch;
  parallel_for(std::ssize(placements), context_.threads, [&](std::int64_t index) {
    const auto at = static_cast<std::size_t>(index);
    plans[at] = plan_of(placements[at], units[at]);
    context_.advance();
  });
  add_measurement(Stage::kPlace, units, watch);
  return plans;
}

/// `units` receives the work of placing, 0 where the store has the plan.
IoPlan StageExecutor::plan_of(std::size_t placement, double& units) {
  const PlacementNode& node = context_.graph.placements()[placement];
  if (!outputs_.placements[placement].must_compute) {
    auto plan = stored_value(context_.store.read(kind::kPlan, node.key), plan_from);
    if (plan) return std::move(*plan);
  }
  units = context_.estimate.units(Stage::kPlace, placement);
  const SystemSpec& system = context_.experiment.systems[node.system];
  const std::vector<KvShape>& kinds = context_.experiment.models[node.model].kv_kinds();
  const std::shared_ptr<const AccessLog> log = logs_.get(node.decision);
  IoPlan plan =
      place(*log, system.place, kinds, &logs_.bounds(node.decision, kinds), context_.check);
  plan.system = system.name;
  context_.store.put(kind::kPlan, node.key, to_bytes(plan));
  return plan;
}

void StageExecutor::time_all(std::span<const std::size_t> placements,
                             std::span<const IoPlan> plans) {
  struct Item {
    std::size_t plan;
    std::size_t timing;
  };
  std::vector<Item> items;
  double ns = 0;
  for (std::size_t plan = 0; plan < plans.size(); ++plan) {
    for (const std::size_t timing : outputs_.missing_timings(placements[plan])) {
      items.push_back({plan, timing});
      ns += context_.estimate.nanoseconds(Stage::kTime,
                                          context_.estimate.units(Stage::kTime, timing));
    }
  }
  const PlacementNode& first = context_.graph.placements()[placements.front()];
  context_.begin_stage("time", context_.graph.decisions()[first.decision].trace,
                       ns / static_cast<double>(items.size()));
  std::vector<double> units(items.size());
  const Stopwatch watch;
  parallel_for(std::ssize(items), context_.threads, [&](std::int64_t index) {
    const auto at = static_cast<std::size_t>(index);
    time(plans[items[at].plan], items[at].timing);
    units[at] = context_.estimate.units(Stage::kTime, items[at].timing);
    context_.advance();
    if (options_.on_timing) options_.on_timing(items[at].timing);
  });
  add_measurement(Stage::kTime, units, watch);
}

void StageExecutor::time(const IoPlan& plan, std::size_t timing) {
  const TimingNode& node = context_.graph.timings()[timing];
  StageOutputs::OfTiming& output = outputs_.timings[timing];
  const Experiment& experiment = context_.experiment;
  const Cell& cell = experiment.cells[node.cell];
  TimeOptions options = node.options;
  options.schedule = options_.schedule;
  options.prefill_schedule = options_.prefill_schedule;
  options.timeline = output.timeline ? &*output.timeline : nullptr;
  output.value = time_plan(plan, experiment.models[cell.model], experiment.platforms[cell.platform],
                           experiment.devices[cell.device],
                           experiment.systems[cell.system].pipeline, options, &prefills_);
  context_.store.put(kind::kTiming, node.key, to_bytes(*output.value));
}

void StageExecutor::add_measurement(Stage stage, const std::vector<double>& units,
                                    const Stopwatch& watch) const {
  double done = 0;
  for (const double of_one : units) done += of_one;
  context_.estimate.add_measurement(stage, done, watch.nanoseconds() * context_.threads);
}

}  // namespace kvreplay
