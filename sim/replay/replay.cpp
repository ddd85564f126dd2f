#include "sim/replay/replay.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <tuple>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/memory.hpp"
#include "base/packed.hpp"
#include "base/parallel.hpp"
#include "base/progress.hpp"
#include "policies/decide/decide.hpp"
#include "sim/replay/stage_keys.hpp"
#include "sim/replay/stage_store.hpp"
#include "sim/replay/trace_hash.hpp"
#include "traces/trace.hpp"

namespace kvreplay {
namespace {

constexpr const char* kLogs = "decide";
constexpr const char* kMeans = "quality";
constexpr const char* kPlans = "place";
constexpr const char* kTimings = "time";
constexpr const char* kRates = "rates";

int threads_of(const Experiment& experiment) {
  return experiment.threads > 0 ? experiment.threads : processor_count();
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

/// UserError that names the members which list more than one thing.
void check_one_cell(const Experiment& experiment) {
  std::set<std::int64_t> batches;
  for (const Cell& cell : experiment.cells) batches.insert(cell.batch);
  const std::pair<const char*, std::size_t> members[] = {
      {"trace", experiment.traces.size()},   {"system", experiment.systems.size()},
      {"model", experiment.models.size()},   {"platform", experiment.platforms.size()},
      {"device", experiment.devices.size()}, {"batch", batches.size()}};
  for (const auto& [name, count] : members) {
    if (count == 1) continue;
    throw UserError(
        {experiment.name, name}, "has " + std::to_string(count) + " of them",
        std::string("one: a schedule is of one cell; choose it by --set ") + name + "=NAME");
  }
  if (experiment.cells.size() > 1) {
    throw UserError({experiment.name, ""},
                    "has " + std::to_string(experiment.cells.size()) + " cells",
                    "one: a schedule is of one cell; give each setting one value");
  }
}

/// Whether stage 1 may depend on a swept key: its role is one of that stage's.
bool concerns_decide(const std::string& key) {
  if (key == "case" || key == "experiment.seed" || key == "experiment.steps") return true;
  if (!key.starts_with("system.")) return false;
  static const std::set<std::string> kLater{"cache", "layout", "pipeline"};
  const std::size_t parameter = key.rfind('.');
  const std::size_t role = key.rfind('.', parameter - 1) + 1;
  return !kLater.contains(key.substr(role, parameter - role));
}

/// One line that tells a cell from the others.
std::string cell_text(const CellResult& cell) {
  std::string text = cell.system + " on " + cell.device + ", " + cell.model + ", " + cell.platform +
                     ", batch " + std::to_string(cell.batch) + ", " + cell.trace;
  if (cell.synthetic) text += " (SYNTHETIC)";
  for (const auto& [name, value] : cell.settings) {
    if (value) text += ", " + name + " = " + to_text(*value);
  }
  return text;
}

/// What stage 1 of one system leaves behind, at most: each query head's row of every step may pick
/// every token as a group of its own, and attend to it.
std::int64_t most_log_bytes(const TraceInfo& info, std::int64_t steps, bool record_tokens) {
  const std::int64_t rows = std::ssize(info.recorded_layers) * steps * info.query_heads;
  return rows * (info.prompt_tokens + steps) * (record_tokens ? 8 : 4);
}

/// Nanoseconds of one thread a unit of work of each stage: what the estimates of time are made of.
/// The defaults are of ClusterKV on a server core (thousand.json); a store remembers what its
/// machine took.
struct Rates {
  double decide = 0.3;  ///< recorded layer x step x token x query head x element
  double place = 500;   ///< recorded layer x step x KV head of the target
  double time = 10000;  ///< timed step x layer of the target x sequence
};

class Stopwatch {
 public:
  [[nodiscard]] double nanoseconds() const {
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// Work done and what it took, of one stage.
struct Meter {
  double units = 0;
  double thread_ns = 0;
};

}  // namespace

class Replay::Work {
 public:
  Work(const Experiment& experiment, const ReplayOptions& options)
      : experiment_(experiment),
        options_(options),
        threads_(threads_of(experiment)),
        memory_bytes_(options.memory_bytes > 0 ? options.memory_bytes
                                               : available_memory_bytes() / 5 * 4) {
    if (options.schedule != nullptr) check_one_cell(experiment);
    assert(options.schedule == nullptr || options.store == nullptr);
    for (const std::string& trace : experiment.traces) {
      traces_.push_back({TraceReader(trace), trace_hash(trace, options.store)});
    }
    list_stages();
    choose_cells();
    look_into_store();
  }

  [[nodiscard]] std::size_t cells() const { return cells_.size(); }
  [[nodiscard]] std::size_t finished_cells() const {
    return static_cast<std::size_t>(std::count_if(
        cells_.begin(), cells_.end(),
        [&](std::size_t cell) { return timings_[timing_of_[cell]].value.has_value(); }));
  }

  [[nodiscard]] int threads() const { return threads_; }
  [[nodiscard]] bool rates_measured() const { return rates_measured_; }

  [[nodiscard]] std::array<StageCost, 3> costs() const {
    std::array<StageCost, 3> costs;
    for (const Decision& decision : decisions_) {
      if (!decision.wanted) continue;
      ++costs[0].outputs;
      if (decision.needed) {
        costs[0].seconds += decide_ns(decision) / threads_ / 1e9;
      } else {
        ++costs[0].kept;
      }
    }
    for (const Placement& placement : placements_) {
      if (!placement.wanted) continue;
      ++costs[1].outputs;
      if (placement.needed) {
        costs[1].seconds += place_ns(placement) / threads_ / 1e9;
      } else {
        ++costs[1].kept;
      }
    }
    for (const TimingJob& timing : timings_) {
      if (!timing.wanted) continue;
      ++costs[2].outputs;
      if (timing.value) {
        ++costs[2].kept;
      } else {
        costs[2].seconds += time_ns(timing) / threads_ / 1e9;
      }
    }
    return costs;
  }

  ReplayResult run() {
    if (options_.show_progress) {
      double seconds = 0;
      for (const StageCost& cost : costs()) seconds += cost.seconds;
      progress_.emplace("replay", static_cast<std::int64_t>(seconds * 1e9 * threads_));
    }
    for (const std::vector<std::size_t>& chunk : chunks()) run_chunk(chunk);
    remember_rates();
    progress_.reset();
    return collect();
  }

 private:
  struct Trace {
    TraceReader reader;
    std::string sha256;
  };

  struct Decision {
    std::size_t number = 0;  ///< its index
    std::size_t trace = 0;
    std::size_t system = 0;  ///< one of those that it serves
    std::uint64_t seed = 1;
    std::int64_t steps = 0;
    std::string key;
    std::vector<std::size_t> placements;
    std::set<std::string> systems;  ///< names of those that it serves
    bool wanted = false;            ///< by a cell of the shard
    bool needed = false;            ///< its log is
    std::vector<LayerMeans> means;  ///< empty = not known yet
    std::shared_ptr<const AccessLog> log;
    std::map<std::array<std::int64_t, 3>, OracleBounds> bounds;  ///< by shape
    std::mutex mutex;                                            ///< of `log` and `bounds`
  };
  struct Placement {
    std::size_t decision = 0;
    std::size_t system = 0;
    std::size_t model = 0;
    std::string key;
    std::vector<std::size_t> timings;
    bool wanted = false;
    bool needed = false;  ///< a timing that is not known needs it, and the store has none
  };
  struct TimingJob {
    std::size_t placement = 0;
    std::size_t cell = 0;  ///< one of those that it serves
    std::string key;
    std::vector<std::size_t> cells;
    bool wanted = false;
    std::optional<Timing> value;
    std::optional<Timeline> timeline;
  };

  // --- What there is to do ---

  void list_stages() {
    std::map<std::string, std::size_t> decision_of_key;
    std::map<std::string, std::size_t> placement_of_key;
    std::map<std::string, std::size_t> timing_of_key;
    std::map<std::tuple<std::size_t, std::size_t, std::uint64_t, std::int64_t>, std::size_t>
        decision_of;
    std::map<std::tuple<std::size_t, std::size_t, std::size_t>, std::size_t> placement_of;
    for (std::size_t number = 0; number < experiment_.cells.size(); ++number) {
      const Cell& cell = experiment_.cells[number];
      const SystemSpec& system = experiment_.systems[cell.system];
      const auto [decision, new_decision] =
          decision_of.try_emplace({cell.trace, cell.system, cell.seed, cell.steps});
      if (new_decision) decision->second = take_decision(cell, decision_of_key);
      const auto [placement, new_placement] =
          placement_of.try_emplace({decision->second, cell.system, cell.model});
      if (new_placement) {
        placement->second = take_placement(decision->second, cell, placement_of_key);
      }
      std::string key =
          time_key(placements_[placement->second].key, experiment_.models[cell.model],
                   experiment_.platforms[cell.platform], experiment_.devices[cell.device],
                   system.pipeline, time_options(cell));
      const auto [timing, new_timing] = timing_of_key.try_emplace(key, timings_.size());
      if (new_timing) {
        placements_[placement->second].timings.push_back(timings_.size());
        timings_.push_back({placement->second, number, std::move(key), {}, false, {}, {}});
      }
      timings_[timing->second].cells.push_back(number);
      timing_of_.push_back(timing->second);
      note_block(number);
    }
  }

  std::size_t take_decision(const Cell& cell, std::map<std::string, std::size_t>& known) {
    const SystemSpec& system = experiment_.systems[cell.system];
    const std::int64_t recorded = traces_[cell.trace].reader.info().decode_steps();
    const std::int64_t steps = cell.steps > 0 ? std::min(cell.steps, recorded) : recorded;
    const std::string key = decide_key(traces_[cell.trace].sha256, system.decide, cell.seed, steps,
                                       options_.record_tokens);
    const auto [at, is_new] = known.try_emplace(key, decisions_.size());
    if (is_new) {
      Decision& made = decisions_.emplace_back();
      made.number = at->second;
      made.trace = cell.trace;
      made.system = cell.system;
      made.seed = cell.seed;
      made.steps = steps;
      made.key = key;
    }
    decisions_[at->second].systems.insert(system.name);
    return at->second;
  }

  std::size_t take_placement(std::size_t decision, const Cell& cell,
                             std::map<std::string, std::size_t>& known) {
    const std::string key =
        place_key(decisions_[decision].key, experiment_.systems[cell.system].place,
                  experiment_.models[cell.model].kv_shape());
    const auto [at, is_new] = known.try_emplace(key, placements_.size());
    if (is_new) {
      decisions_[decision].placements.push_back(placements_.size());
      placements_.push_back({decision, cell.system, cell.model, key, {}, false, false});
    }
    return at->second;
  }

  [[nodiscard]] TimeOptions time_options(const Cell& cell) const {
    TimeOptions options;
    options.batch = cell.batch;
    options.timed_steps = cell.timed_steps;
    options.warm_up_steps = cell.warm_up_steps;
    options.seed = cell.seed;
    return options;
  }

  [[nodiscard]] RowSettings settings_of(const Cell& cell) const {
    RowSettings settings;
    for (std::size_t i = 0; i < experiment_.swept.size(); ++i) {
      settings.emplace_back(experiment_.swept[i], cell.settings[i]);
    }
    return settings;
  }

  /// Rows of quality.csv belong to the first cell that names the same trace, system and settings of
  /// stage 1.
  void note_block(std::size_t number) {
    const Cell& cell = experiment_.cells[number];
    std::string identity =
        std::to_string(cell.trace) + '\n' + experiment_.systems[cell.system].name;
    for (const auto& [key, value] : settings_of(cell)) {
      if (concerns_decide(key)) identity += '\n' + (value ? to_text(*value) : "-");
    }
    block_of_.push_back(first_of_block_.try_emplace(identity, number).first->second);
  }

  [[nodiscard]] const Decision& decision_of_cell(std::size_t cell) const {
    return decisions_[placements_[timings_[timing_of_[cell]].placement].decision];
  }

  /// The cells of the shard: of all, by what they share.
  void choose_cells() {
    std::vector<std::size_t> order(experiment_.cells.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::map<std::tuple<std::size_t, std::uint64_t, std::int64_t>, std::size_t> group_of;
    for (const Decision& decision : decisions_) group_of.try_emplace(group(decision), 0);
    std::size_t groups = 0;
    for (const Decision& decision : decisions_) {
      std::size_t& place = group_of[group(decision)];
      if (place == 0) place = ++groups;
    }
    const auto rank = [&](std::size_t cell) {
      const std::size_t placement = timings_[timing_of_[cell]].placement;
      const std::size_t decision = placements_[placement].decision;
      return std::tuple(group_of[group(decisions_[decision])], decision, placement, cell);
    };
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
    const std::size_t count = order.size();
    const auto begin = count * (options_.shard.index - 1) / options_.shard.count;
    const auto end = count * options_.shard.index / options_.shard.count;
    cells_.assign(order.begin() + static_cast<std::ptrdiff_t>(begin),
                  order.begin() + static_cast<std::ptrdiff_t>(end));
    std::sort(cells_.begin(), cells_.end());
    for (const std::size_t cell : cells_) {
      TimingJob& timing = timings_[timing_of_[cell]];
      timing.wanted = true;
      placements_[timing.placement].wanted = true;
      decisions_[placements_[timing.placement].decision].wanted = true;
    }
    for (std::size_t i = 0; i < shown_cells(); ++i) {
      timings_[timing_of_[cells_[i]]].timeline.emplace(options_.timeline_steps);
    }
  }

  /// How many cells have a timeline.
  [[nodiscard]] std::size_t shown_cells() const {
    return options_.timeline_steps == 0 ? 0 : std::min(cells_.size(), options_.timeline_cells);
  }

  /// What can be decided in lockstep.
  [[nodiscard]] static std::tuple<std::size_t, std::uint64_t, std::int64_t> group(
      const Decision& decision) {
    return {decision.trace, decision.seed, decision.steps};
  }

  void look_into_store() {
    if (options_.store != nullptr) {
      for (TimingJob& timing : timings_) {
        if (!timing.wanted || timing.timeline) continue;  // to be seen, it is simulated
        if (const auto bytes = options_.store->read(kTimings, timing.key)) {
          timing.value = timing_from(*bytes);
        }
      }
      for (Decision& decision : decisions_) {
        if (!decision.wanted) continue;
        if (const auto bytes = options_.store->read(kMeans, decision.key)) {
          decision.means = layer_means_from(*bytes);
        }
      }
      read_rates();
    }
    for (Placement& placement : placements_) {
      placement.needed =
          placement.wanted && has_untimed(placement) &&
          !(options_.store != nullptr && options_.store->find(kPlans, placement.key));
    }
    for (Decision& decision : decisions_) {
      if (!decision.wanted || !log_needed(decision)) continue;
      decision.needed = options_.store == nullptr || !options_.store->find(kLogs, decision.key);
    }
  }

  [[nodiscard]] bool log_needed(const Decision& decision) const {
    return !options_.access_log_folder.empty() || decision.means.empty() ||
           std::any_of(decision.placements.begin(), decision.placements.end(),
                       [&](std::size_t placement) { return placements_[placement].needed; });
  }

  [[nodiscard]] bool has_untimed(const Placement& placement) const {
    return std::any_of(placement.timings.begin(), placement.timings.end(), [&](std::size_t timing) {
      return timings_[timing].wanted && !timings_[timing].value;
    });
  }

  // --- How long it takes ---

  [[nodiscard]] double decide_units(const Decision& decision) const {
    const TraceInfo& info = traces_[decision.trace].reader.info();
    const double tokens =
        static_cast<double>(info.prompt_tokens) + static_cast<double>(decision.steps) / 2;
    return static_cast<double>(std::ssize(info.recorded_layers) * decision.steps *
                               info.query_heads * info.head_dim) *
           tokens;
  }
  [[nodiscard]] double place_units(const Placement& placement) const {
    const Decision& decision = decisions_[placement.decision];
    const TraceInfo& info = traces_[decision.trace].reader.info();
    return static_cast<double>(std::ssize(info.recorded_layers) * decision.steps *
                               experiment_.models[placement.model].kv_heads);
  }
  [[nodiscard]] double time_units(const TimingJob& timing) const {
    const Cell& cell = experiment_.cells[timing.cell];
    const std::int64_t usable =
        decisions_[placements_[timing.placement].decision].steps - cell.warm_up_steps;
    const std::int64_t steps = cell.timed_steps > 0 ? std::min(cell.timed_steps, usable) : usable;
    return static_cast<double>(steps * experiment_.models[cell.model].layers * cell.batch);
  }
  [[nodiscard]] double decide_ns(const Decision& d) const {
    return rates_.decide * decide_units(d);
  }
  [[nodiscard]] double place_ns(const Placement& p) const { return rates_.place * place_units(p); }
  [[nodiscard]] double time_ns(const TimingJob& t) const { return rates_.time * time_units(t); }

  void read_rates() {
    const auto bytes = options_.store->read(kRates, sha256_text(kRates));
    if (!bytes) return;
    PackedReader read(*bytes);
    for (double* rate : {&rates_.decide, &rates_.place, &rates_.time}) read(*rate);
    rates_measured_ = true;
  }

  void remember_rates() {
    const auto learn = [](const Meter& meter, double& rate) {
      if (meter.units > 0) rate = meter.thread_ns / meter.units;
    };
    learn(decide_meter_, rates_.decide);
    learn(place_meter_, rates_.place);
    learn(time_meter_, rates_.time);
    if (options_.store == nullptr || decide_meter_.units + time_meter_.units == 0) return;
    PackedWriter write;
    for (const double rate : {rates_.decide, rates_.place, rates_.time}) write(rate);
    options_.store->put(kRates, sha256_text(kRates), write.bytes());
  }

  void begin_stage(const std::string& stage, std::size_t trace, double ns_a_unit) {
    if (progress_) {
      progress_->begin_stage(stage + " " + trace_name(experiment_.traces[trace]), ns_a_unit);
    }
  }

  // --- Stage 1 ---

  /// Decisions that are made together: they share trace, seed and steps, and their logs fit into
  /// half of the memory. The other half is for plans, and for the vectors of the layers under way.
  [[nodiscard]] std::vector<std::vector<std::size_t>> chunks() const {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < decisions_.size(); ++i) {
      if (decisions_[i].wanted) order.push_back(i);
    }
    std::map<std::tuple<std::size_t, std::uint64_t, std::int64_t>, std::size_t> first;
    for (const std::size_t i : order) first.try_emplace(group(decisions_[i]), i);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return first[group(decisions_[a])] < first[group(decisions_[b])];
    });
    std::vector<std::vector<std::size_t>> chunks;
    std::int64_t bytes = 0;
    for (const std::size_t i : order) {
      const Decision& decision = decisions_[i];
      const std::int64_t own = most_log_bytes(traces_[decision.trace].reader.info(), decision.steps,
                                              options_.record_tokens);
      const bool joins = !chunks.empty() &&
                         group(decisions_[chunks.back().front()]) == group(decision) &&
                         bytes + own <= memory_bytes_ / 2;
      if (!joins) {
        chunks.emplace_back();
        bytes = 0;
      }
      chunks.back().push_back(i);
      bytes += own;
    }
    return chunks;
  }

  void run_chunk(const std::vector<std::size_t>& chunk) {
    std::vector<std::size_t> missing;
    for (const std::size_t i : chunk) {
      if (decisions_[i].needed) missing.push_back(i);
    }
    decide_missing(missing);
    for (const std::size_t i : chunk) {
      Decision& decision = decisions_[i];
      if (!options_.access_log_folder.empty()) write_logs(decision);
      if (!decision.means.empty()) continue;
      decision.means = layer_means(*log_of(decision));
      if (options_.store != nullptr) {
        options_.store->put(kMeans, decision.key, to_bytes(decision.means));
      }
    }
    run_plans(chunk);
    for (const std::size_t i : chunk) {
      decisions_[i].log.reset();
      decisions_[i].bounds.clear();
    }
  }

  /// Another process may be at the same work: whoever comes second waits, and finds it done.
  void decide_missing(std::vector<std::size_t> missing) {
    if (missing.empty()) return;
    std::optional<StageStore::Lock> lock;
    if (options_.store != nullptr) {
      std::vector<std::string> keys;
      keys.reserve(missing.size());
      for (const std::size_t i : missing) keys.push_back(decisions_[i].key);
      lock.emplace(*options_.store, keys);
      std::erase_if(missing, [&](std::size_t i) {
        return options_.store->find(kLogs, decisions_[i].key).has_value();
      });
    }
    decide_together(missing);
  }

  void decide_together(const std::vector<std::size_t>& missing) {
    if (missing.empty()) return;
    const std::lock_guard guard(decide_mutex_);
    const Decision& first = decisions_[missing.front()];
    const TraceReader& reader = traces_[first.trace].reader;
    std::vector<NamedDecideSpec> specs;
    double units = 0;
    for (const std::size_t i : missing) {
      const SystemSpec& system = experiment_.systems[decisions_[i].system];
      specs.push_back({system.name, system.decide});
      units += decide_units(decisions_[i]);
    }
    const auto layer_steps =
        static_cast<double>(std::ssize(reader.info().recorded_layers) * first.steps);
    begin_stage("decide", first.trace, rates_.decide * units / layer_steps);
    DecideOptions decide_options;
    decide_options.seed = first.seed;
    decide_options.threads = threads_;
    decide_options.max_steps = first.steps;
    decide_options.record_tokens = options_.record_tokens;
    decide_options.progress = progress_ ? &*progress_ : nullptr;
    const Stopwatch watch;
    std::vector<AccessLog> logs = decide(reader, specs, decide_options);
    decide_meter_.units += units;
    decide_meter_.thread_ns += watch.nanoseconds() * threads_;
    for (std::size_t i = 0; i < missing.size(); ++i) {
      Decision& decision = decisions_[missing[i]];
      if (logs[i].trace_hash != traces_[decision.trace].sha256) {
        throw UserError({reader.file(), ""}, "is not the file that it was when its hash was taken",
                        "a trace that stays as it is");
      }
      if (options_.store != nullptr) {
        options_.store->put_file(kLogs, decision.key,
                                 [&](const std::string& path) { write_access_log(logs[i], path); });
      }
      decision.log = std::make_shared<const AccessLog>(std::move(logs[i]));
    }
  }

  /// The log: as it was decided or kept. Decided again where it has gone from the store meanwhile.
  std::shared_ptr<const AccessLog> log_of(Decision& decision) {
    const std::lock_guard guard(decision.mutex);
    if (decision.log == nullptr && options_.store != nullptr) {
      decision.log = kept_log(decision);
    }
    if (decision.log == nullptr) {
      decide_together({decision.number});
    }
    return decision.log;
  }

  [[nodiscard]] std::shared_ptr<const AccessLog> kept_log(const Decision& decision) const {
    const std::optional<std::string> file = options_.store->find(kLogs, decision.key);
    if (!file) return nullptr;
    try {
      return std::make_shared<const AccessLog>(read_access_log(*file));
    } catch (const UserError&) {
      return nullptr;  // another process has evicted it since
    }
  }

  void write_logs(Decision& decision) {
    const std::string trace = trace_name(experiment_.traces[decision.trace]);
    for (const std::string& system : decision.systems) {
      // Decisions of one system that differ in their settings are numbered.
      const int number = ++logs_written_[{decision.trace, system}];
      std::string name = trace + ".";
      name += system;
      if (number > 1) name += "-" + std::to_string(number);
      AccessLog log = *log_of(decision);
      log.system = system;
      write_access_log(
          log,
          (std::filesystem::path(options_.access_log_folder) / (name + ".access.h5")).string());
    }
  }

  // --- Stages 2 and 3 ---

  /// Plans in windows that fit into memory: all of a window are placed, then timed.
  void run_plans(const std::vector<std::size_t>& chunk) {
    std::vector<std::size_t> waiting;
    for (const std::size_t i : chunk) {
      for (const std::size_t placement : decisions_[i].placements) {
        if (placements_[placement].wanted && has_untimed(placements_[placement])) {
          waiting.push_back(placement);
        }
      }
    }
    std::size_t window = static_cast<std::size_t>(threads_);  // until the size of a plan is known
    for (std::size_t begin = 0; begin < waiting.size();) {
      const std::size_t end = std::min(begin + window, waiting.size());
      const std::int64_t largest = run_window(std::span(waiting).subspan(begin, end - begin));
      largest_plan_ = std::max(largest_plan_, largest);
      window = std::clamp<std::size_t>(
          static_cast<std::size_t>(memory_bytes_ / 4 / std::max<std::int64_t>(largest_plan_, 1)), 1,
          64 * static_cast<std::size_t>(threads_));
      begin = end;
    }
  }

  /// Returns the bytes of the largest plan.
  std::int64_t run_window(std::span<const std::size_t> window) {
    const std::size_t trace = decisions_[placements_[window.front()].decision].trace;
    std::vector<IoPlan> plans(window.size());
    std::vector<double> units(window.size());
    double ns = 0;
    for (const std::size_t i : window) {
      if (placements_[i].needed) ns += place_ns(placements_[i]);
    }
    begin_stage("place", trace, ns / static_cast<double>(window.size()));
    Stopwatch watch;
    parallel_for(std::ssize(window), threads_, [&](std::int64_t index) {
      const auto at = static_cast<std::size_t>(index);
      plans[at] = plan_of(placements_[window[at]], units[at]);
      if (progress_) progress_->advance();
    });
    add(place_meter_, units, watch);

    struct Item {
      std::size_t plan;
      std::size_t timing;
    };
    std::vector<Item> items;
    double time_left = 0;
    for (std::size_t plan = 0; plan < window.size(); ++plan) {
      for (const std::size_t timing : placements_[window[plan]].timings) {
        if (!timings_[timing].wanted || timings_[timing].value) continue;
        items.push_back({plan, timing});
        time_left += time_ns(timings_[timing]);
      }
    }
    units.assign(items.size(), 0);
    begin_stage("time", trace, time_left / static_cast<double>(items.size()));
    watch = {};
    parallel_for(std::ssize(items), threads_, [&](std::int64_t index) {
      const Item& item = items[static_cast<std::size_t>(index)];
      TimingJob& job = timings_[item.timing];
      time(plans[item.plan], job);
      units[static_cast<std::size_t>(index)] = time_units(job);
      if (progress_) progress_->advance();
      report(job);
    });
    add(time_meter_, units, watch);

    std::int64_t largest = 0;
    for (const IoPlan& plan : plans) largest = std::max(largest, memory_bytes(plan));
    return largest;
  }

  void add(Meter& meter, const std::vector<double>& units, const Stopwatch& watch) const {
    double done = 0;
    for (const double of_one : units) done += of_one;
    if (done == 0) return;
    meter.units += done;
    meter.thread_ns += watch.nanoseconds() * threads_;
  }

  /// `units` says what was placed: nothing, where the store had the plan.
  IoPlan plan_of(const Placement& placement, double& units) {
    if (!placement.needed) {
      if (const auto bytes = options_.store->read(kPlans, placement.key)) return plan_from(*bytes);
    }
    units = place_units(placement);
    const std::shared_ptr<const AccessLog> log = log_of(decisions_[placement.decision]);
    const KvShape shape = experiment_.models[placement.model].kv_shape();
    IoPlan plan = place(*log, experiment_.systems[placement.system].place, shape,
                        &bounds_of(decisions_[placement.decision], shape));
    plan.system = experiment_.systems[placement.system].name;
    if (options_.store != nullptr) options_.store->put(kPlans, placement.key, to_bytes(plan));
    return plan;
  }

  static OracleBounds& bounds_of(Decision& decision, const KvShape& shape) {
    const std::lock_guard guard(decision.mutex);
    return decision.bounds[{shape.query_heads, shape.kv_heads, shape.head_dim}];
  }

  void time(const IoPlan& plan, TimingJob& job) {
    const Cell& cell = experiment_.cells[job.cell];
    TimeOptions options = time_options(cell);
    options.schedule = options_.schedule;
    options.timeline = job.timeline ? &*job.timeline : nullptr;
    job.value = time_plan(plan, experiment_.models[cell.model],
                          experiment_.platforms[cell.platform], experiment_.devices[cell.device],
                          experiment_.systems[cell.system].pipeline, options);
    if (options_.store != nullptr) {
      options_.store->put(kTimings, job.key, to_bytes(*job.value));
    }
  }

  // --- Results ---

  [[nodiscard]] CellResult row_of(std::size_t number) const {
    const Cell& cell = experiment_.cells[number];
    const ModelSpec& model = experiment_.models[cell.model];
    const PlatformSpec& platform = experiment_.platforms[cell.platform];
    CellResult row;
    row.trace = trace_name(experiment_.traces[cell.trace]);
    row.synthetic = traces_[cell.trace].reader.synthetic();
    row.system = experiment_.systems[cell.system].name;
    row.model = model.name;
    row.platform = platform.name;
    row.device = experiment_.devices[cell.device].name;
    row.batch = cell.batch;
    row.projection = projection_text(traces_[cell.trace].reader.info(), model);
    row.settings = settings_of(cell);
    row.platform_dram_bytes = platform.dram_bytes;
    row.timing = *timings_[timing_of_[number]].value;
    row.quality = system_means(decision_of_cell(number).means);
    return row;
  }

  void report(const TimingJob& job) {
    if (!progress_ || !options_.cell_line) return;
    for (const std::size_t cell : job.cells) {
      if (std::binary_search(cells_.begin(), cells_.end(), cell)) {
        progress_->say(options_.cell_line(row_of(cell), cell));
      }
    }
  }

  ReplayResult collect() const {
    ReplayResult result;
    for (std::size_t i = 0; i < traces_.size(); ++i) {
      result.traces.push_back(
          {trace_name(experiment_.traces[i]), traces_[i].sha256, traces_[i].reader.synthetic()});
    }
    result.cell_numbers = cells_;
    std::map<std::size_t, std::size_t> cell_of_block;
    for (const std::size_t cell : cells_) {
      result.cells.push_back(row_of(cell));
      cell_of_block.try_emplace(block_of_[cell], cell);
    }
    for (std::size_t i = 0; i < shown_cells(); ++i) {
      const std::size_t cell = cells_[i];
      result.timelines.push_back(
          {cell_text(result.cells[i]), *timings_[timing_of_[cell]].timeline});
    }
    for (const auto& [block, number] : cell_of_block) {
      const Cell& cell = experiment_.cells[number];
      RowSettings settings = settings_of(cell);
      std::erase_if(settings, [](const auto& named) { return !concerns_decide(named.first); });
      for (const LayerMeans& layer : decision_of_cell(number).means) {
        result.layers.push_back({trace_name(experiment_.traces[cell.trace]),
                                 traces_[cell.trace].reader.synthetic(),
                                 experiment_.systems[cell.system].name, settings, layer.layer,
                                 layer.dense, layer.means});
        result.layer_blocks.push_back(block);
      }
    }
    return result;
  }

  const Experiment& experiment_;
  const ReplayOptions options_;
  const int threads_;
  const std::int64_t memory_bytes_;
  std::vector<Trace> traces_;
  std::deque<Decision> decisions_;
  std::vector<Placement> placements_;
  std::vector<TimingJob> timings_;
  std::vector<std::size_t> timing_of_;  ///< by cell of the experiment
  std::vector<std::size_t> block_of_;   ///< likewise
  std::map<std::string, std::size_t> first_of_block_;
  std::vector<std::size_t> cells_;  ///< of the shard, ascending

  Rates rates_;
  bool rates_measured_ = false;  ///< they are the store's
  Meter decide_meter_;
  Meter place_meter_;
  Meter time_meter_;
  std::optional<Progress> progress_;
  std::mutex decide_mutex_;  ///< one at a time: each takes all threads
  std::map<std::pair<std::size_t, std::string>, int> logs_written_;
  std::int64_t largest_plan_ = 0;
};

Replay::Replay(const Experiment& experiment, const ReplayOptions& options)
    : work_(std::make_unique<Work>(experiment, options)) {}
Replay::~Replay() = default;

std::size_t Replay::cells() const {
  return work_->cells();
}
std::size_t Replay::finished_cells() const {
  return work_->finished_cells();
}
std::array<StageCost, 3> Replay::costs() const {
  return work_->costs();
}
int Replay::threads() const {
  return work_->threads();
}
bool Replay::rates_measured() const {
  return work_->rates_measured();
}
ReplayResult Replay::run() {
  return work_->run();
}

ReplayResult replay(const Experiment& experiment, const ReplayOptions& options) {
  return Replay(experiment, options).run();
}

}  // namespace kvreplay
