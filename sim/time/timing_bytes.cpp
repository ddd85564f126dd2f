#include "sim/time/timing_bytes.hpp"

#include <stdexcept>

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
         erases, energy, read_bytes] = prefill;
  auto& [compute_energy, dram_energy, flash_energy] = energy;
  visit_all(visit, ttft, compute, index, exposed, busy, dram_bytes, write_bytes, commands,
            flash_write, erases, compute_energy, dram_energy, flash_energy, read_bytes);
}

template <typename Interval, typename Visit>
void for_interval(Interval& interval, Visit&& visit) {
  auto& [end, tokens, compute, exposed, throttled, power, temperature] = interval;
  visit_all(visit, end, tokens, compute, exposed, throttled, power, temperature);
}

/// Visits a timing's numbers, without its steps.
template <typename Numbers, typename Visit>
void for_timing(Numbers& timing, Visit&& visit) {
  auto& [steps, batch, requested, hit, missed, best_hit, min_read, flash_read, flash_write, erases,
         wrapped, attended, prompt_write, moved, region, live, stored_bits, dram, energy, unfolded,
         reads, writes, prefill, turns, sustained] = timing;
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

/// Visits a turn's numbers, without its timing.
template <typename Turn, typename Visit>
void for_turn(Turn& turn, Visit&& visit) {
  auto& [earlier, fresh, decoded, resume, restore, recompute, index_read, index_rebuild, suspend,
         suspend_bytes, timing] = turn;
  visit_all(visit, earlier, fresh, decoded, resume, restore, recompute, index_read, index_rebuild,
            suspend, suspend_bytes);
}

void write_timing(PackedWriter& write, const Timing& timing) {
  for_timing(timing, write);
  write(std::ssize(timing.steps));
  for (const StepTiming& step : timing.steps) for_step(step, write);
  write(std::ssize(timing.turns));
  for (const TurnTiming& turn : timing.turns) {
    for_turn(turn, write);
    write_timing(write, turn.timing);
  }
  write(std::ssize(timing.sustained));
  for (const SustainedInterval& interval : timing.sustained) for_interval(interval, write);
}

/// The turns of a turn's own timing are an error of the file.
void read_timing(PackedReader& read, Timing& timing, bool has_turns) {
  for_timing(timing, read);
  timing.steps.resize(read.count());
  for (StepTiming& step : timing.steps) for_step(step, read);
  timing.turns.resize(read.count());
  if (!has_turns && !timing.turns.empty())
    throw std::logic_error("a stored timing with turns within a turn");
  for (TurnTiming& turn : timing.turns) {
    for_turn(turn, read);
    read_timing(read, turn.timing, false);
  }
  timing.sustained.resize(read.count());
  for (SustainedInterval& interval : timing.sustained) for_interval(interval, read);
}

}  // namespace

std::string to_bytes(const Timing& timing) {
  PackedWriter write;
  write_timing(write, timing);
  return write.bytes();
}

Timing timing_from(std::string_view bytes) {
  PackedReader read(bytes);
  Timing timing;
  read_timing(read, timing, true);
  read.check_end();
  return timing;
}

}  // namespace kvreplay
