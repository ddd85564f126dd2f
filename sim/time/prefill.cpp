#include "sim/time/prefill.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <utility>

#include "devices/commands.hpp"
#include "devices/schedule/schedule.hpp"
#include "sim/time/compute_cost.hpp"
#include "sim/time/machine/recording_machine.hpp"
#include "sim/time/machine/virtual_machine.hpp"
#include "sim/time/power_limit.hpp"
#include "sim/time/timeline.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kHalfBytes = 2;

/// Of one layer, for a batch.
IndexWork index_work(const PrefillCell& cell, const LayerPlan& plan, std::int64_t tokens) {
  const LayerPlan::Prompt& prompt = plan.prompt;
  const auto batch = static_cast<double>(cell.batch);
  const double stored = cell.platform.similarity_bytes * static_cast<double>(prompt.similarities);
  if (tokens == cell.plan.prompt_tokens) {
    return {.batch = cell.batch,
            .flops = batch * static_cast<double>(prompt.flops + prompt.square_flops),
            .bytes = batch * (static_cast<double>(prompt.bytes) + stored),
            .factorise_flops = batch * static_cast<double>(prompt.factorise_flops)};
  }
  const double ratio = static_cast<double>(tokens) / static_cast<double>(cell.plan.prompt_tokens);
  return {
      .batch = cell.batch,
      .flops =
          batch * ratio *
          (static_cast<double>(prompt.flops) + ratio * static_cast<double>(prompt.square_flops)),
      .bytes = batch * ratio *
               (static_cast<double>(prompt.bytes) + stored * (prompt.square_flops > 0 ? ratio : 1)),
      .factorise_flops = batch * ratio * static_cast<double>(prompt.factorise_flops)};
}

/// A prompt as a step of a machine: layer u of the step is chunk u % chunks of layer u / chunks.
class PromptWorkload {
 public:
  PromptWorkload(const PrefillCell& cell, PrefillRange range, const DeviceLimits& limits)
      : cell_(cell), range_(range) {
    const std::int64_t tokens = range_.end - range_.begin;
    chunks_ = std::max<std::int64_t>(1, (tokens + cell.chunk_tokens - 1) / cell.chunk_tokens);
    for (std::int64_t layer = 0; layer < cell.model.layers; ++layer) {
      std::int64_t written = range_.begin;
      for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
        const std::int64_t begin = range_.begin + chunk * cell.chunk_tokens;
        const std::int64_t end = std::min(range_.end, begin + cell.chunk_tokens);
        add_chunk(layer, begin, end, written, limits);
        written = end;
      }
    }
    work_.head_ns = head_compute(cell.model, cell.platform, cell.batch);
    kernel_bytes_ += cell.model.bytes_of(cell.model.head_weights());
  }

  [[nodiscard]] const StepWork& work() const { return work_; }
  [[nodiscard]] std::int64_t chunks() const { return chunks_; }
  [[nodiscard]] std::int64_t layers() const { return cell_.model.layers; }
  [[nodiscard]] bool is_later_turn() const { return cell_.turn > 0; }
  /// Of earlier entries, that cross the link.
  [[nodiscard]] std::int64_t read_bytes() const { return read_bytes_; }
  [[nodiscard]] SimTime index_ns() const { return index_ns_; }
  /// Of DRAM, moved by kernels.
  [[nodiscard]] double kernel_bytes() const { return kernel_bytes_; }

  /// What the states between layers take: of the whole prompt where one layer is done before the
  /// next, or of a chunk where every layer's entries stay anyway.
  [[nodiscard]] std::int64_t state_bytes() const {
    const std::int64_t tokens = writes_ ? range_.end - range_.begin
                                        : std::min(range_.end - range_.begin, cell_.chunk_tokens);
    return cell_.batch * tokens * cell_.model.hidden_size * kHalfBytes;
  }
  /// The entries of the prompt that later chunks of the layer attend to.
  [[nodiscard]] std::int64_t entry_bytes(std::int64_t number) const {
    const LayerSpec& layer = cell_.model.layer(number);
    const TargetLayer& target = at(number);
    if (target.plan == nullptr || target.uses_earlier_entries) return 0;
    const std::int64_t tokens = visible_tokens(range_.end, window_of(target));
    return cell_.batch * tokens * layer.kv_heads * layer.head_dim * kHalfBytes * vectors_of(layer);
  }
  /// What of a layer stays in memory when its prompt is done and written.
  [[nodiscard]] std::int64_t kept_bytes(std::int64_t number) const {
    const TargetLayer& target = at(number);
    if (target.plan == nullptr) return cell_.batch * cell_.model.state_bytes;
    if (target.uses_earlier_entries) return 0;
    if (target.full_attention) return cell_.batch * full_attention_bytes(cell_.plan, target);
    const LayerPlan& plan = *target.plan;
    std::int64_t bytes = plan.dram.buffered_bytes;
    if (!cell_.index_on_flash) bytes += plan.dram.index_bytes;
    if (plan.io.prompt_writes.empty()) bytes += plan.dram.cache_bytes;
    return cell_.batch * bytes;
  }

 private:
  [[nodiscard]] const TargetLayer& at(std::int64_t layer) const {
    return cell_.layers[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] static std::int64_t window_of(const TargetLayer& layer) {
    if (layer.plan == nullptr) return 0;
    return layer.full_attention ? layer.sliding_window : layer.plan->sliding_window;
  }
  [[nodiscard]] std::int64_t vectors_of(const LayerSpec& layer) const {
    return cell_.plan.kinds[static_cast<std::size_t>(layer.kind)].one_vector ? 1 : 2;
  }

  void add_chunk(std::int64_t number, std::int64_t begin, std::int64_t end, std::int64_t written,
                 const DeviceLimits& limits) {
    const TargetLayer& target = at(number);
    LayerWork& work = work_.layers.emplace_back();
    const ChunkCompute compute = chunk_compute(cell_.model, cell_.platform,
                                               {.batch = cell_.batch,
                                                .begin = begin,
                                                .tokens = end - begin,
                                                .layer = number,
                                                .sliding_window = window_of(target),
                                                .vectors = vectors_of(cell_.model.layer(number))});
    work.attend_ns = compute.ns;
    kernel_bytes_ += compute.dram_bytes;
    if (!has_groups(target)) return;
    const LayerPlan& plan = *target.plan;
    if (cell_.turn > 0) {
      add_later_chunk(target, begin, end, limits, work);
      return;
    }
    if (end == range_.end) {
      const IndexWork index = index_work(cell_, plan, end);
      work.score_ns = index_compute(cell_.platform, index);
      index_ns_ += work.score_ns;
      kernel_bytes_ += index.bytes;
    }
    const std::vector<std::int64_t>& ready = plan.io.prompt_ready;
    const auto first = std::upper_bound(ready.begin(), ready.end(), written) - ready.begin();
    const auto last = std::upper_bound(ready.begin(), ready.end(), end) - ready.begin();
    std::vector<Extent> extents;
    for (const std::uint64_t region : target.region) {
      for (auto i = first; i < last; ++i) {
        const Extent& extent = plan.io.prompt_writes[static_cast<std::size_t>(i)];
        extents.push_back({region + extent.offset, extent.bytes});
      }
    }
    coalesce(extents);
    to_commands(extents, true, limits, work.commands(TransferKind::kWrites));
    writes_ = writes_ || !extents.empty();
  }

  /// A chunk of a later turn reads earlier entries and writes what its tokens' steps write.
  void add_later_chunk(const TargetLayer& target, std::int64_t begin, std::int64_t end,
                       const DeviceLimits& limits, LayerWork& work) {
    const LayerPlan& plan = *target.plan;
    const bool first = begin == range_.begin;
    const std::int64_t turn = cell_.turn - 1;
    std::vector<Extent> reads;
    std::vector<Extent> writes;
    double score_flops = 0;
    double score_bytes = 0;
    for (const std::uint64_t region : target.region) {
      const auto add = [&](std::span<const Extent> extents, std::vector<Extent>& all) {
        for (const Extent& extent : extents) all.push_back({region + extent.offset, extent.bytes});
      };
      const bool lacks_cache = cell_.cache_dropped || plan.io.cache_paged;
      if (first && lacks_cache) add(plan.turns.cached_at(turn), reads);
      if (first && !cell_.reads_selected) add(plan.turns.live_at(turn), reads);
      for (std::int64_t token = begin; token < end; ++token) {
        const std::int64_t step = token - cell_.plan.prompt_tokens;
        add(plan.io.writes_at(step), writes);
        if (!cell_.reads_selected) continue;
        const auto at = static_cast<std::size_t>(step);
        add(plan.io.reads_at(step), reads);
        score_flops += static_cast<double>(plan.compute.score_flops[at]);
        score_bytes += static_cast<double>(plan.compute.score_bytes[at]);
      }
    }
    work.score_ns = index_compute(
        cell_.platform, {.batch = cell_.batch, .flops = score_flops, .bytes = score_bytes});
    index_ns_ += work.score_ns;
    kernel_bytes_ += score_bytes;
    // What several tokens select is read once.
    coalesce(reads);
    to_commands(reads, false, limits, work.commands(TransferKind::kReads), plan.io.merge_reads);
    coalesce(writes);
    to_commands(writes, true, limits, work.commands(TransferKind::kWrites));
    writes_ = writes_ || !writes.empty();
    for (const IoCommand& command : work.commands(TransferKind::kReads)) {
      read_bytes_ += command.bytes;
    }
  }

  const PrefillCell& cell_;
  PrefillRange range_;
  std::int64_t read_bytes_ = 0;
  std::int64_t chunks_ = 1;
  StepWork work_;
  SimTime index_ns_ = 0;
  double kernel_bytes_ = 0;
  bool writes_ = false;
};

/// Counts what waits in memory, and shows the prefill in a timeline.
class PrefillObserver final : public MachineObserver {
 public:
  PrefillObserver(const PromptWorkload& workload, Timeline* timeline)
      : workload_(workload), timeline_(timeline), unwritten_(workload.work().layers.size()) {
    // What earlier turns left.
    for (std::int64_t layer = 0; workload.is_later_turn() && layer < workload.layers(); ++layer) {
      kept_bytes_ += workload.kept_bytes(layer);
    }
  }

  void on_compute(Kernels kernels, std::size_t unit, SimTime begin, SimTime duration) override {
    const bool head = unit == Machine::kNoLayer;
    const auto layer = head ? -1 : static_cast<std::int64_t>(unit) / workload_.chunks();
    const bool index = kernels == Kernels::kScore;
    if (head || (!index && static_cast<std::int64_t>(unit) % workload_.chunks() == 0)) {
      const std::int64_t finished = head ? workload_.layers() : layer;
      std::int64_t entries = head ? 0 : workload_.entry_bytes(layer);
      if (workload_.is_later_turn()) {
        // Those of the next layer arrive meanwhile.
        if (!head && layer + 1 < workload_.layers()) entries += workload_.entry_bytes(layer + 1);
      } else if (finished > 0) {
        kept_bytes_ += workload_.kept_bytes(finished - 1);
      }
      peak_bytes_ = std::max(peak_bytes_, kept_bytes_ + entries + waiting_bytes_);
    }
    if (timeline_ == nullptr || duration == 0) return;
    timeline_->add_prefill_compute(
        head ? "LM head" : "layer " + std::to_string(layer) + (index ? " index" : " prefill"),
        begin, duration);
  }
  void on_transfer_begin(TransferKind kind, std::size_t unit, SimTime now,
                         std::span<const IoCommand> commands) override {
    if (commands.empty() || kind != TransferKind::kWrites) return;
    Waiting& waiting = unwritten_[unit];
    waiting = {now, 0, std::ssize(commands)};
    for (const IoCommand& command : commands) waiting.bytes += command.bytes;
    waiting_bytes_ += waiting.bytes;
  }
  void on_transfer_end(TransferKind kind, std::size_t unit, SimTime now) override {
    if (kind != TransferKind::kWrites) return;
    const Waiting& waiting = unwritten_[unit];
    waiting_bytes_ -= waiting.bytes;
    if (timeline_ == nullptr) return;
    const std::int64_t layer = static_cast<std::int64_t>(unit) / workload_.chunks();
    timeline_->add_prefill_write("layer " + std::to_string(layer) + " entries", waiting.begin,
                                 now - waiting.begin, waiting.bytes, waiting.commands);
  }
  void on_commands(std::size_t, SimTime) override {}

  [[nodiscard]] std::int64_t peak_bytes() const { return peak_bytes_ + workload_.state_bytes(); }

 private:
  struct Waiting {
    SimTime begin = 0;
    std::int64_t bytes = 0;
    std::int64_t commands = 0;
  };
  const PromptWorkload& workload_;
  Timeline* timeline_;
  std::vector<Waiting> unwritten_;  // by unit
  std::int64_t kept_bytes_ = 0;     // of finished layers
  std::int64_t waiting_bytes_ = 0;  // computed and not yet written
  std::int64_t peak_bytes_ = 0;
};

}  // namespace

PrefillRange prefill_range(const IoPlan& plan, std::int64_t turn) {
  if (turn == 0) return {0, plan.prompt_tokens};
  const TurnSteps& steps = plan.turns.at(static_cast<std::size_t>(turn));
  return {plan.prompt_tokens + steps.begin, plan.prompt_tokens + steps.generated_begin};
}

SimTime recompute_time(const PrefillCell& cell, PrefillRange fresh) {
  PrefillCell prompt = cell;
  prompt.turn = 0;
  // Both have the index of the last token.
  const auto time = [&](std::int64_t begin) {
    return PromptWorkload(prompt, {begin, fresh.end}, DeviceLimits{}).work().compute_ns();
  };
  return time(0) - time(fresh.begin) + index_time(cell, fresh.end);
}

SimTime index_time(const PrefillCell& cell, std::int64_t tokens) {
  SimTime sum = 0;
  for (const TargetLayer& target : cell.layers) {
    if (!has_groups(target)) continue;
    const IndexWork index = index_work(cell, *target.plan, tokens);
    sum += index_compute(cell.platform, index);
  }
  return sum;
}

StepTask prefill_step(Machine& machine, bool reads) {
  if (reads) machine.start(TransferKind::kReads, 0);
  for (std::size_t unit = 0; unit < machine.layers(); ++unit) {
    if (reads) {
      if (unit + 1 < machine.layers()) machine.start(TransferKind::kReads, unit + 1);
      co_await machine.wait(TransferKind::kReads, unit);
    }
    co_await machine.compute(Kernels::kAttend, unit);
    co_await machine.compute(Kernels::kScore, unit);
    machine.start(TransferKind::kWrites, unit);
  }
  co_await machine.compute_head();
  for (std::size_t unit = 0; unit < machine.layers(); ++unit) {
    co_await machine.wait(TransferKind::kWrites, unit);
  }
}

Process run_prefill(PrefillCell cell, Simulation& simulation, Device& device, Prefill& prefill) {
  const PromptWorkload workload(cell, prefill_range(cell.plan, cell.turn), device.limits());
  const bool reads = cell.turn > 0;
  VirtualMachine machine(simulation, device, workload.work());
  PrefillObserver observer(workload, cell.timeline);
  machine.observe(observer);
  if (cell.power_limit != nullptr) machine.limit_power(*cell.power_limit);
  const SimTime throttled = cell.power_limit == nullptr ? 0 : cell.power_limit->throttled_ns();
  if (cell.schedule != nullptr) {
    *cell.schedule = Schedule(device.limits(), "the prompt of " + cell.plan.system);
    RecordingMachine recorder(*cell.schedule, workload.work());
    recorder.run(prefill_step(recorder));
  }
  const SimTime begin = simulation.now();
  co_await machine.run(prefill_step(machine, reads));
  prefill.ttft_ns = simulation.now() - begin;
  prefill.index_ns = workload.index_ns();
  prefill.compute_ns = machine.computed_ns() - prefill.index_ns;
  prefill.exposed_write_ns = prefill.ttft_ns - machine.computed_ns();
  prefill.busy_write_ns = machine.io_busy_ns();
  prefill.dram_bytes = observer.peak_bytes();
  std::int64_t read_commands = 0;
  for (const LayerWork& layer : workload.work().layers) {
    read_commands += std::ssize(layer.commands(TransferKind::kReads));
    for (const IoCommand& command : layer.commands(TransferKind::kWrites)) {
      prefill.write_bytes += command.bytes;
      prefill.write_commands += 1;
    }
  }
  if (machine.computed_ns() - machine.slowed_ns() != workload.work().compute_ns() ||
      machine.commands_started() != read_commands + prefill.write_commands) {
    throw std::logic_error("the prefill dropped or repeated work");
  }
  prefill.read_bytes = workload.read_bytes();
  prefill.energy = energy_of(
      cell.platform, machine.computed_ns(), prefill.exposed_write_ns,
      workload.kernel_bytes() + static_cast<double>(prefill.read_bytes + prefill.write_bytes),
      device.energy_nj(prefill.ttft_ns),
      cell.power_limit == nullptr ? 0 : cell.power_limit->throttled_ns() - throttled);
}

Prefill time_prefill(const PrefillCell& cell, const DeviceSpec& spec) {
  Simulation simulation;
  const std::unique_ptr<Device> device = spec.make(simulation);
  Prefill prefill;
  PowerLimit limit(cell.platform);
  PrefillCell limited = cell;
  limited.power_limit = &limit;
  const Process process = run_prefill(limited, simulation, *device, prefill);
  simulation.spawn(process);
  simulation.run();
  if (!process.done()) {
    throw std::logic_error("the prefill waits for something that never happens");
  }
  const DeviceCounters counters = device->counters();
  prefill.flash_write_bytes =
      static_cast<std::int64_t>(counters.flash_write_bytes + counters.unfolded_bytes);
  prefill.erases = static_cast<std::int64_t>(counters.erases);
  prefill.energy.flash_nj = device->energy_nj(prefill.ttft_ns);
  return prefill;
}

}  // namespace kvreplay
