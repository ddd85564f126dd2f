#include "sim/time/time_plan.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/statistics.hpp"
#include "devices/commands.hpp"
#include "devices/schedule/schedule.hpp"
#include "sim/time/compute_cost.hpp"
#include "sim/time/context_projection.hpp"
#include "sim/time/known_prefills.hpp"
#include "sim/time/machine/recording_machine.hpp"
#include "sim/time/machine/virtual_machine.hpp"
#include "sim/time/prefill.hpp"
#include "sim/time/target_layers.hpp"
#include "sim/time/timeline.hpp"

namespace kvreplay {
namespace {

/// Regions begin at multiples of this, so that no two of them share a flash page.
constexpr std::uint64_t kRegionAlignment = 1 << 20;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment;
}

DramUse dram_use(const std::vector<TargetLayer>& layers, const IoPlan& plan, const ModelSpec& model,
                 const Pipeline& pipeline, std::int64_t batch) {
  DramUse use;
  use.weights_bytes = model.weight_bytes();
  std::int64_t max_fetched_bytes = 0;
  std::int64_t kept_fetches = 0;  // until a later layer has used them
  std::int64_t max_index_bytes = 0;
  std::int64_t max_paged_cache_bytes = 0;
  for (const TargetLayer& layer : layers) {
    if (layer.plan == nullptr) use.buffered_bytes += model.state_bytes;
    if (layer.full_attention && !layer.uses_earlier_entries) {
      use.full_attention_bytes += full_attention_bytes(plan, layer);
    }
    if (!has_groups(layer)) continue;
    max_index_bytes = std::max(max_index_bytes, layer.plan->dram.index_bytes);
    if (!pipeline.index_on_flash()) use.index_bytes += layer.plan->dram.index_bytes;
    if (layer.plan->io.cache_paged) {
      max_paged_cache_bytes = std::max(max_paged_cache_bytes, layer.plan->dram.cache_bytes);
    } else {
      use.cache_bytes += layer.plan->dram.cache_bytes;
    }
    use.buffered_bytes += layer.plan->dram.buffered_bytes;
    max_fetched_bytes = std::max(max_fetched_bytes, layer.plan->dram.fetched_bytes);
    if (layer.is_used_later) kept_fetches += layer.plan->dram.fetched_bytes;
  }
  if (pipeline.index_on_flash()) use.index_bytes = max_index_bytes;
  use.cache_bytes += 2 * max_paged_cache_bytes;  // of the attending layer and the next one
  use.read_buffer_bytes = max_fetched_bytes * pipeline.read_buffers() + kept_fetches;
  for (std::int64_t* bytes : {&use.cache_bytes, &use.full_attention_bytes, &use.index_bytes,
                              &use.buffered_bytes, &use.read_buffer_bytes}) {
    *bytes *= batch;
  }
  return use;
}

/// Draws one step of the plan from each of `count` equal strata of the steps after the warm-up.
std::vector<std::int64_t> draw_steps(std::int64_t usable, std::int64_t count, std::uint64_t seed) {
  if (count <= 0 || count > usable) count = usable;
  Random random(seed);
  std::vector<std::int64_t> steps;
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t begin = k * usable / count;
    const std::int64_t end = (k + 1) * usable / count;
    const std::uint64_t within = random.below(static_cast<std::uint64_t>(end - begin));
    steps.push_back(begin + static_cast<std::int64_t>(within));
  }
  return steps;
}

/// Steps of the plan that are decoded, without the first `warm_up`.
std::vector<std::int64_t> decoded_steps(const IoPlan& plan, std::int64_t warm_up) {
  std::vector<std::int64_t> steps;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t step = begin; step < end; ++step) steps.push_back(step);
  };
  if (plan.turns.empty()) add(0, plan.steps);
  for (const TurnSteps& turn : plan.turns) add(turn.generated_begin, turn.end);
  steps.erase(steps.begin(), steps.begin() + std::min(warm_up, std::ssize(steps)));
  if (steps.empty()) {
    throw UserError({"", "warm_up_steps"}, "found " + std::to_string(warm_up),
                    "fewer than the steps that are decoded");
  }
  return steps;
}

/// Moves what a machine's only layer has of a kind.
StepTask transfer_step(Machine& machine, TransferKind kind) {
  machine.start(kind, 0);
  co_await machine.wait(kind, 0);
}

/// What time_plan() takes, with the plan as it is timed.
struct TimedCell {
  const IoPlan& plan;
  const ModelSpec& model;
  const PlatformSpec& platform;
  const DeviceSpec& device;
  const PartConfig<Pipeline>& pipeline;
  const TimeOptions& options;
  KnownPrefills* prefills = nullptr;
};

class StepTimer {
 public:
  /// Everything that `cell` refers to must outlive this object.
  explicit StepTimer(const TimedCell& cell)
      : plan_(cell.plan),
        model_(cell.model),
        platform_(cell.platform),
        options_(cell.options),
        prefills_(cell.prefills),
        spec_(cell.device),
        device_(cell.device.make(simulation_)),
        pipeline_(cell.pipeline.make({})),
        work_{.layers = std::vector<LayerWork>(static_cast<std::size_t>(model_.layers)),
              .submit_first_ns = submit_compute(platform_, 1),
              .measured = platform_.kernels ? &*platform_.kernels : nullptr},
        machine_(simulation_, *device_, work_),
        power_limit_(platform_) {
    machine_.limit_power(power_limit_);
    if (options_.schedule != nullptr) {
      *options_.schedule = Schedule(device_->limits(), plan_.system + " on " + cell.device.name);
      recorder_.emplace(*options_.schedule, work_);
    }
    if (options_.timeline != nullptr) machine_.observe(*options_.timeline);
    lay_out();
    timing_.batch = options_.batch;
    timing_.dram = dram_use(layers_, plan_, model_, *pipeline_, options_.batch);
    timing_.stored_bits = stored_bits();
  }

  [[nodiscard]] PrefillCell prefill_cell() const {
    return {.plan = plan_,
            .model = model_,
            .platform = platform_,
            .layers = prompt_layers_,
            .batch = options_.shared_prefix ? 1 : options_.batch,
            .chunk_tokens = options_.prefill_chunk_tokens,
            .index_on_flash = pipeline_->index_on_flash(),
            .timeline = options_.timeline,
            .schedule = options_.prefill_schedule};
  }
  /// Once more, on the device of the steps.
  [[nodiscard]] PrefillCell prefill_before_steps() {
    PrefillCell cell = prefill_cell();
    cell.timeline = nullptr;  // time_prefill() has shown and recorded it
    cell.schedule = nullptr;
    cell.power_limit = &power_limit_;
    return cell;
  }

  Timing run() && {
    if (options_.prefill_chunk_tokens > 0) {
      timing_.prefill = prefill_alone(prefill_cell());
    }
    decoded_ = decoded_steps(plan_, options_.warm_up_steps);
    const std::vector<std::int64_t> steps =
        draw_steps(std::ssize(decoded_), options_.timed_steps, options_.seed);
    run_to_end(decode(steps));
    finish();
    return std::move(timing_);
  }

  /// Timing::sustained.
  std::vector<SustainedInterval> run_sustained() && {
    decoded_ = decoded_steps(plan_, options_.warm_up_steps);
    constexpr SimTime kIntervals = 60;
    for (SimTime i = 1; i <= kIntervals; ++i) {
      sustained_.emplace_back().end_ns = options_.sustained_ns * i / kIntervals;
    }
    const Process sampled = sample_sustained();
    simulation_.spawn(sampled);
    run_to_end(sustain());
    return std::move(sustained_);
  }

  /// The turns of the plan, one after the other on one device.
  std::vector<TurnTiming> run_turns() && {
    blank_ = timing_;
    run_to_end(converse());
    finish();
    turns_.back().timing = std::move(timing_);
    return std::move(turns_);
  }

 private:
  void run_to_end(const Process& process) {
    simulation_.spawn(process);
    simulation_.run();
    if (!process.done())
      throw std::logic_error("the pipeline waits for something that never happens");
  }

  /// Of the prompt, on a device of its own.
  [[nodiscard]] Prefill prefill_alone(const PrefillCell& cell) const {
    const bool is_watched = cell.timeline != nullptr || cell.schedule != nullptr;
    if (prefills_ == nullptr || is_watched) return time_prefill(cell, spec_);
    return prefills_->get(cell, spec_);
  }

  /// Counts what the device did in the timed steps, until now.
  void finish() {
    const DeviceCounters counters = device_->counters();
    const DeviceCounters& before = before_steps_;
    timing_.flash_read_bytes =
        static_cast<std::int64_t>(counters.flash_read_bytes - before.flash_read_bytes);
    timing_.flash_write_bytes =
        static_cast<std::int64_t>(counters.flash_write_bytes - before.flash_write_bytes);
    timing_.erases = static_cast<std::int64_t>(counters.erases - before.erases);
    // Data of the prefill that was folded meanwhile counts as its own.
    timing_.unfolded_bytes = static_cast<std::int64_t>(counters.unfolded_bytes) -
                             static_cast<std::int64_t>(before.unfolded_bytes);
    timing_.wrapped_write_bytes = static_cast<std::int64_t>(counters.wrapped_write_bytes);
    timing_.energy = energy();
    timing_.reads = latency_of(machine_.command_ns(false), reads_before_);
    timing_.writes = latency_of(machine_.command_ns(true), writes_before_);
    timing_.attended_tokens /=
        static_cast<double>(std::ssize(timing_.steps) * options_.batch * model_.attention_layers());
    // Several sequences may miss what is then read once.
    if (!options_.shared_prefix &&
        static_cast<std::int64_t>(counters.host_read_bytes) < timing_.missed_bytes) {
      throw std::logic_error("the device read fewer bytes than the plan misses");
    }
  }

  /// What each layer follows; every (layer, sequence) with groups of its own gets a region,
  /// sequences of a layer side by side.
  void lay_out() {
    layers_ = target_layers(plan_, model_);
    std::uint64_t offset = 0;
    for (TargetLayer& layer : layers_) {
      if (!has_groups(layer)) continue;
      for (std::int64_t j = 0; j < options_.batch; ++j) {
        layer.region.push_back(offset);
        offset += aligned(layer.plan->io.region_bytes);
        if (pipeline_->index_on_flash()) {
          layer.index_region.push_back(offset);
          offset += aligned(static_cast<std::uint64_t>(layer.plan->dram.index_bytes));
        }
        if (j == 0 || !options_.shared_prefix) {
          timing_.prompt_write_bytes +=
              static_cast<std::int64_t>(layer.plan->io.prompt_write_bytes);
        }
        timing_.region_bytes += static_cast<std::int64_t>(layer.plan->io.region_bytes);
        timing_.live_bytes += static_cast<std::int64_t>(layer.plan->io.live_bytes);
      }
    }
    memory_region_ = offset;
    prompt_layers_ = layers_;
    if (!options_.shared_prefix) return;
    for (TargetLayer& layer : prompt_layers_) {
      if (layer.region.size() > 1) layer.region.resize(1);
      if (!has_groups(layer)) continue;
      const auto [rewritten, is_new] = rewritten_.try_emplace(layer.plan, layer.plan->io.writes);
      if (is_new) coalesce(rewritten->second);
    }
  }

  /// Of the layers with groups of their own, per element that is still visible.
  [[nodiscard]] double stored_bits() const {
    const std::int64_t tokens = plan_.prompt_tokens + plan_.steps;
    double bits = 0;
    double layers = 0;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (!has_groups(layers_[i])) continue;
      const LayerSpec& layer = model_.layer(static_cast<std::int64_t>(i));
      const LayerPlan& plan = *layers_[i].plan;
      const std::int64_t visible = visible_tokens(tokens, plan.sliding_window);
      bits += 8 * static_cast<double>(plan.dram.entries_bytes) /
              static_cast<double>(2 * layer.kv_heads * layer.head_dim * visible);
      layers += 1;
    }
    return layers == 0 ? 0 : bits / layers;
  }

  [[nodiscard]] Energy energy() const {
    SimTime compute_ns = 0;
    SimTime waiting_ns = 0;
    double dram_bytes = kernel_bytes_;
    for (const StepTiming& step : timing_.steps) {
      compute_ns += step.compute_ns;
      waiting_ns += step.exposed_io_ns;
      dram_bytes += static_cast<double>(step.read_bytes + step.write_bytes);
    }
    return energy_of(platform_, compute_ns, waiting_ns, dram_bytes,
                     device_->energy_nj(on_ns_ + compute_ns + waiting_ns) - flash_nj_before_,
                     power_limit_.throttled_ns() - throttled_before_);
  }

  /// The plan's step that sequence j follows when sequence 0 follows `step` (of decoded_).
  [[nodiscard]] std::int64_t step_of(std::int64_t step, std::int64_t sequence) const {
    const std::int64_t usable = std::ssize(decoded_);
    const std::int64_t shift = sequence * usable / options_.batch;
    return decoded_[static_cast<std::size_t>((step + shift) % usable)];
  }

  /// Fills work_ with the work of the step, and counts it.
  void prepare(std::int64_t step) {
    cache_.resize(layers_.size());
    work_.head_ns = head_compute(model_, platform_, options_.batch);
    kernel_bytes_ += model_.bytes_of(model_.head_weights());
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const TargetLayer& target = layers_[i];
      LayerWork& work = work_.layers[i];
      LayerLoad load{.batch = options_.batch, .layer = static_cast<std::int64_t>(i)};
      load.grouping = plan_.grouping;
      load.scoring = plan_.scoring;
      load.precision = plan_.precision;
      const LayerCache before{timing_.hit_bytes, timing_.missed_bytes};
      for (auto* extents : {&reads_, &writes_, &index_reads_, &cache_reads_}) extents->clear();
      for (std::int64_t j = 0; j < options_.batch; ++j) {
        add_sequence(target, j, step_of(step, j), load);
      }
      // What several sequences read of a shared prompt is read once.
      if (options_.shared_prefix) {
        for (auto* extents : {&reads_, &cache_reads_}) sort_distinct(*extents);
      }
      const bool merge = target.plan == nullptr || target.plan->io.merge_reads;
      make_commands(reads_, false, merge, work.commands(TransferKind::kReads));
      make_commands(writes_, true, true, work.commands(TransferKind::kWrites));
      make_commands(index_reads_, false, true, work.commands(TransferKind::kIndexReads));
      make_commands(cache_reads_, false, merge, work.commands(TransferKind::kCacheReads));
      for (std::size_t kind = 0; kind < kTransferKinds; ++kind) {
        work.submit_ns[kind] = submit_compute(platform_, std::ssize(work.transfers[kind]));
      }
      if (target.plan != nullptr && target.plan->dram.cache_bytes > 0) {
        load.inserted_reads = std::ssize(work.commands(TransferKind::kReads));
      }
      const LayerCompute compute = layer_compute(model_, platform_, load);
      work.project_query_ns = query_share(model_.layer(load.layer), compute.project_ns);
      work.project_key_value_ns = compute.project_ns - work.project_query_ns;
      work.score_ns = compute.score_ns;
      work.attend_ns = compute.attend_ns;
      timing_.attended_tokens += load.attended_tokens;
      kernel_bytes_ += compute.dram_bytes;
      cache_[i] = {timing_.hit_bytes - before.hit_bytes,
                   timing_.missed_bytes - before.missed_bytes};
    }
  }

  /// Of the projections' time: by heads, so that it does not depend on the width of the model.
  [[nodiscard]] SimTime query_share(const LayerSpec& layer, SimTime project_ns) const {
    const std::int64_t of_head = model_.hidden_size * layer.head_dim;
    const std::int64_t query = std::max<std::int64_t>(1, layer.query_weights / of_head);
    return project_ns * query / (query + layer.key_value_weights / of_head);
  }

  /// Where the sequence with that region reads a range of the layer's.
  void add_read(const TargetLayer& target, std::uint64_t region, const Extent& read,
                std::vector<Extent>& all) const {
    if (!options_.shared_prefix || region == target.region.front()) {
      all.push_back({region + read.offset, read.bytes});
      return;
    }
    const std::vector<Extent>& own = rewritten_.at(target.plan);
    auto next = std::partition_point(
        own.begin(), own.end(), [&](const Extent& extent) { return extent.end() <= read.offset; });
    for (std::uint64_t at = read.offset; at < read.end();) {
      const bool is_own = next != own.end() && next->offset <= at;
      const std::uint64_t end = std::min(read.end(), is_own              ? next->end()
                                                     : next != own.end() ? next->offset
                                                                         : read.end());
      all.push_back({(is_own ? region : target.region.front()) + at, end - at});
      if (is_own && end == next->end()) ++next;
      at = end;
    }
  }
  static void sort_distinct(std::vector<Extent>& extents) {
    const auto order = [](const Extent& a, const Extent& b) {
      return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
    };
    const auto same = [](const Extent& a, const Extent& b) {
      return a.offset == b.offset && a.bytes == b.bytes;
    };
    std::sort(extents.begin(), extents.end(), order);
    extents.erase(std::unique(extents.begin(), extents.end(), same), extents.end());
  }

  void make_commands(std::span<const Extent> extents, bool write, bool merge,
                     std::vector<IoCommand>& commands) const {
    commands.clear();
    to_commands(extents, write, device_->limits(), commands, merge);
  }

  void add_sequence(const TargetLayer& target, std::int64_t sequence, std::int64_t step,
                    LayerLoad& load) {
    if (target.plan == nullptr) return;
    const LayerPlan& plan = *target.plan;
    const auto at = static_cast<std::size_t>(step);
    // The step's own token is attended to as well.
    const double attended = target.full_attention
                                ? static_cast<double>(visible_tokens(plan_.prompt_tokens + step + 1,
                                                                     target.sliding_window))
                                : plan.compute.attended_tokens[at];
    load.attended_tokens += attended;
    load.attended_bytes += attended * static_cast<double>(plan.dram.entries_bytes) /
                           static_cast<double>(plan_.prompt_tokens + plan_.steps);
    if (!has_groups(target)) return;
    load.score_flops += static_cast<double>(plan.compute.score_flops[at]);
    load.score_bytes += static_cast<double>(plan.compute.score_bytes[at]);
    load.heads_attend_alone = plan_.heads_select_alone;
    load.writing_sequences += plan.io.writes_at(step).empty() ? 0 : 1;
    if (plan.io.region_bytes > 0) {
      const LayerSpec& layer = model_.layer(load.layer);
      load.fetched_entries += plan.compute.fetched_entries[at];
      load.decoded_entries += plan.compute.decoded_entries[at];
      load.buffered_entries += plan.compute.buffered_entries[at];
      load.appended_entries += layer.kv_heads;
      load.regrouped_entries += plan.compute.regrouped_entries[at];
      load.looks_ahead = plan_.looks_ahead;
    }
    timing_.add(plan, at);
    const std::uint64_t region = target.region[static_cast<std::size_t>(sequence)];
    for (const Extent& read : plan.io.reads_at(step)) add_read(target, region, read, reads_);
    for (const Extent& write : plan.io.writes_at(step)) {
      writes_.push_back({region + write.offset, write.bytes});
    }
    for (const Extent& read : plan.io.cache_reads_at(step)) {
      add_read(target, region, read, cache_reads_);
    }
    if (!target.index_region.empty()) {
      index_reads_.push_back({target.index_region[static_cast<std::size_t>(sequence)],
                              static_cast<std::uint64_t>(plan.compute.score_bytes[at])});
    }
  }

  /// Of the commands after the first `before`.
  static CommandLatency latency_of(const std::vector<SimTime>& all, std::size_t before) {
    std::vector<SimTime> ns(all.begin() + static_cast<std::ptrdiff_t>(before), all.end());
    std::sort(ns.begin(), ns.end());
    return {std::ssize(ns), percentile(ns, 0.5), percentile(ns, 0.99), percentile(ns, 0.999)};
  }

  Process decode(const std::vector<std::int64_t>& steps) {
    if (options_.after_prefill && options_.prefill_chunk_tokens > 0) {
      Prefill again;
      const Process prefill = run_prefill(prefill_before_steps(), simulation_, *device_, again);
      co_await prefill;
      on_ns_ += again.ttft_ns;
    }
    begin_steps();
    const Process timed = run_steps(steps);
    co_await timed;
  }

  /// What finish() counts begins here.
  void begin_steps() {
    flash_nj_before_ = device_->energy_nj(on_ns_);
    before_steps_ = device_->counters();
    reads_before_ = machine_.command_ns(false).size();
    writes_before_ = machine_.command_ns(true).size();
    throttled_before_ = power_limit_.throttled_ns();
    kernel_bytes_ = 0;
  }

  /// Adds a phase from `begin` until now to the intervals that it lies in.
  void add_sustained(SimTime begin, double tokens, SimTime compute_ns, SimTime exposed_io_ns) {
    const SimTime now = simulation_.now();
    SimTime from = 0;
    for (SustainedInterval& interval : sustained_) {
      const SimTime overlap = std::min(now, interval.end_ns) - std::max(begin, from);
      from = interval.end_ns;
      if (overlap <= 0) continue;
      const double share = static_cast<double>(overlap) / static_cast<double>(now - begin);
      interval.tokens += share * tokens;
      interval.compute_ns += share * static_cast<double>(compute_ns);
      interval.exposed_io_ns += share * static_cast<double>(exposed_io_ns);
    }
  }

  /// What is known at the end of each interval.
  Process sample_sustained() {
    SimTime throttled_ns = 0;
    for (SustainedInterval& interval : sustained_) {
      co_await delay(simulation_, interval.end_ns - simulation_.now());
      interval.throttled_ns = power_limit_.throttled_ns() - throttled_ns;
      throttled_ns = power_limit_.throttled_ns();
      interval.mean_power_w = power_limit_.mean_w();
      interval.temperature_c = device_->temperature_c();
    }
  }

  Process sustain() {
    Prefill prompt;
    const Process prefill = run_prefill(prefill_before_steps(), simulation_, *device_, prompt);
    co_await prefill;
    add_sustained(0, 0, prompt.compute_ns + prompt.index_ns, prompt.exposed_write_ns);
    std::vector<std::int64_t> one(1);
    while (simulation_.now() < options_.sustained_ns) {
      const SimTime begin = simulation_.now();
      const Process step = run_steps(one);
      co_await step;
      const StepTiming& timing = timing_.steps.back();
      add_sustained(begin, static_cast<double>(options_.batch), timing.compute_ns,
                    timing.exposed_io_ns);
      timing_.steps.clear();
      machine_.forget_command_times();
      one[0] = (one[0] + 1) % std::ssize(decoded_);
    }
  }

  Process converse() {
    for (std::size_t turn = 0; turn < plan_.turns.size(); ++turn) {
      const TurnSteps& range = plan_.turns[turn];
      if (turn > 0) {
        // The idle time folds what the turn before has written.
        const Process pause = rest(static_cast<std::int64_t>(turn));
        co_await pause;
        finish();
        for (const StepTiming& step : timing_.steps) on_ns_ += step.latency_ns;
        power_limit_.rest(simulation_.now());
        turns_.back().timing = std::exchange(timing_, blank_);
      }
      TurnTiming& timing = turns_.emplace_back();
      const PrefillRange fresh = prefill_range(plan_, static_cast<std::int64_t>(turn));
      timing.earlier_tokens = fresh.begin;
      timing.new_tokens = fresh.end - fresh.begin;
      timing.decoded_tokens = range.end - range.generated_begin;
      const Process begin = begin_turn(static_cast<std::int64_t>(turn), timing);
      co_await begin;
      decoded_.clear();
      // The warm-up is of the conversation; a turn keeps at least one step.
      const std::int64_t warm = turn == 0 ? options_.warm_up_steps : 0;
      for (std::int64_t step = std::min(range.generated_begin + warm, range.end - 1);
           step < range.end; ++step) {
        decoded_.push_back(step);
      }
      const std::vector<std::int64_t> steps =
          draw_steps(std::ssize(decoded_), options_.timed_steps, options_.seed);
      begin_steps();
      const Process timed = run_steps(steps);
      co_await timed;
    }
  }

  /// Prefills the turn's new tokens, after what idle time took from memory is there again.
  Process begin_turn(std::int64_t turn, TurnTiming& timing) {
    PrefillCell cell = prefill_before_steps();  // the timeline is that of run()
    cell.turn = turn;
    cell.reads_selected = options_.turns_read_selected;
    cell.cache_dropped = options_.idle_drops != IdleDrops::kNothing;
    if (turn > 0) {
      const Process resumed = resume(turn, cell, timing);
      co_await resumed;
    }
    const DeviceCounters before = device_->counters();
    const double flash_nj = device_->energy_nj(on_ns_);
    Prefill prefill;
    const Process process = run_prefill(cell, simulation_, *device_, prefill);
    co_await process;
    on_ns_ += prefill.ttft_ns;
    if (turn == 0) {
      timing_.prefill = prefill_alone(cell);
      co_return;
    }
    const DeviceCounters after = device_->counters();
    prefill.flash_write_bytes =
        static_cast<std::int64_t>(after.flash_write_bytes + after.unfolded_bytes -
                                  before.flash_write_bytes - before.unfolded_bytes);
    prefill.erases = static_cast<std::int64_t>(after.erases - before.erases);
    prefill.energy.flash_nj = device_->energy_nj(on_ns_) - flash_nj;
    prefill.ttft_ns += timing.resume_ns;
    const bool rebuilt = resumes_index_anew(timing);
    prefill.index_ns += rebuilt ? timing.index_rebuild_ns : 0;
    prefill.exposed_write_ns += timing.resume_ns - (rebuilt ? timing.index_rebuild_ns : 0);
    timing_.prefill = prefill;
  }

  /// Where idle time drops memory.
  [[nodiscard]] bool resumes_index_anew(const TurnTiming& timing) const {
    return options_.idle_drops == IdleDrops::kMemory &&
           timing.index_rebuild_ns < timing.index_read_ns;
  }

  /// What only memory holds as a turn begins, without the index, and the index.
  struct InMemory {
    std::int64_t entry_bytes = 0;
    std::int64_t index_bytes = 0;
  };
  [[nodiscard]] InMemory in_memory(std::int64_t turn) const {
    InMemory held;
    const std::int64_t tokens = prefill_range(plan_, turn).begin;
    for (const TargetLayer& target : layers_) {
      if (target.plan == nullptr) {
        held.entry_bytes += model_.state_bytes;
      } else if (target.full_attention && !target.uses_earlier_entries) {
        held.entry_bytes +=
            full_attention_bytes(plan_, target) * visible_tokens(tokens, target.sliding_window) /
            visible_tokens(plan_.prompt_tokens + plan_.steps, target.sliding_window);
      } else if (has_groups(target)) {
        const LayerPlan::Turns& turns = target.plan->turns;
        const auto at = static_cast<std::size_t>(turn - 1);
        held.entry_bytes += turns.memory_bytes[at] + turns.buffered_bytes[at];
        if (!pipeline_->index_on_flash()) held.index_bytes += turns.index_bytes[at];
      }
    }
    held.entry_bytes *= options_.batch;
    held.index_bytes *= options_.batch;
    return held;
  }

  /// Compares what the turn could begin with, and brings back what idle time took from memory.
  Process resume(std::int64_t turn, const PrefillCell& cell, TurnTiming& timing) {
    const InMemory held = in_memory(turn);
    std::vector<Extent> stored;
    for (const TargetLayer& target : layers_) {
      if (!has_groups(target)) continue;
      for (const std::uint64_t region : target.region) {
        for (const auto extents :
             {target.plan->turns.live_at(turn - 1), target.plan->turns.cached_at(turn - 1)}) {
          for (const Extent& extent : extents) {
            stored.push_back({region + extent.offset, extent.bytes});
          }
        }
      }
    }
    const Extent index{memory_region_, static_cast<std::uint64_t>(held.index_bytes)};
    const Extent entries{memory_region_ + aligned(index.bytes),
                         static_cast<std::uint64_t>(held.entry_bytes)};
    timing.index_read_ns = time_reads({index});
    timing.index_rebuild_ns = index_time(cell, timing.earlier_tokens);
    timing.recompute_ns = recompute_time(cell, prefill_range(plan_, turn));
    stored.push_back(entries);
    timing.restore_ns =
        time_reads(stored) + std::min(timing.index_read_ns, timing.index_rebuild_ns);
    timing.suspend_ns = suspend_ns_;
    timing.suspend_bytes = suspend_bytes_;
    if (options_.idle_drops != IdleDrops::kMemory) co_return;
    const SimTime begin = simulation_.now();
    const bool anew = resumes_index_anew(timing);
    const Process read = transfer(anew ? std::vector{entries} : std::vector{index, entries}, false);
    co_await read;
    if (anew) co_await delay(simulation_, timing.index_rebuild_ns);
    timing.resume_ns = simulation_.now() - begin;
    on_ns_ += timing.resume_ns;
  }

  /// The time between a turn and the one before.
  Process rest(std::int64_t turn) {
    suspend_ns_ = 0;
    suspend_bytes_ = 0;
    if (options_.idle_drops == IdleDrops::kMemory) {
      // Whether the index will be read is known only then, so that it is written.
      const InMemory held = in_memory(turn);
      const Extent index{memory_region_, static_cast<std::uint64_t>(held.index_bytes)};
      const Extent entries{memory_region_ + aligned(index.bytes),
                           static_cast<std::uint64_t>(held.entry_bytes)};
      const SimTime begin = simulation_.now();
      const Process written = transfer({index, entries}, true);
      co_await written;
      suspend_ns_ = simulation_.now() - begin;
      suspend_bytes_ = held.index_bytes + held.entry_bytes;
    }
    co_await delay(simulation_, options_.idle_ns);
  }

  /// Commands for the extents, at once.
  [[nodiscard]] StepWork transfer_work(std::vector<Extent> extents, TransferKind kind,
                                       const DeviceLimits& limits) const {
    std::erase_if(extents, [](const Extent& extent) { return extent.bytes == 0; });
    coalesce(extents);
    StepWork work{.layers = std::vector<LayerWork>(1)};
    to_commands(extents, kind == TransferKind::kWrites, limits, work.layers[0].commands(kind));
    return work;
  }

  Process transfer(std::vector<Extent> extents, bool write) {
    const TransferKind kind = write ? TransferKind::kWrites : TransferKind::kReads;
    const StepWork work = transfer_work(std::move(extents), kind, device_->limits());
    VirtualMachine machine(simulation_, *device_, work);
    co_await machine.run(transfer_step(machine, kind));
  }

  /// On a device that has done nothing.
  [[nodiscard]] SimTime time_reads(std::vector<Extent> extents) const {
    Simulation simulation;
    const std::unique_ptr<Device> device = spec_.make(simulation);
    const StepWork work = transfer_work(std::move(extents), TransferKind::kReads, device->limits());
    VirtualMachine machine(simulation, *device, work);
    SimTime end = 0;
    const Process process = time_transfer(simulation, machine, end);
    simulation.spawn(process);
    simulation.run();
    return end;
  }
  static Process time_transfer(const Simulation& simulation, VirtualMachine& machine,
                               SimTime& end) {
    co_await machine.run(transfer_step(machine, TransferKind::kReads));
    end = simulation.now();
  }

  Process run_steps(const std::vector<std::int64_t>& steps) {
    for (const std::int64_t step : steps) {
      prepare(step);
      const SimTime begin = simulation_.now();
      const SimTime computed_before = machine_.computed_ns();
      const SimTime slowed_before = machine_.slowed_ns();
      const SimTime busy_before = machine_.io_busy_ns();
      if (recorder_) recorder_->run(pipeline_->step(*recorder_));
      if (options_.timeline != nullptr) {
        options_.timeline->begin_step(step_of(step, 0), begin, cache_);
      }
      co_await machine_.run(pipeline_->step(machine_));
      StepTiming& timing = timing_.steps.emplace_back();
      timing.latency_ns = simulation_.now() - begin;
      timing.compute_ns = machine_.computed_ns() - computed_before;
      timing.exposed_io_ns = timing.latency_ns - timing.compute_ns;
      timing.busy_io_ns = machine_.io_busy_ns() - busy_before;
      count_commands(timing);
      check(timing, machine_.slowed_ns() - slowed_before);
      if (options_.timeline != nullptr) options_.timeline->end_step(timing, simulation_.now());
    }
  }

  void count_commands(StepTiming& timing) const {
    for (const LayerWork& layer : work_.layers) {
      for (const std::vector<IoCommand>& commands : layer.transfers) {
        for (const IoCommand& command : commands) {
          (command.write ? timing.write_requests : timing.read_requests) += 1;
          (command.write ? timing.write_bytes : timing.read_bytes) += command.bytes;
        }
      }
    }
  }

  /// Checks that the pipeline ran all work of the step once, and was idle only for I/O.
  void check(const StepTiming& timing, SimTime slowed_ns) {
    commands_expected_ += timing.read_requests + timing.write_requests;
    if (timing.compute_ns - slowed_ns != work_.compute_ns() ||
        machine_.commands_started() != commands_expected_ ||
        timing.exposed_io_ns > timing.busy_io_ns) {
      throw std::logic_error("the pipeline dropped or repeated work of a step");
    }
  }

  const IoPlan& plan_;
  const ModelSpec& model_;
  const PlatformSpec& platform_;
  const TimeOptions& options_;
  KnownPrefills* prefills_;
  const DeviceSpec& spec_;
  Simulation simulation_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Pipeline> pipeline_;
  StepWork work_;  ///< of the current step
  VirtualMachine machine_;
  PowerLimit power_limit_;
  /// Also runs each step, where a schedule is requested.
  std::optional<RecordingMachine> recorder_;
  std::vector<TargetLayer> layers_;
  std::vector<TargetLayer> prompt_layers_;  ///< with the regions that the prompt is written to
  /// With a shared prefix: what steps write of a layer, ascending.
  std::map<const LayerPlan*, std::vector<Extent>> rewritten_;
  // Of the layer being prepared.
  std::vector<Extent> reads_;
  std::vector<Extent> writes_;
  std::vector<Extent> index_reads_;
  std::vector<Extent> cache_reads_;
  std::vector<LayerCache> cache_;  ///< of the step being prepared, by layer
  std::int64_t commands_expected_ = 0;
  double kernel_bytes_ = 0;  ///< of DRAM, over the timed steps
  // As the timed steps begin, after what else the device has done.
  DeviceCounters before_steps_{};
  SimTime on_ns_ = 0;
  double flash_nj_before_ = 0;
  std::size_t reads_before_ = 0;
  std::size_t writes_before_ = 0;
  SimTime throttled_before_ = 0;
  std::vector<std::int64_t> decoded_;  ///< the plan's steps that are drawn from
  // Of a conversation.
  std::uint64_t memory_region_ = 0;  ///< what only memory held is written from here on
  SimTime suspend_ns_ = 0;
  std::int64_t suspend_bytes_ = 0;
  Timing blank_;  ///< what every turn's timing begins with
  std::vector<TurnTiming> turns_;
  std::vector<SustainedInterval> sustained_;
  Timing timing_;
};

}  // namespace

void Timing::add(const LayerPlan& plan, std::size_t step) {
  const LayerPlan::Accounting& counted = plan.accounting;
  requested_bytes += counted.requested_bytes[step];
  hit_bytes += counted.hit_bytes[step];
  missed_bytes += counted.missed_bytes[step];
  moved_bytes += counted.moved_bytes[step];
  best_hit_bytes += counted.best_hit_bytes[step];
  min_read_bytes +=
      counted.requested_bytes[step] - (plan.io.cache_paged ? 0 : counted.best_hit_bytes[step]);
}

Timing time_plan(const IoPlan& plan, const ModelSpec& model, const PlatformSpec& platform,
                 const DeviceSpec& device, const PartConfig<Pipeline>& pipeline,
                 const TimeOptions& options, KnownPrefills* prefills) {
  if (options.warm_up_steps >= plan.steps) {
    throw UserError({"", "warm_up_steps"}, "found " + std::to_string(options.warm_up_steps),
                    "fewer than the " + std::to_string(plan.steps) + " steps that were decided");
  }
  if (plan.kinds != model.kv_kinds()) throw std::logic_error("a plan for another model's shape");
  for (std::int64_t kind = 0; kind < std::ssize(plan.kinds); ++kind) {
    if (!plans_to_follow(plan, kind).empty()) continue;
    throw UserError({"", plan.system},
                    "every recorded layer is one of its dense_layers, so there is none to follow",
                    "a trace with a later layer");
  }
  if (options.shared_prefix && plan.turns.size() > 1) {
    throw UserError({"", "shared_prefix"}, "found true, for a conversation of several turns",
                    "false, or a trace of one prompt");
  }
  std::optional<IoPlan> projected;
  if (model.context_tokens > 0) projected = project_context(plan, model.context_tokens);
  const TimedCell cell{
      projected ? *projected : plan, model, platform, device, pipeline, options, prefills};
  Timing timing = StepTimer(cell).run();
  if (!plan.turns.empty() && options.prefill_chunk_tokens > 0) {
    TimeOptions turns = options;
    turns.schedule = nullptr;
    turns.timeline = nullptr;
    timing.turns =
        StepTimer({cell.plan, model, platform, device, pipeline, turns, prefills}).run_turns();
  }
  if (options.sustained_ns > 0) {
    if (options.prefill_chunk_tokens == 0) {
      throw UserError({"", "sustained_s"}, "found a time, without a prefill",
                      "0, or prefill_chunk_tokens above 0");
    }
    TimeOptions sustained = options;
    sustained.schedule = nullptr;
    sustained.timeline = nullptr;
    timing.sustained =
        StepTimer({cell.plan, model, platform, device, pipeline, sustained}).run_sustained();
  }
  return timing;
}

DramUse dram_use(const IoPlan& plan, const ModelSpec& model, const Pipeline& pipeline,
                 std::int64_t batch) {
  return dram_use(target_layers(plan, model), plan, model, pipeline, batch);
}

}  // namespace kvreplay
