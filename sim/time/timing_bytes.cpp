#include "sim/time/timing_bytes.hpp"

#include "base/packed.hpp"

namespace kvreplay {
namespace {

template <typename Step, typename Visit>
void for_step(Step& step, Visit&& visit) {
  auto& [latency, compute, exposed_io, busy_io, read_bytes, read_requests, write_bytes,
         write_requests] = step;
  visit_all(visit, latency, compute, exposed_io, busy_io, read_bytes, read_requests, write_bytes,
            write_requests);
}

template <typename Latency, typename Visit>
void for_latency(Latency& latency, Visit&& visit) {
  auto& [commands, p50, p99, p999] = latency;
  visit_all(visit, commands, p50, p99, p999);
}

template <typename Phase, typename Visit>
void for_prefill(Phase& prefill, Visit&& visit) {
  auto& [ttft, compute, index, exposed, busy, dram_bytes, write_bytes, commands, flash_write,
         erases, energy] = prefill;
  auto& [compute_energy, dram_energy, flash_energy] = energy;
  visit_all(visit, ttft, compute, index, exposed, busy, dram_bytes, write_bytes, commands,
            flash_write, erases, compute_energy, dram_energy, flash_energy);
}

/// Visits a timing's numbers, without its steps.
template <typename Numbers, typename Visit>
void for_timing(Numbers& timing, Visit&& visit) {
  auto& [steps, batch, requested, hit, missed, best_hit, min_read, flash_read, flash_write, erases,
         wrapped, attended, prompt_write, moved, region, live, stored_bits, dram, energy, unfolded,
         reads, writes, prefill] = timing;
  auto& [weights, cache, full_attention, index, buffered, read_buffer] = dram;
  auto& [compute_energy, dram_energy, flash_energy] = energy;
  visit_all(visit, batch, requested, hit, missed, best_hit, min_read, flash_read, flash_write,
            erases, wrapped, attended, prompt_write, moved, region, live, stored_bits, weights,
            cache, full_attention, index, buffered, read_buffer, compute_energy, dram_energy,
            flash_energy, unfolded);
  for_latency(reads, visit);
  for_latency(writes, visit);
  for_prefill(prefill, visit);
}

}  // namespace

std::string to_bytes(const Timing& timing) {
  PackedWriter write;
  for_timing(timing, write);
  write(std::ssize(timing.steps));
  for (const StepTiming& step : timing.steps) for_step(step, write);
  return write.bytes();
}

Timing timing_from(std::string_view bytes) {
  PackedReader read(bytes);
  Timing timing;
  for_timing(timing, read);
  timing.steps.resize(read.count());
  for (StepTiming& step : timing.steps) for_step(step, read);
  read.check_end();
  return timing;
}

}  // namespace kvreplay
