#include "sim/time/restore.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "devices/commands.hpp"
#include "policies/decide/log/stream.hpp"
#include "sim/time/compute_cost.hpp"
#include "sim/time/machine/virtual_machine.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kStoredElementBytes = 2;

std::int64_t prefix_window(const ModelSpec& model, const LayerSpec& layer) {
  if (!layer.attends) return 0;
  return model.kv_kinds()[static_cast<std::size_t>(layer.kind)].sliding_window.value_or(0);
}

std::int64_t prefix_vectors(const ModelSpec& model, const LayerSpec& layer) {
  if (!layer.attends) return 2;
  return model.kv_kinds()[static_cast<std::size_t>(layer.kind)].one_vector ? 1 : 2;
}

std::int64_t prefix_bytes(const ModelSpec& model, std::int64_t tokens) {
  std::int64_t bytes = 0;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const LayerSpec& layer = model.layer(i);
    if (!layer.attends || layer.source != i) continue;
    bytes += visible_tokens(tokens, prefix_window(model, layer)) * layer.kv_heads * layer.head_dim *
             kStoredElementBytes * prefix_vectors(model, layer);
  }
  return bytes;
}

SimTime prefill_compute(const ModelSpec& model, const PlatformSpec& platform, std::int64_t begin,
                        std::int64_t end, std::int64_t chunk_tokens) {
  SimTime sum = 0;
  for (std::int64_t i = 0; i < model.layers; ++i) {
    const LayerSpec& layer = model.layer(i);
    for (std::int64_t at = begin; at < end; at += chunk_tokens) {
      sum += chunk_compute(model, platform,
                           {.begin = at,
                            .tokens = std::min(chunk_tokens, end - at),
                            .layer = i,
                            .sliding_window = prefix_window(model, layer),
                            .vectors = prefix_vectors(model, layer)})
                 .ns;
    }
  }
  return sum;
}

StepTask read_back_step(Machine& machine) {
  machine.start(TransferKind::kReads, 0);
  co_await machine.wait(TransferKind::kReads, 0);
}

Process read_back(const Simulation& simulation, VirtualMachine& machine, SimTime& end) {
  co_await machine.run(read_back_step(machine));
  end = simulation.now();
}

}  // namespace

RestoreTimes restore_times(const ModelSpec& model, const PlatformSpec& platform,
                           const DeviceSpec& spec, const Prefix& prefix) {
  RestoreTimes times;
  times.bytes = prefix_bytes(model, prefix.tokens);
  const std::int64_t end = prefix.tokens + prefix.new_tokens;
  const SimTime fresh = prefill_compute(model, platform, prefix.tokens, end, prefix.chunk_tokens);
  times.recompute_ns = prefill_compute(model, platform, 0, end, prefix.chunk_tokens) - fresh;
  times.new_tokens_ns = fresh + head_compute(model, platform, 1);
  Simulation simulation;
  const std::unique_ptr<Device> device = spec.make(simulation);
  StepWork work{.layers = std::vector<LayerWork>(1)};
  const Extent all{0, static_cast<std::uint64_t>(times.bytes)};
  to_commands({&all, 1}, false, device->limits(), work.layers[0].commands(TransferKind::kReads));
  VirtualMachine machine(simulation, *device, work);
  const Process process = read_back(simulation, machine, times.restore_ns);
  simulation.spawn(process);
  simulation.run();
  return times;
}

std::optional<std::int64_t> restore_crossover(const ModelSpec& model, const PlatformSpec& platform,
                                              const DeviceSpec& device, Prefix prefix,
                                              std::int64_t max_tokens) {
  const auto restores = [&](std::int64_t tokens) {
    prefix.tokens = tokens;
    const RestoreTimes times = restore_times(model, platform, device, prefix);
    return times.restore_ns <= times.recompute_ns;
  };
  if (!restores(max_tokens)) return std::nullopt;
  // Recomputing grows faster than reading: above some length, reading is always shorter.
  std::int64_t above = max_tokens;
  std::int64_t below = 0;
  while (above / 2 > 0 && restores(above / 2)) above /= 2;
  below = above / 2;
  while (above - below > 1) {
    const std::int64_t middle = below + (above - below) / 2;
    (restores(middle) ? above : below) = middle;
  }
  return above;
}

}  // namespace kvreplay
