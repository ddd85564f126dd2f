#include "devices/real/probe.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/document_hash.hpp"
#include "base/memory.hpp"
#include "base/random.hpp"
#include "base/statistics.hpp"
#include "base/utc_time.hpp"
#include "devices/real/host.hpp"
#include "devices/real/measuring_thread.hpp"

namespace kvreplay {

using Json = nlohmann::ordered_json;

namespace {

/// Request `index` of a point depends on the index alone, so that all engines do the same requests.
class PointRequests {
 public:
  PointRequests(const ProbePoint& point, std::uint64_t target_bytes, std::size_t min_memory_bytes,
                std::uint64_t seed)
      : point_(point),
        places_(target_bytes / point.bytes),
        buffers_(std::max<std::uint64_t>(point.depth, min_memory_bytes / point.bytes)),
        seed_(seed) {}

  [[nodiscard]] IoRequest operator()(std::uint64_t index) const {
    Random random(Random::derive(seed_, index));
    const bool write = random.uniform() < point_.write_share;
    const std::uint64_t place =
        point_.pattern == Pattern::kRandom ? random.below(places_) : index % places_;
    return {{place * point_.bytes, point_.bytes, write}, index % buffers_ * point_.bytes};
  }

 private:
  const ProbePoint& point_;
  const std::uint64_t places_;
  const std::uint64_t buffers_;
  const std::uint64_t seed_;
};

/// What the rounds of a point have measured.
struct PointSamples {
  double seconds = 0;
  std::array<std::vector<std::int64_t>, 2> latencies_ns;  // of reads, of writes
  std::vector<double> round_iops;
};

void add_round(const ProbePoint& point, std::span<const IoCompletion> completions,
               PointSamples& samples) {
  const auto measured = completions.subspan(point.depth, completions.size() - 2 * point.depth);
  const double seconds = static_cast<double>(measured.back().completed_ns -
                                             completions[point.depth - 1].completed_ns) *
                         1e-9;
  samples.seconds += seconds;
  samples.round_iops.push_back(static_cast<double>(measured.size()) / seconds);
  for (const IoCompletion& completion : measured) {
    samples.latencies_ns[completion.write ? 1 : 0].push_back(completion.completed_ns -
                                                             completion.submitted_ns);
  }
}

void summarise_point(ProbePoint& point, PointSamples samples) {
  auto& [reads, writes] = samples.latencies_ns;
  point.seconds = samples.seconds;
  point.iops = static_cast<double>(reads.size() + writes.size()) / point.seconds;
  point.mb_s = point.iops * point.bytes * 1e-6;
  std::vector<std::int64_t> all = reads;
  all.insert(all.end(), writes.begin(), writes.end());
  point.latency = summarise(std::move(all));
  if (samples.round_iops.size() > 1) point.round_iops = std::move(samples.round_iops);
  if (reads.empty() || writes.empty()) return;
  point.read_latency = summarise(std::move(reads));
  point.write_latency = summarise(std::move(writes));
}

/// With fewer requests than this, halves say little.
constexpr std::uint32_t kMinBurst = 4;

/// Times (ns) until the first `part` of `count` requests are done, and until all are. The requests
/// are numbered from `begin` on and submitted together.
struct BurstTimes {
  std::int64_t part_ns = 0;
  std::int64_t all_ns = 0;
};
std::optional<BurstTimes> run_burst(IoEngine& engine, const PointRequests& requests,
                                    std::uint64_t begin, std::uint32_t count, std::uint32_t part,
                                    std::optional<IoFailure>& failure) {
  std::vector<IoRequest> together;
  for (std::uint64_t index = begin; index < begin + count; ++index) {
    together.push_back(requests(index));
  }
  const IoReport report = run_all(engine, together, count);
  failure = report.failure;
  if (failure) return std::nullopt;
  std::int64_t submitted = report.completions.front().submitted_ns;
  std::int64_t part_end = 0;
  for (const IoCompletion& completion : report.completions) {
    submitted = std::min(submitted, completion.submitted_ns);
    if (completion.index < part) part_end = completion.completed_ns;
  }
  return BurstTimes{part_end - submitted, report.completions.back().completed_ns - submitted};
}

/// Alternates bursts of the depth and of half of it for `seconds`, with at least three of each;
/// returns nothing when the first fails.
std::optional<Burst> measure_burst(const ProbePoint& point, const PointRequests& requests,
                                   IoEngine& engine, double seconds, const std::atomic<bool>& stop,
                                   std::optional<IoFailure>& failure) {
  constexpr std::uint64_t kMinRounds = 3;
  const std::uint32_t half = point.depth / 2;
  std::vector<double> half_alone;
  std::vector<double> first_half;
  std::vector<double> all;
  Burst burst;
  const std::int64_t deadline = monotonic_ns() + static_cast<std::int64_t>(seconds * 1e9);
  while (!stop && (burst.rounds < kMinRounds || monotonic_ns() < deadline)) {
    const std::uint64_t begin = 2 * burst.rounds * point.depth;
    const auto whole = run_burst(engine, requests, begin, point.depth, half, failure);
    if (!whole) break;
    const auto alone = run_burst(engine, requests, begin + point.depth, half, half, failure);
    if (!alone) break;
    half_alone.push_back(static_cast<double>(alone->all_ns) * 1e-6);
    first_half.push_back(static_cast<double>(whole->part_ns) * 1e-6);
    all.push_back(static_cast<double>(whole->all_ns) * 1e-6);
    ++burst.rounds;
  }
  if (burst.rounds == 0) return std::nullopt;
  burst.half_alone_ms = median(std::move(half_alone));
  burst.first_half_ms = median(std::move(first_half));
  burst.all_ms = median(std::move(all));
  return burst;
}

Json probe_setting_json(const BlockTarget& target, const EngineChoice& choice,
                        const std::string& notes, const ProbeGrid& grid) {
  Json json;
  json["target"] = {{"path", target.path()},
                    {"kind", target.is_block_device() ? "block device" : "file"},
                    {"size_bytes", target.size_bytes()},
                    {"offset_alignment_bytes", target.alignment().offset_bytes},
                    {"memory_alignment_bytes", target.alignment().memory_bytes},
                    {"alignment_source", target.alignment().source},
                    {"direct_io_proof", target.direct_io_proof()}};
  if (!target.is_block_device()) {
    json["target"]["file_system"] = file_system_of(target.descriptor_path());
    if (const auto free = free_bytes(target.descriptor_path())) {
      json["target"]["free_bytes"] = *free;
    }
  }
  json["host"] = to_json(host_facts());
  json["host"]["temperatures_before"] = to_json(temperatures());
  json["engine"] = {{"name", choice.name}, {"notes", notes}, {"refused", Json::array()}};
  for (const auto& [engine, reason] : choice.refused) {
    json["engine"]["refused"].push_back({{"engine", engine}, {"reason", reason}});
  }
  json["seconds_a_point"] = grid.seconds;
  if (grid.rounds > 1) json["rounds"] = grid.rounds;
  json["seed"] = grid.seed;
  json["points_wanted"] = grid.points();
  return json;
}

UserError memory_error(const ProbeGrid& grid, const std::string& allowed) {
  return {{"", "--size, --depth"},
          "found " + std::to_string(grid.max_bytes()) + " bytes in " +
              std::to_string(grid.max_depth()) + " requests, which take " +
              std::to_string(grid.memory_bytes()) + " bytes of memory",
          allowed};
}

/// Checked first: a system that grants more memory than it has kills the program when the memory is
/// used.
void check_memory(const ProbeGrid& grid) {
  const auto available = static_cast<std::size_t>(available_memory_bytes());
  if (available == 0 || grid.memory_bytes() <= available) return;  // 0: unknown
  throw memory_error(grid,
                     "at most " + std::to_string(available) + ", what the machine has available");
}

}  // namespace

std::string to_text(Pattern pattern) {
  return pattern == Pattern::kRandom ? "random" : "sequential";
}

bool ProbeGrid::writes() const {
  return std::any_of(write_shares.begin(), write_shares.end(), [](double s) { return s > 0; });
}

std::uint32_t ProbeGrid::max_depth() const {
  return *std::max_element(depths.begin(), depths.end());
}

std::uint32_t ProbeGrid::max_bytes() const {
  return *std::max_element(sizes_bytes.begin(), sizes_bytes.end());
}

std::size_t ProbeGrid::memory_bytes() const {
  return std::max(std::size_t{max_depth()} * max_bytes(), min_memory_bytes);
}

std::optional<double> Burst::mixing() const {
  constexpr double kSaturated = 0.3;  // 0.5 where rates alone count, 0 where all go at once
  const double rest_ms = all_ms - half_alone_ms;
  if (rest_ms < kSaturated * all_ms) return std::nullopt;
  return (first_half_ms - half_alone_ms) / rest_ms;
}

Json to_json(const ProbePoint& point) {
  Json json{{"pattern", to_text(point.pattern)},
            {"write_share", point.write_share},
            {"bytes", point.bytes},
            {"depth", point.depth},
            {"seconds", point.seconds},
            {"iops", point.iops},
            {"mb_s", point.mb_s}};
  if (!point.round_iops.empty()) json["round_iops"] = point.round_iops;
  json.update(latency_json(point.latency));
  if (point.read_latency) json["reads"] = latency_json(*point.read_latency);
  if (point.write_latency) json["writes"] = latency_json(*point.write_latency);
  if (point.burst) {
    json["burst"] = {{"rounds", point.burst->rounds},
                     {"half_alone_ms", point.burst->half_alone_ms},
                     {"first_half_ms", point.burst->first_half_ms},
                     {"all_ms", point.burst->all_ms}};
    if (const auto mixing = point.burst->mixing()) json["burst"]["mixing"] = *mixing;
  }
  return json;
}

ProbeResult probe(const BlockTarget& target, IoEngine& engine, const ProbeGrid& grid,
                  const std::atomic<bool>& stop,
                  const std::function<void(const ProbePoint&)>& on_point) {
  for (const std::uint32_t bytes : grid.sizes_bytes) {
    target.check({0, bytes, false});
    if (grid.writes()) target.check({0, bytes, true});
  }
  const std::uint32_t max_bytes = grid.max_bytes();
  std::vector<ProbePoint> points;
  for (const Pattern pattern : grid.patterns) {
    for (const double write_share : grid.write_shares) {
      for (const std::uint32_t bytes : grid.sizes_bytes) {
        for (const std::uint32_t depth : grid.depths) {
          points.push_back(
              {.pattern = pattern, .write_share = write_share, .bytes = bytes, .depth = depth});
        }
      }
    }
  }
  std::vector<PointSamples> samples(points.size());
  ProbeResult result;
  Random random(grid.seed);
  for (std::uint32_t round = 0; round < grid.rounds; ++round) {
    std::vector<std::size_t> order(points.size());
    std::iota(order.begin(), order.end(), 0U);
    const bool last = round + 1 == grid.rounds;
    if (!last) random.shuffle(std::span(order));
    for (const std::size_t index : order) {
      ProbePoint& point = points[index];
      // A round begins at new places.
      const std::uint64_t seed = round == 0 ? grid.seed : Random::derive(grid.seed, round);
      const PointRequests requests(point, target.size_bytes(), grid.min_memory_bytes, seed);
      // Enough requests to fill the queue, measure, and drain it, however slow the device.
      const std::uint64_t least = 3 * std::uint64_t{point.depth} + 8;
      const std::int64_t deadline =
          monotonic_ns() + static_cast<std::int64_t>(grid.seconds / grid.rounds * 1e9);
      const IoReport report = engine.run(
          [&](std::uint64_t number) -> std::optional<IoRequest> {
            if (stop || (number >= least && monotonic_ns() >= deadline)) return std::nullopt;
            return requests(number);
          },
          point.depth);
      result.failure = report.failure;
      result.interrupted = stop;
      if (!result.complete()) return result;
      add_round(point, report.completions, samples[index]);
      if (!last) continue;
      summarise_point(point, std::move(samples[index]));
      if (point.pattern == Pattern::kRandom && point.write_share == 0 && point.bytes == max_bytes &&
          point.depth == grid.max_depth() && point.depth >= kMinBurst) {
        point.burst = measure_burst(point, requests, engine, grid.seconds, stop, result.failure);
      }
      if (on_point) on_point(point);
      result.points.push_back(point);
      result.interrupted = stop;
      if (!result.complete()) return result;
    }
  }
  return result;
}

void fill_random(std::span<std::byte> memory, std::uint64_t seed) {
  Random random(seed);
  for (std::size_t i = 0; i < memory.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random.next();
    std::memcpy(memory.data() + i, &word, std::min(sizeof word, memory.size() - i));
  }
}

ProbeEnd run_probe(const BlockTarget& target, ProbeRequest request, const std::atomic<bool>& stop,
                   const ProbeSink& sink) {
  const EngineChoice choice = choose_engine(target, request.engine);
  if (choice.name == "sync" && request.engine.empty()) request.grid.depths = {1};
  if (request.pages == Pages::kScattered) request.grid.min_memory_bytes = kScatteredBytes;
  check_memory(request.grid);
  const auto own_target = std::make_shared<const BlockTarget>(target.duplicate());
  const auto result = std::make_shared<ProbeResult>();
  const auto measure = [&] {
    return measure_in_thread(
        request.grid.max_depth(), static_cast<std::int64_t>(request.request_timeout_seconds * 1e9),
        stop, [own_target, result, request, choice, &sink](Measuring& measuring) {
          const ProbeGrid& grid = request.grid;
          const EngineWithMemory io(choice.name, *own_target, grid.memory_bytes(), request.pages,
                                    grid.max_depth(), &measuring.watch);
          fill_random(io.memory(), grid.seed);
          Json setting =
              probe_setting_json(*own_target, choice, notes_of(io.engine(), request.pages), grid);
          measuring.tell([&sink, setting] { sink.on_setting(setting); });
          *result = probe(*own_target, io.engine(), grid, measuring.stop,
                          [&measuring, &sink](const ProbePoint& point) {
                            measuring.tell([&sink, point] { sink.on_point(to_json(point)); });
                          });
        });
  };
  std::optional<IoFailure> unanswered;
  try {
    unanswered = measure();
  } catch (const std::bad_alloc&) {  // a memory limit of the process
    throw memory_error(request.grid, "less, or a higher limit of memory");
  }
  ProbeEnd end;
  if (unanswered) {
    end.ended_by = unanswered->to_error(target.path()).what();
  } else if (result->failure) {
    end.ended_by = result->failure->to_error(target.path()).what();
  } else if (result->interrupted) {
    end.ended_by = "interrupted";
  }
  end.temperatures = temperatures();
  return end;
}

std::string probe_document(const Json& setting, std::span<const Json> points, const ProbeEnd& end,
                           const std::string& program) {
  Json json{{"format", "kvreplay probe 1"}, {"program", program}, {"time", utc_now()}};
  json["complete"] = end.ended_by.empty();
  if (!end.ended_by.empty()) json["ended_by"] = end.ended_by;
  json.update(setting);
  json["host"]["temperatures_after"] = to_json(end.temperatures);
  json["points"] = points;
  const auto text = [&json] { return json.dump(2, ' ', false, Json::error_handler_t::replace); };
  json["sha256"] = document_sha256(nlohmann::json::parse(text()));
  return text() + "\n";
}

}  // namespace kvreplay
