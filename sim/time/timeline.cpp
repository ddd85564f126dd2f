#include "sim/time/timeline.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "sim/time/time_plan.hpp"

namespace kvreplay {
namespace {

using nlohmann::ordered_json;

/// Thread numbers. The rows of one lane follow each other.
constexpr std::int64_t kComputeThread = 1;
constexpr std::int64_t kReadThreads = 100;
constexpr std::int64_t kWriteThreads = 200;
/// In addition, for those of the prefill.
constexpr std::int64_t kPrefillThreads = 1000;

const char* name_of(TransferKind kind) {
  switch (kind) {
    case TransferKind::kReads:
      return "groups";
    case TransferKind::kWrites:
      return "writes";
    case TransferKind::kIndexReads:
      return "representatives";
    case TransferKind::kCacheReads:
      return "cached groups";
  }
  return "";
}

std::string name_of(Kernels kernels) {
  const bool query = contains(kernels, Kernels::kProjectQuery);
  const bool key_value = contains(kernels, Kernels::kProjectKeyValue);
  std::string name;
  const auto add = [&](const char* part) {
    name += name.empty() ? part : std::string(", ") + part;
  };
  if (query || key_value) add(!query ? "project K, V" : !key_value ? "project Q" : "project");
  if (contains(kernels, Kernels::kScore)) add("score");
  if (contains(kernels, Kernels::kAttend)) add("attend, feed forward");
  if (contains(kernels, Kernels::kHead)) add("LM head");
  return name;
}

std::string layer_name(std::size_t layer) {
  return layer == Machine::kNoLayer ? "" : "layer " + std::to_string(layer) + " ";
}

double microseconds(SimTime ns) {
  return static_cast<double>(ns) / 1e3;
}

}  // namespace

void Timeline::begin_step(std::int64_t step, SimTime now, std::vector<LayerCache> cache) {
  if (steps_ == 0) return;
  --steps_;
  in_step_ = true;
  step_begin_ = now;
  cache_ = std::move(cache);
  step_event_ = events_.size();
  events_.push_back({Lane::kCompute, 0, now, 0, "step " + std::to_string(step), {}});
}

void Timeline::end_step(const StepTiming& timing, SimTime now) {
  if (!in_step_) return;
  in_step_ = false;
  Event& step = events_[step_event_];
  step.duration = now - step_begin_;
  step.values = {{"latency_ms", static_cast<double>(timing.latency_ns) / 1e6},
                 {"compute_ms", static_cast<double>(timing.compute_ns) / 1e6},
                 {"exposed_io_ms", static_cast<double>(timing.exposed_io_ns) / 1e6},
                 {"read_bytes", static_cast<double>(timing.read_bytes)},
                 {"written_bytes", static_cast<double>(timing.write_bytes)}};
}

void Timeline::on_compute(Kernels kernels, std::size_t layer, SimTime begin, SimTime duration) {
  if (!in_step_ || duration == 0) return;
  events_.push_back({Lane::kCompute, 0, begin, duration, layer_name(layer) + name_of(kernels), {}});
}

void Timeline::on_transfer_begin(TransferKind kind, std::size_t layer, SimTime now,
                                 std::span<const IoCommand> commands) {
  if (!in_step_) return;
  if (kind == TransferKind::kReads) {
    events_.push_back({Lane::kCache,
                       0,
                       now,
                       0,
                       "bytes of a layer",
                       {{"hit", static_cast<double>(cache_[layer].hit_bytes)},
                        {"missed", static_cast<double>(cache_[layer].missed_bytes)}}});
  }
  if (commands.empty()) return;
  std::vector<bool>& taken = rows_taken_[kind == TransferKind::kWrites ? 1 : 0];
  const auto free = std::find(taken.begin(), taken.end(), false);
  Running run{static_cast<std::size_t>(free - taken.begin()), now, 0, std::ssize(commands)};
  if (free == taken.end()) {
    taken.push_back(true);
  } else {
    *free = true;
  }
  for (const IoCommand& command : commands) run.bytes += command.bytes;
  running_[{kind, layer}] = run;
}

void Timeline::on_transfer_end(TransferKind kind, std::size_t layer, SimTime now) {
  const auto found = running_.find({kind, layer});
  if (found == running_.end()) return;  // it began after the shown steps
  const bool writes = kind == TransferKind::kWrites;
  const Running& run = found->second;
  rows_taken_[writes ? 1 : 0][run.row] = false;
  events_.push_back({writes ? Lane::kWrites : Lane::kReads,
                     run.row,
                     run.begin,
                     now - run.begin,
                     layer_name(layer) + name_of(kind),
                     {{"bytes", static_cast<double>(run.bytes)},
                      {"commands", static_cast<double>(run.commands)}}});
  running_.erase(found);
}

/// Not every command becomes a sample, or the file would grow with the number of requests. Numbers
/// up to 8 are exact, and larger ones are within an eighth.
void Timeline::on_commands(std::size_t under_way, SimTime now) {
  if (!in_step_ && running_.empty()) return;
  const std::size_t more = std::max(under_way, sampled_commands_);
  const std::size_t less = std::min(under_way, sampled_commands_);
  if (under_way != 0 && (more - less) * 8 < more) return;
  sampled_commands_ = under_way;
  if (!events_.empty() && events_.back().lane == Lane::kDepth && events_.back().begin == now) {
    events_.back().values.front().second = static_cast<double>(under_way);
    return;
  }
  events_.push_back(
      {Lane::kDepth, 0, now, 0, "commands", {{"under way", static_cast<double>(under_way)}}});
}

void Timeline::add_prefill_compute(std::string name, SimTime begin, SimTime duration) {
  if (prefill_events_.size() >= kMaxPrefillEvents) return;
  prefill_events_.push_back({Lane::kCompute, 0, begin, duration, std::move(name), {}});
}

/// Called as writes end, so a row is free where nothing of it ended after the write's begin.
void Timeline::add_prefill_write(std::string name, SimTime begin, SimTime duration,
                                 std::int64_t bytes, std::int64_t commands) {
  if (prefill_events_.size() >= kMaxPrefillEvents) return;
  std::size_t row = 0;
  while (row < prefill_row_ends_.size() && prefill_row_ends_[row] > begin) ++row;
  if (row == prefill_row_ends_.size()) prefill_row_ends_.push_back(0);
  prefill_row_ends_[row] = begin + duration;
  prefill_events_.push_back(
      {Lane::kWrites,
       row,
       begin,
       duration,
       std::move(name),
       {{"bytes", static_cast<double>(bytes)}, {"commands", static_cast<double>(commands)}}});
}

std::string trace_event_json(std::span<const CellTimeline> cells) {
  ordered_json events = ordered_json::array();
  for (std::size_t cell = 0; cell < cells.size(); ++cell) {
    const auto process = static_cast<std::int64_t>(cell) + 1;
    const auto describe = [&](const char* what, std::int64_t thread, const std::string& name) {
      events.push_back({{"ph", "M"},
                        {"pid", process},
                        {"tid", thread},
                        {"ts", 0},
                        {"name", what},
                        {"args", {{"name", name}}}});
    };
    describe("process_name", 0, cells[cell].name);
    std::set<std::int64_t> threads;
    const auto thread_of = [&](const Timeline::Event& event, bool prefill) {
      const auto row = static_cast<std::int64_t>(event.row);
      const bool reads = event.lane == Timeline::Lane::kReads;
      const bool writes = event.lane == Timeline::Lane::kWrites;
      std::int64_t thread = reads    ? kReadThreads + row
                            : writes ? kWriteThreads + row
                                     : kComputeThread;
      if (prefill) thread += kPrefillThreads;
      if (threads.insert(thread).second) {
        describe("thread_name", thread,
                 (prefill ? std::string("prefill ") : std::string()) +
                     (reads    ? "reads"
                      : writes ? "writes"
                               : "compute") +
                     (row > 0 ? " " + std::to_string(row + 1) : ""));
      }
      return thread;
    };
    const auto add = [&](const Timeline::Event& event, bool prefill) {
      const bool counter =
          event.lane == Timeline::Lane::kDepth || event.lane == Timeline::Lane::kCache;
      ordered_json made{{"ph", counter ? "C" : "X"},
                        {"pid", process},
                        {"tid", counter ? 0 : thread_of(event, prefill)},
                        {"ts", microseconds(event.begin)}};
      if (!counter) made["dur"] = microseconds(event.duration);
      made["name"] = event.name;
      made["args"] = ordered_json::object();
      for (const auto& [name, value] : event.values) made["args"][name] = value;
      events.push_back(std::move(made));
    };
    for (const Timeline::Event& event : cells[cell].timeline.events()) add(event, false);
    for (const Timeline::Event& event : cells[cell].timeline.prefill_events()) add(event, true);
  }
  // One event per line, so that the file can be searched and cut.
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [";
  for (std::size_t i = 0; i < events.size(); ++i) {
    text += (i == 0 ? "\n" : ",\n") + events[i].dump();
  }
  return text + "\n]}\n";
}

}  // namespace kvreplay
