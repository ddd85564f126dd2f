#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/stage.hpp"
#include "sim/replay/experiment.hpp"
#include "sim/replay/replay_result.hpp"
#include "sim/replay/shard.hpp"
#include "sim/replay/stage_estimate.hpp"
#include "sim/replay/stage_store.hpp"

namespace kvreplay {

class Schedule;

#ifdef NDEBUG
inline constexpr bool kChecksByDefault = false;
#else
inline constexpr bool kChecksByDefault = true;
#endif

struct ReplayOptions {
  bool show_progress = false;
  /// Where to write TRACE.SYSTEM.access.h5 for every access log; "" = nowhere.
  std::string access_log_folder{};
  bool record_tokens = false;  ///< the access logs name every attended token
  /// Where outputs of stages are kept and found. Must outlive the replay.
  std::reference_wrapper<StageStore> store = StageStore::none();
  Shard shard{};
  /// Whether each computed step is held against what docs/architecture.md promises, with a
  /// std::logic_error where it does not hold. On in builds with assertions.
  bool check = kChecksByDefault;
  /// Memory that the outputs of stages may take at once; 0 = four fifths of what is available.
  std::int64_t memory_bytes = 0;
  /// Receives what the timed steps do. The experiment must then have one cell, or a UserError is
  /// thrown. The cell is timed even where the store has its timing.
  Schedule* schedule = nullptr;
  Schedule* prefill_schedule = nullptr;  ///< likewise, what the prefill does, as one step
  /// Timed steps to show for each of the first `timeline_cells` cells; 0 = no timelines. These
  /// cells are timed even where the store has their timing.
  std::int64_t timeline_steps = 0;
  std::size_t timeline_cells = 0;
  /// Called with each cell's result and number as soon as the cell is finished.
  std::function<std::string(const CellResult&, std::size_t number)> cell_line{};
};

/// The three stages end to end. Every output of a stage is computed once, however many cells depend
/// on it: one decision per (trace, stage-1 composition, seed, steps), one plan per (decision,
/// cache, layout, shape), and one timing per cell. Each output is stored as soon as it is known,
/// and the next replay finds it there.
class Replay {
 public:
  /// Reads the traces' attributes and hashes, and looks into the store. The experiment must outlive
  /// this object.
  Replay(const Experiment& experiment, const ReplayOptions& options);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  [[nodiscard]] std::size_t cells() const;           ///< of the shard
  [[nodiscard]] std::size_t finished_cells() const;  ///< of them, found in the store
  /// The costs by stage. Seconds are those of threads() threads that nothing else slows down, at
  /// the rates of the store's last replay or, where rates_measured() is false, at those of a server
  /// core.
  [[nodiscard]] std::array<StageCost, kStageCount> costs() const;
  [[nodiscard]] int threads() const;
  [[nodiscard]] bool rates_measured() const;
  /// May be called once.
  [[nodiscard]] ReplayResult run();

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

[[nodiscard]] ReplayResult replay(const Experiment& experiment, const ReplayOptions& options = {});

}  // namespace kvreplay
