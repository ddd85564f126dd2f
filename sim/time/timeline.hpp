#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/time/machine/observer.hpp"

namespace kvreplay {

struct StepTiming;

/// What the cache gave one layer at one step.
struct LayerCache {
  std::int64_t hit_bytes = 0;
  std::int64_t missed_bytes = 0;
};

/// What machine and device do in the first timed steps of a cell: an observer of the same
/// simulation that gives the results.
class Timeline final : public MachineObserver {
 public:
  explicit Timeline(std::int64_t steps) : steps_(steps) {}

  /// `step`: its number in the plan; `cache`: by layer of the target.
  void begin_step(std::int64_t step, SimTime now, std::vector<LayerCache> cache);
  void end_step(const StepTiming& timing, SimTime now);

  void on_compute(Kernels kernels, std::size_t layer, SimTime begin, SimTime duration) override;
  void on_transfer_begin(TransferKind kind, std::size_t layer, SimTime now,
                         std::span<const IoCommand> commands) override;
  void on_transfer_end(TransferKind kind, std::size_t layer, SimTime now) override;
  void on_commands(std::size_t under_way, SimTime now) override;

  enum class Lane : std::uint8_t { kCompute, kReads, kWrites, kDepth, kCache };
  /// A span of time on a lane, or a sample of a counter.
  struct Event {
    Lane lane = Lane::kCompute;
    std::size_t row = 0;  ///< of the lane, where spans overlap
    SimTime begin = 0;
    SimTime duration = 0;
    std::string name;
    std::vector<std::pair<const char*, double>> values;
  };
  [[nodiscard]] std::span<const Event> events() const { return events_; }

  // The prefill, whose clock begins at 0 too. Its first kMaxPrefillEvents events are kept.
  void add_prefill_compute(std::string name, SimTime begin, SimTime duration);
  void add_prefill_write(std::string name, SimTime begin, SimTime duration, std::int64_t bytes,
                         std::int64_t commands);
  [[nodiscard]] std::span<const Event> prefill_events() const { return prefill_events_; }

 private:
  static constexpr std::size_t kMaxPrefillEvents = 20000;

  struct Running {
    std::size_t row = 0;
    SimTime begin = 0;
    std::int64_t bytes = 0;
    std::int64_t commands = 0;
  };

  std::int64_t steps_;  ///< left to show
  bool in_step_ = false;
  SimTime step_begin_ = 0;
  std::size_t step_event_ =
      0;  ///< index in events_ of the current step, which has no duration until it ends
  std::vector<LayerCache> cache_;
  std::map<std::pair<TransferKind, std::size_t>, Running> running_;
  std::array<std::vector<bool>, 2> rows_taken_;  ///< of reads, of writes
  std::size_t sampled_commands_ = 0;
  std::vector<Event> events_;
  std::vector<Event> prefill_events_;
  std::vector<SimTime> prefill_row_ends_;  ///< of rows of writes
};

struct CellTimeline {
  std::string name;  ///< of the cell, for display
  Timeline timeline;
};

/// In Chrome's trace event format, which Perfetto opens: one process per cell, times in
/// microseconds.
[[nodiscard]] std::string trace_event_json(std::span<const CellTimeline> cells);

}  // namespace kvreplay
