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
#include "sim/time/timeline.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kHalfBytes = 2;

/// A prompt as a step of a machine: layer u of the step is chunk u % chunks of layer u / chunks.
class PromptWorkload {
 public:
  PromptWorkload(const PrefillCell& cell, const DeviceLimits& limits) : cell_(cell) {
    const std::int64_t prompt = cell.plan.prompt_tokens;
    chunks_ = std::max<std::int64_t>(1, (prompt + cell.chunk_tokens - 1) / cell.chunk_tokens);
    for (std::int64_t layer = 0; layer < cell.model.layers; ++layer) {
      std::int64_t written = 0;
      for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
        const std::int64_t begin = chunk * cell.chunk_tokens;
        const std::int64_t end = std::min(prompt, begin + cell.chunk_tokens);
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
  [[nodiscard]] SimTime index_ns() const { return index_ns_; }
  /// Of DRAM, moved by kernels.
  [[nodiscard]] double kernel_bytes() const { return kernel_bytes_; }

  /// What the states between layers take: of the whole prompt where one layer is done before the
  /// next, or of a chunk where every layer's entries stay anyway.
  [[nodiscard]] std::int64_t state_bytes() const {
    const std::int64_t tokens =
        writes_ ? cell_.plan.prompt_tokens : std::min(cell_.plan.prompt_tokens, cell_.chunk_tokens);
    return cell_.batch * tokens * cell_.model.hidden_size * kHalfBytes;
  }
  /// The entries of the prompt that later chunks of the layer attend to.
  [[nodiscard]] std::int64_t entry_bytes(std::int64_t number) const {
    const LayerSpec& layer = cell_.model.layer(number);
    const TargetLayer& target = at(number);
    if (target.plan == nullptr || target.uses_earlier_entries) return 0;
    const std::int64_t tokens = visible_tokens(cell_.plan.prompt_tokens, window_of(target));
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
    if (end == cell_.plan.prompt_tokens) {
      const LayerPlan::Prompt& prompt = plan.prompt;
      const auto batch = static_cast<double>(cell_.batch);
      work.score_ns = index_compute(cell_.platform,
                                    batch * static_cast<double>(prompt.flops + prompt.square_flops),
                                    batch * static_cast<double>(prompt.bytes));
      index_ns_ += work.score_ns;
      kernel_bytes_ += batch * static_cast<double>(prompt.bytes);
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

  const PrefillCell& cell_;
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
      : workload_(workload), timeline_(timeline), unwritten_(workload.work().layers.size()) {}

  void on_compute(Kernels kernels, std::size_t unit, SimTime begin, SimTime duration) override {
    const bool head = unit == Machine::kNoLayer;
    const auto layer = head ? -1 : static_cast<std::int64_t>(unit) / workload_.chunks();
    const bool index = kernels == Kernels::kScore;
    if (head || (!index && static_cast<std::int64_t>(unit) % workload_.chunks() == 0)) {
      const std::int64_t finished = head ? workload_.layers() : layer;
      if (finished > 0) kept_bytes_ += workload_.kept_bytes(finished - 1);
      const std::int64_t entries = head ? 0 : workload_.entry_bytes(layer);
      peak_bytes_ = std::max(peak_bytes_, kept_bytes_ + entries + waiting_bytes_);
    }
    if (timeline_ == nullptr || duration == 0) return;
    timeline_->add_prefill_compute(
        head ? "LM head" : "layer " + std::to_string(layer) + (index ? " index" : " prefill"),
        begin, duration);
  }
  void on_transfer_begin(TransferKind, std::size_t unit, SimTime now,
                         std::span<const IoCommand> commands) override {
    if (commands.empty()) return;
    Waiting& waiting = unwritten_[unit];
    waiting = {now, 0, std::ssize(commands)};
    for (const IoCommand& command : commands) waiting.bytes += command.bytes;
    waiting_bytes_ += waiting.bytes;
  }
  void on_transfer_end(TransferKind, std::size_t unit, SimTime now) override {
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

StepTask prefill_step(Machine& machine) {
  for (std::size_t unit = 0; unit < machine.layers(); ++unit) {
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
  const PromptWorkload workload(cell, device.limits());
  VirtualMachine machine(simulation, device, workload.work());
  PrefillObserver observer(workload, cell.timeline);
  machine.observe(observer);
  if (cell.schedule != nullptr) {
    *cell.schedule = Schedule(device.limits(), "the prompt of " + cell.plan.system);
    RecordingMachine recorder(*cell.schedule, workload.work());
    recorder.run(prefill_step(recorder));
  }
  const SimTime begin = simulation.now();
  co_await machine.run(prefill_step(machine));
  prefill.ttft_ns = simulation.now() - begin;
  prefill.index_ns = workload.index_ns();
  prefill.compute_ns = machine.computed_ns() - prefill.index_ns;
  prefill.exposed_write_ns = prefill.ttft_ns - machine.computed_ns();
  prefill.busy_write_ns = machine.io_busy_ns();
  prefill.dram_bytes = observer.peak_bytes();
  for (const LayerWork& layer : workload.work().layers) {
    for (const IoCommand& command : layer.commands(TransferKind::kWrites)) {
      prefill.write_bytes += command.bytes;
      prefill.write_commands += 1;
    }
  }
  if (machine.computed_ns() != workload.work().compute_ns() ||
      machine.commands_started() != prefill.write_commands) {
    throw std::logic_error("the prefill dropped or repeated work");
  }
  prefill.energy = energy_of(cell.platform, machine.computed_ns(), prefill.exposed_write_ns,
                             workload.kernel_bytes() + static_cast<double>(prefill.write_bytes),
                             device.energy_nj(prefill.ttft_ns));
}

Prefill time_prefill(const PrefillCell& cell, const DeviceSpec& spec) {
  Simulation simulation;
  const std::unique_ptr<Device> device = spec.make(simulation);
  Prefill prefill;
  const Process process = run_prefill(cell, simulation, *device, prefill);
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
