#include "sim/replay/replay.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "base/progress.hpp"
#include "policies/decide/decide.hpp"
#include "sim/replay/replay_rows.hpp"
#include "sim/replay/replay_trace.hpp"
#include "sim/replay/stage_context.hpp"
#include "sim/replay/stage_executor.hpp"
#include "sim/replay/stage_graph.hpp"
#include "sim/replay/stage_outputs.hpp"
#include "sim/replay/trace_hash.hpp"

namespace kvreplay {
namespace {

/// A UserError that names the members with several values.
void check_one_cell(const Experiment& experiment) {
  std::set<std::int64_t> batches;
  for (const Cell& cell : experiment.cells) batches.insert(cell.batch);
  const std::pair<const char*, std::size_t> members[] = {
      {"trace", experiment.traces.size()},   {"system", experiment.systems.size()},
      {"model", experiment.models.size()},   {"platform", experiment.platforms.size()},
      {"device", experiment.devices.size()}, {"batch", batches.size()}};
  for (const auto& [name, count] : members) {
    if (count == 1) continue;
    throw UserError({experiment.name, name}, "has " + std::to_string(count) + " of them",
                    std::string("one, because a schedule is of one cell; choose it by --set ") +
                        name + "=NAME");
  }
  if (experiment.cells.size() > 1) {
    throw UserError({experiment.name, ""},
                    "has " + std::to_string(experiment.cells.size()) + " cells",
                    "one, because a schedule is of one cell; give each setting one value");
  }
}

std::vector<ReplayTrace> open_traces(const Experiment& experiment, const ReplayOptions& options) {
  if (options.schedule != nullptr || options.prefill_schedule != nullptr) {
    check_one_cell(experiment);
  }
  std::vector<ReplayTrace> traces;
  for (const std::string& file : experiment.traces) {
    // Opened first: that a file stays as it is since then covers its hash.
    traces.push_back({trace_name(file), TraceReader(file), trace_hash(file, options.store)});
  }
  return traces;
}

StageGraph graph_of(const Experiment& experiment, const std::vector<ReplayTrace>& traces,
                    const ReplayOptions& options) {
  std::vector<TraceIdentity> identities;
  for (const ReplayTrace& trace : traces) {
    const TraceInfo& info = trace.reader.info();
    identities.push_back({trace.sha256,
                          info.decode_steps(),
                          recorded_layers(info),
                          trace.reader.file(),
                          {info.kv_heads, info.head_dim}});
  }
  return {experiment, identities, options.record_tokens, options.shard};
}

}  // namespace

struct Replay::Work {
  Work(const Experiment& given, const ReplayOptions& how)
      : experiment(given),
        options(how),
        threads(given.threads > 0 ? given.threads : processor_count()),
        traces(open_traces(given, how)),
        graph(graph_of(given, traces, how)),
        outputs(graph, how.store,
                {.access_logs = !how.access_log_folder.empty(),
                 .schedule = how.schedule != nullptr || how.prefill_schedule != nullptr,
                 .timeline_steps = how.timeline_steps,
                 .timeline_cells = how.timeline_cells}),
        estimate(given, traces, graph, how.store),
        rows(given, traces, graph, outputs) {
    check_before_work();
  }

  /// Throws what a later stage would, which is too late after hours of an earlier one.
  void check_before_work() const {
    for (std::size_t i = 0; i < graph.decisions().size(); ++i) {
      if (!graph.decisions()[i].in_shard || !outputs.decisions[i].must_compute) continue;
      const DecisionNode& decision = graph.decisions()[i];
      const SystemSpec& system = experiment.systems[decision.system];
      const TraceReader& trace = traces[decision.trace].reader;
      check_decidable(trace, {system.name, system.decide});
      if (trace.info().recorded_layers.back() < system.decide.full_attention_layers()) {
        throw UserError({trace.file(), "/"},
                        "every recorded layer is one of the dense_layers of " + system.name +
                            ": there is none to follow",
                        "a trace with a later layer");
      }
    }
    for (const TimingNode& node : graph.timings()) {
      const DecisionNode& decision = graph.decisions()[graph.placements()[node.placement].decision];
      if (!node.in_shard || node.options.warm_up_steps < decision.steps) continue;
      throw UserError({experiment.name, "warm_up_steps"},
                      "found " + std::to_string(node.options.warm_up_steps),
                      "fewer than the " + std::to_string(decision.steps) + " steps of " +
                          traces[decision.trace].name + " that are replayed");
    }
  }

  const Experiment& experiment;
  const ReplayOptions options;
  const int threads;
  const std::vector<ReplayTrace> traces;
  const StageGraph graph;
  StageOutputs outputs;
  StageEstimate estimate;
  const ReplayRows rows;
};

Replay::Replay(const Experiment& experiment, const ReplayOptions& options)
    : work_(std::make_unique<Work>(experiment, options)) {}
Replay::~Replay() = default;

std::size_t Replay::cells() const {
  return work_->graph.cells().size();
}

std::size_t Replay::finished_cells() const {
  const std::vector<std::size_t>& cells = work_->graph.cells();
  return static_cast<std::size_t>(std::count_if(cells.begin(), cells.end(), [&](std::size_t cell) {
    return work_->outputs.timings[work_->graph.timing_of(cell)].value.has_value();
  }));
}

std::array<StageCost, kStageCount> Replay::costs() const {
  return work_->estimate.costs(work_->outputs, work_->threads);
}

int Replay::threads() const {
  return work_->threads;
}

bool Replay::rates_measured() const {
  return work_->estimate.rates_measured();
}

ReplayResult Replay::run() {
  Work& work = *work_;
  const ReplayOptions& options = work.options;
  std::optional<Progress> progress;
  if (options.show_progress) {
    double seconds = 0;
    for (const StageCost& cost : costs()) seconds += cost.seconds;
    progress.emplace("replay", static_cast<std::int64_t>(seconds * 1e9 * work.threads));
  }
  const StageContext context{.experiment = work.experiment,
                             .traces = work.traces,
                             .graph = work.graph,
                             .estimate = work.estimate,
                             .store = options.store,
                             .threads = work.threads,
                             .check = options.check,
                             .progress = progress ? &*progress : nullptr};
  const auto say_cells = [&](std::size_t timing) {
    if (!progress || !options.cell_line) return;
    for (const std::size_t cell : work.graph.timings()[timing].cells) {
      if (!work.graph.in_shard(cell)) continue;
      progress->say(options.cell_line(work.rows.cell(cell), cell));
    }
  };
  StageExecutor(context, work.outputs,
                {.memory_bytes = options.memory_bytes > 0 ? options.memory_bytes
                                                          : available_memory_bytes() / 5 * 4,
                 .access_log_folder = options.access_log_folder,
                 .record_tokens = options.record_tokens,
                 .schedule = options.schedule,
                 .prefill_schedule = options.prefill_schedule,
                 .on_timing = say_cells})
      .run();
  work.estimate.store_rates();
  progress.reset();
  return work.rows.all();
}

ReplayResult replay(const Experiment& experiment, const ReplayOptions& options) {
  return Replay(experiment, options).run();
}

}  // namespace kvreplay
