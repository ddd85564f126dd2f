#include "sim/time/time_plan.hpp"

#include <algorithm>
#include <cassert>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/error.hpp"
#include "base/random.hpp"
#include "devices/commands.hpp"
#include "devices/schedule/schedule.hpp"
#include "sim/time/compute_cost.hpp"
#include "sim/time/context_projection.hpp"
#include "sim/time/machine/recording_machine.hpp"
#include "sim/time/machine/virtual_machine.hpp"
#include "sim/time/timeline.hpp"

namespace kvreplay {
namespace {

/// Regions begin at multiples of this, so that no two of them share a flash page.
constexpr std::uint64_t kRegionAlignment = 1 << 20;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment;
}

/// What layer i of the target model does: the plan that it follows, or none when it uses full
/// attention.
struct TargetLayer {
  const LayerPlan* plan = nullptr;
  // Device offsets by sequence; empty without a plan, and without an index on flash.
  std::vector<std::uint64_t> region;
  std::vector<std::uint64_t> index_region;
};

std::vector<const LayerPlan*> plans_to_follow(const IoPlan& plan) {
  std::vector<const LayerPlan*> plans;
  for (const LayerPlan& layer : plan.layers) {
    if (!layer.full_attention) plans.push_back(&layer);
  }
  return plans;
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

/// What time_plan() takes, with the plan as it is timed.
struct TimedCell {
  const IoPlan& plan;
  const ModelSpec& model;
  const PlatformSpec& platform;
  const DeviceSpec& device;
  const PartConfig<Pipeline>& pipeline;
  const TimeOptions& options;
};

class StepTimer {
 public:
  /// Everything that `cell` refers to must outlive this object.
  explicit StepTimer(const TimedCell& cell)
      : plan_(cell.plan),
        model_(cell.model),
        platform_(cell.platform),
        options_(cell.options),
        device_(cell.device.make(simulation_)),
        pipeline_(cell.pipeline.make({})),
        work_{.layers = std::vector<LayerWork>(static_cast<std::size_t>(model_.layers))},
        machine_(simulation_, *device_, work_) {
    if (options_.schedule != nullptr) {
      *options_.schedule = Schedule(device_->limits(), plan_.system + " on " + cell.device.name);
      recorder_.emplace(*options_.schedule, work_);
    }
    if (options_.timeline != nullptr) machine_.observe(*options_.timeline);
    lay_out();
    timing_.batch = options_.batch;
    timing_.dram = dram_use();
    timing_.stored_bits = stored_bits();
  }

  Timing run() && {
    const std::int64_t usable = plan_.steps - options_.warm_up_steps;
    const std::vector<std::int64_t> steps = draw_steps(usable, options_.timed_steps, options_.seed);
    const Process process = decode(steps);
    simulation_.spawn(process);
    simulation_.run();
    if (!process.done())
      throw std::logic_error("the pipeline waits for something that never happens");

    const DeviceCounters counters = device_->counters();
    timing_.flash_read_bytes = static_cast<std::int64_t>(counters.flash_read_bytes);
    timing_.flash_write_bytes = static_cast<std::int64_t>(counters.flash_write_bytes);
    timing_.erases = static_cast<std::int64_t>(counters.erases);
    timing_.wrapped_write_bytes = static_cast<std::int64_t>(counters.wrapped_write_bytes);
    timing_.energy = energy();
    timing_.attended_tokens /=
        static_cast<double>(std::ssize(steps) * options_.batch * model_.layers);
    if (static_cast<std::int64_t>(counters.host_read_bytes) < timing_.missed_bytes) {
      throw std::logic_error("the device read fewer bytes than the plan misses");
    }
    return std::move(timing_);
  }

 private:
  /// Gives every (layer, sequence) its region; the sequences of a layer lie side by side.
  void lay_out() {
    const std::vector<const LayerPlan*> plans = plans_to_follow(plan_);
    std::uint64_t offset = 0;
    for (std::int64_t i = 0; i < model_.layers; ++i) {
      TargetLayer& layer = layers_.emplace_back();
      if (i < plan_.full_attention_layers) continue;
      layer.plan = plans[static_cast<std::size_t>(i % std::ssize(plans))];
      for (std::int64_t j = 0; j < options_.batch; ++j) {
        layer.region.push_back(offset);
        offset += aligned(layer.plan->io.region_bytes);
        if (pipeline_->index_on_flash()) {
          layer.index_region.push_back(offset);
          offset += aligned(static_cast<std::uint64_t>(layer.plan->dram.index_bytes));
        }
        timing_.prompt_write_bytes += static_cast<std::int64_t>(layer.plan->io.prompt_write_bytes);
        timing_.region_bytes += static_cast<std::int64_t>(layer.plan->io.region_bytes);
        timing_.live_bytes += static_cast<std::int64_t>(layer.plan->io.live_bytes);
      }
    }
  }

  [[nodiscard]] DramUse dram_use() const {
    DramUse use;
    use.weights_bytes = model_.weight_bytes();
    std::int64_t max_fetched_bytes = 0;
    std::int64_t max_index_bytes = 0;
    std::int64_t max_paged_cache_bytes = 0;
    for (const TargetLayer& layer : layers_) {
      if (layer.plan == nullptr) {
        use.full_attention_bytes += plan_.layers.front().dram.entries_bytes;
        continue;
      }
      max_index_bytes = std::max(max_index_bytes, layer.plan->dram.index_bytes);
      if (!pipeline_->index_on_flash()) use.index_bytes += layer.plan->dram.index_bytes;
      if (layer.plan->io.cache_paged) {
        max_paged_cache_bytes = std::max(max_paged_cache_bytes, layer.plan->dram.cache_bytes);
      } else {
        use.cache_bytes += layer.plan->dram.cache_bytes;
      }
      use.buffered_bytes += layer.plan->dram.buffered_bytes;
      max_fetched_bytes = std::max(max_fetched_bytes, layer.plan->dram.fetched_bytes);
    }
    if (pipeline_->index_on_flash()) use.index_bytes = max_index_bytes;
    use.cache_bytes += 2 * max_paged_cache_bytes;  // of the attending layer and the next one
    use.read_buffer_bytes = max_fetched_bytes * pipeline_->read_buffers();
    for (std::int64_t* bytes : {&use.cache_bytes, &use.full_attention_bytes, &use.index_bytes,
                                &use.buffered_bytes, &use.read_buffer_bytes}) {
      *bytes *= options_.batch;
    }
    return use;
  }

  /// Of the layers that follow a plan.
  [[nodiscard]] double stored_bits() const {
    const double elements = 2.0 * static_cast<double>(model_.kv_heads * model_.head_dim) *
                            static_cast<double>(plan_.prompt_tokens + plan_.steps);
    double bits = 0;
    double layers = 0;
    for (const TargetLayer& layer : layers_) {
      if (layer.plan == nullptr) continue;
      bits += 8 * static_cast<double>(layer.plan->dram.entries_bytes) / elements;
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
    const SimTime on_ns = compute_ns + waiting_ns;
    Energy energy;
    // 1 W for 1 ns = 1 nJ, 1 pJ = 1e-3 nJ.
    if (platform_.compute_power_w > 0 && platform_.waiting_power_w > 0) {
      energy.compute_nj = platform_.compute_power_w * static_cast<double>(compute_ns) +
                          platform_.waiting_power_w * static_cast<double>(waiting_ns);
    }
    if (platform_.dram_pj_bit > 0 && platform_.dram_idle_w > 0) {
      energy.dram_nj = platform_.dram_pj_bit * 8 * dram_bytes * 1e-3 +
                       platform_.dram_idle_w * static_cast<double>(on_ns);
    }
    energy.flash_nj = device_->energy_nj(on_ns);
    return energy;
  }

  /// The plan's step that sequence j follows when sequence 0 follows `step` (after the warm-up).
  [[nodiscard]] std::int64_t step_of(std::int64_t step, std::int64_t sequence) const {
    const std::int64_t usable = plan_.steps - options_.warm_up_steps;
    const std::int64_t shift = sequence * usable / options_.batch;
    return options_.warm_up_steps + (step + shift) % usable;
  }

  /// Fills work_ with the work of the step, and counts it.
  void prepare(std::int64_t step) {
    cache_.resize(layers_.size());
    work_.head_ns = head_compute(model_, platform_, options_.batch);
    kernel_bytes_ += model_.bytes_of(model_.head_weights());
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const TargetLayer& target = layers_[i];
      LayerWork& work = work_.layers[i];
      LayerLoad load{.batch = options_.batch};
      const LayerCache before{timing_.hit_bytes, timing_.missed_bytes};
      for (auto* extents : {&reads_, &writes_, &index_reads_, &cache_reads_}) extents->clear();
      for (std::int64_t j = 0; j < options_.batch; ++j) {
        add_sequence(target, j, step_of(step, j), load);
      }
      const LayerCompute compute = layer_compute(model_, platform_, load);
      work.project_query_ns =
          compute.project_ns * model_.query_heads / (model_.query_heads + 2 * model_.kv_heads);
      work.project_key_value_ns = compute.project_ns - work.project_query_ns;
      work.score_ns = compute.score_ns;
      work.attend_ns = compute.attend_ns;
      make_commands(reads_, false, work.commands(TransferKind::kReads));
      make_commands(writes_, true, work.commands(TransferKind::kWrites));
      make_commands(index_reads_, false, work.commands(TransferKind::kIndexReads));
      make_commands(cache_reads_, false, work.commands(TransferKind::kCacheReads));
      timing_.attended_tokens += load.attended_tokens;
      kernel_bytes_ += compute.dram_bytes;
      cache_[i] = {timing_.hit_bytes - before.hit_bytes,
                   timing_.missed_bytes - before.missed_bytes};
    }
  }

  void make_commands(std::span<const Extent> extents, bool write,
                     std::vector<IoCommand>& commands) const {
    commands.clear();
    to_commands(extents, write, device_->limits(), commands);
  }

  void add_sequence(const TargetLayer& target, std::int64_t sequence, std::int64_t step,
                    LayerLoad& load) {
    const bool whole = target.plan == nullptr;
    const LayerPlan& plan = whole ? plan_.layers.front() : *target.plan;
    const auto at = static_cast<std::size_t>(step);
    // The step's own token is attended to as well.
    const double attended = whole ? static_cast<double>(plan_.prompt_tokens + step + 1)
                                  : plan.compute.attended_tokens[at];
    load.attended_tokens += attended;
    load.attended_bytes += attended * static_cast<double>(plan.dram.entries_bytes) /
                           static_cast<double>(plan_.prompt_tokens + plan_.steps);
    if (whole) return;
    load.score_flops += static_cast<double>(plan.compute.score_flops[at]);
    load.score_bytes += static_cast<double>(plan.compute.score_bytes[at]);
    const LayerPlan::Accounting& counted = plan.accounting;
    timing_.requested_bytes += counted.requested_bytes[at];
    timing_.hit_bytes += counted.hit_bytes[at];
    timing_.missed_bytes += counted.missed_bytes[at];
    timing_.moved_bytes += counted.moved_bytes[at];
    timing_.best_hit_bytes += counted.best_hit_bytes[at];
    timing_.min_read_bytes +=
        counted.requested_bytes[at] - (plan.io.cache_paged ? 0 : counted.best_hit_bytes[at]);
    const std::uint64_t region = target.region[static_cast<std::size_t>(sequence)];
    for (const Extent& read : plan.io.reads_at(step)) {
      reads_.push_back({region + read.offset, read.bytes});
    }
    for (const Extent& write : plan.io.writes_at(step)) {
      writes_.push_back({region + write.offset, write.bytes});
    }
    for (const Extent& read : plan.io.cache_reads_at(step)) {
      cache_reads_.push_back({region + read.offset, read.bytes});
    }
    if (!target.index_region.empty()) {
      index_reads_.push_back({target.index_region[static_cast<std::size_t>(sequence)],
                              static_cast<std::uint64_t>(plan.compute.score_bytes[at])});
    }
  }

  Process decode(const std::vector<std::int64_t>& steps) {
    for (const std::int64_t step : steps) {
      prepare(step);
      const SimTime begin = simulation_.now();
      const SimTime computed_before = machine_.computed_ns();
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
      check(timing);
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
  void check(const StepTiming& timing) {
    commands_expected_ += timing.read_requests + timing.write_requests;
    if (timing.compute_ns != work_.compute_ns() ||
        machine_.commands_started() != commands_expected_ ||
        timing.exposed_io_ns > timing.busy_io_ns) {
      throw std::logic_error("the pipeline dropped or repeated work of a step");
    }
  }

  const IoPlan& plan_;
  const ModelSpec& model_;
  const PlatformSpec& platform_;
  const TimeOptions& options_;
  Simulation simulation_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Pipeline> pipeline_;
  StepWork work_;  ///< of the current step
  VirtualMachine machine_;
  /// Also runs each step, where a schedule is requested.
  std::optional<RecordingMachine> recorder_;
  std::vector<TargetLayer> layers_;
  // Of the layer being prepared.
  std::vector<Extent> reads_;
  std::vector<Extent> writes_;
  std::vector<Extent> index_reads_;
  std::vector<Extent> cache_reads_;
  std::vector<LayerCache> cache_;  ///< of the step being prepared, by layer
  std::int64_t commands_expected_ = 0;
  double kernel_bytes_ = 0;  ///< of DRAM, over the timed steps
  Timing timing_;
};

}  // namespace

Timing time_plan(const IoPlan& plan, const ModelSpec& model, const PlatformSpec& platform,
                 const DeviceSpec& device, const PartConfig<Pipeline>& pipeline,
                 const TimeOptions& options) {
  if (options.warm_up_steps >= plan.steps) {
    throw UserError({"", "warm_up_steps"}, "found " + std::to_string(options.warm_up_steps),
                    "fewer than the " + std::to_string(plan.steps) + " steps that were decided");
  }
  if (plan.shape != model.kv_shape()) throw std::logic_error("a plan for another model's shape");
  if (plans_to_follow(plan).empty()) {
    throw UserError({"", plan.system},
                    "every recorded layer is one of its dense_layers, so there is none to follow",
                    "a trace with a later layer");
  }
  if (model.context_tokens == 0) {
    return StepTimer({plan, model, platform, device, pipeline, options}).run();
  }
  const IoPlan projected = project_context(plan, model.context_tokens);
  return StepTimer({projected, model, platform, device, pipeline, options}).run();
}

}  // namespace kvreplay
