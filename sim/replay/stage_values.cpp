#include "sim/replay/stage_values.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "base/packed.hpp"

namespace kvreplay {
namespace {

double mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// One list of members a type: visit(member) for each, to write and to read. The bindings take every
// member, so a type that gets one more does not compile until the list has it.

template <typename Visit, typename... Members>
void visit_all(Visit&& visit, Members&... members) {
  (visit(members), ...);
}

template <typename Means, typename Visit>
void for_means(Means& means, Visit&& visit) {
  auto& [recall, mass, best_mass, error, tokens] = means;
  visit_all(visit, recall, mass, best_mass, error, tokens);
}

template <typename Layer, typename Visit>
void for_layer_plan(Layer& layer, Visit&& visit) {
  auto& [full_attention, io, compute, dram, accounting] = layer;
  auto& [read_begin, reads, write_begin, writes, cache_read_begin, cache_reads, cache_paged,
         prompt_write_bytes, region_bytes, live_bytes] = io;
  auto& [attended_tokens, score_bytes, score_flops] = compute;
  auto& [cache_bytes, buffered_bytes, index_bytes, fetched_bytes, entries_bytes] = dram;
  auto& [requested_bytes, hit_bytes, missed_bytes, best_hit_bytes, moved_bytes] = accounting;
  visit_all(visit, full_attention, read_begin, reads, write_begin, writes, cache_read_begin,
            cache_reads, cache_paged, prompt_write_bytes, region_bytes, live_bytes, requested_bytes,
            hit_bytes, missed_bytes, best_hit_bytes, moved_bytes, attended_tokens, score_bytes,
            score_flops, cache_bytes, buffered_bytes, index_bytes, fetched_bytes, entries_bytes);
}

/// Without its layers.
template <typename Plan, typename Visit>
void for_plan(Plan& plan, Visit&& visit) {
  auto& [system, shape, prompt_tokens, steps, full_attention_layers, layers] = plan;
  auto& [model_layers, query_heads, kv_heads, head_dim] = shape;
  visit_all(visit, system, model_layers, query_heads, kv_heads, head_dim, prompt_tokens, steps,
            full_attention_layers);
}

template <typename Step, typename Visit>
void for_step(Step& step, Visit&& visit) {
  auto& [latency, compute, exposed_io, busy_io, read_bytes, read_requests, write_bytes,
         write_requests] = step;
  visit_all(visit, latency, compute, exposed_io, busy_io, read_bytes, read_requests, write_bytes,
            write_requests);
}

/// Without its steps.
template <typename Numbers, typename Visit>
void for_timing(Numbers& timing, Visit&& visit) {
  auto& [steps, batch, asked, hit, missed, best_hit, least_read, flash_read, attended, prompt_write,
         moved, region, live, dram, energy] = timing;
  auto& [weights, cache, dense, index, buffered, landing] = dram;
  auto& [compute_energy, dram_energy, flash_energy] = energy;
  visit_all(visit, batch, asked, hit, missed, best_hit, least_read, flash_read, attended,
            prompt_write, moved, region, live, weights, cache, dense, index, buffered, landing,
            compute_energy, dram_energy, flash_energy);
}

/// The largest number that divides every offset and size: mostly the bytes of an entry or a page,
/// in which they then are small numbers.
std::uint64_t unit_of(const std::vector<Extent>& extents) {
  std::uint64_t unit = 0;
  for (const Extent& extent : extents) {
    unit = std::gcd(std::gcd(unit, extent.offset), extent.bytes);
    if (unit == 1) break;
  }
  return std::max<std::uint64_t>(unit, 1);
}

/// An extent as its distance from the end of the one before, and its size, in units.
void write_extents(PackedWriter& write, const std::vector<Extent>& extents) {
  const std::uint64_t unit = unit_of(extents);
  write(std::ssize(extents));
  write(unit);
  std::uint64_t end = 0;
  for (const Extent& extent : extents) {
    write(static_cast<std::int64_t>(extent.offset / unit - end / unit));
    write(extent.bytes / unit);
    end = extent.end();
  }
}

void read_extents(PackedReader& read, std::vector<Extent>& extents) {
  const std::size_t count = read.count();
  std::uint64_t unit = 0;
  read(unit);
  extents.resize(count);
  std::uint64_t end = 0;
  for (Extent& extent : extents) {
    std::int64_t distance = 0;
    read(distance);
    read(extent.bytes);
    extent.offset = end + static_cast<std::uint64_t>(distance) * unit;
    extent.bytes *= unit;
    end = extent.end();
  }
}

struct PlanWriter {
  PackedWriter& write;
  void operator()(const auto& value) { write(value); }
  void operator()(const std::vector<Extent>& extents) { write_extents(write, extents); }
};

struct PlanReader {
  PackedReader& read;
  void operator()(auto& value) { read(value); }
  void operator()(std::vector<Extent>& extents) { read_extents(read, extents); }
};

void check_end(const PackedReader& read) {
  if (!read.at_end()) throw std::logic_error("a stage's output with bytes left over");
}

template <typename T>
std::int64_t bytes_of(const std::vector<T>& values) {
  return static_cast<std::int64_t>(values.size() * sizeof(T));
}

struct ByteCounter {
  std::int64_t bytes = 0;
  template <typename T>
  void operator()(const std::vector<T>& values) {
    bytes += bytes_of(values);
  }
  void operator()(const auto&) {}
};

}  // namespace

std::vector<LayerMeans> layer_means(const AccessLog& log) {
  std::vector<LayerMeans> layers;
  for (const LayerLog& layer : log.layers) {
    LayerMeans& made = layers.emplace_back();
    made.layer = layer.layer;
    made.dense = layer.full_attention;
    made.means.recall = mean(layer.quality.recall);
    made.means.attention_mass = mean(layer.quality.attention_mass);
    made.means.best_attention_mass = mean(layer.quality.best_attention_mass);
    made.means.output_error = mean(layer.quality.output_error);
    double attended = 0;
    std::size_t count = 0;
    for (const StreamLog& stream : layer.streams) {
      for (const std::int32_t tokens : stream.attended_count) attended += tokens;
      count += stream.attended_count.size();
    }
    made.means.attended_tokens = count == 0 ? 0 : attended / static_cast<double>(count);
  }
  return layers;
}

/// Every layer has the same number of steps and query heads, so the mean of means is the mean.
QualityMeans system_means(const std::vector<LayerMeans>& layers) {
  QualityMeans sum;
  double count = 0;
  const bool all_dense = std::all_of(layers.begin(), layers.end(),
                                     [](const LayerMeans& layer) { return layer.dense; });
  for (const LayerMeans& layer : layers) {
    if (layer.dense && !all_dense) continue;
    sum.recall += layer.means.recall;
    sum.attention_mass += layer.means.attention_mass;
    sum.best_attention_mass += layer.means.best_attention_mass;
    sum.output_error += layer.means.output_error;
    sum.attended_tokens += layer.means.attended_tokens;
    count += 1;
  }
  for_means(sum, [&](double& value) { value /= count; });
  return sum;
}

std::string to_bytes(const IoPlan& plan) {
  PackedWriter write;
  for_plan(plan, write);
  write(std::ssize(plan.layers));
  for (const LayerPlan& layer : plan.layers) for_layer_plan(layer, PlanWriter{write});
  return write.bytes();
}

IoPlan plan_from(std::string_view bytes) {
  PackedReader read(bytes);
  IoPlan plan;
  for_plan(plan, read);
  plan.layers.resize(read.count());
  for (LayerPlan& layer : plan.layers) for_layer_plan(layer, PlanReader{read});
  check_end(read);
  return plan;
}

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
  check_end(read);
  return timing;
}

std::string to_bytes(const std::vector<LayerMeans>& layers) {
  PackedWriter write;
  write(std::ssize(layers));
  for (const LayerMeans& layer : layers) {
    write(layer.layer);
    write(layer.dense);
    for_means(layer.means, write);
  }
  return write.bytes();
}

std::vector<LayerMeans> layer_means_from(std::string_view bytes) {
  PackedReader read(bytes);
  std::vector<LayerMeans> layers(read.count());
  for (LayerMeans& layer : layers) {
    read(layer.layer);
    read(layer.dense);
    for_means(layer.means, read);
  }
  check_end(read);
  return layers;
}

std::int64_t memory_bytes(const AccessLog& log) {
  std::int64_t bytes = 0;
  for (const LayerLog& layer : log.layers) {
    for (const StreamLog& s : layer.streams) {
      bytes += bytes_of(s.event_begin) + bytes_of(s.event_kind) + bytes_of(s.event_group) +
               bytes_of(s.event_other) + bytes_of(s.event_token_begin) + bytes_of(s.event_tokens) +
               bytes_of(s.window_begin) + bytes_of(s.window_asked) + bytes_of(s.asked_begin) +
               bytes_of(s.asked) + bytes_of(s.pick_begin) + bytes_of(s.picked) +
               bytes_of(s.last_tokens) + bytes_of(s.attended_count) + bytes_of(s.attended_begin) +
               bytes_of(s.attended) + bytes_of(s.buffered_tokens) + bytes_of(s.held_bytes) +
               bytes_of(s.score_bytes) + bytes_of(s.score_flops);
    }
    bytes += 4 * bytes_of(layer.quality.recall);
  }
  return bytes;
}

std::int64_t memory_bytes(const IoPlan& plan) {
  ByteCounter counter;
  for (const LayerPlan& layer : plan.layers) for_layer_plan(layer, counter);
  return counter.bytes;
}

}  // namespace kvreplay
