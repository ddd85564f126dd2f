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
  /// Where outputs of stages are kept and found. It outlives the replay.
  std::reference_wrapper<StageStore> store = StageStore::none();
  Shard shard{};
  /// Whether each computed step is held against what docs/architecture.md promises, with a
  /// std::logic_error where it does not hold. On in builds with assertions.
  bool check = kChecksByDefault;
  /// What the outputs of stages may take in memory at once; 0 = four fifths of what is available.
  std::int64_t memory_bytes = 0;
  /// Receives what the timed steps do. Then the experiment has one cell, a UserError otherwise. It
  /// is timed also where the store has its timing.
  Schedule* schedule = nullptr;
  /// Timed steps of each of the first `timeline_cells` cells that timelines show; 0 = none. These
  /// cells are timed also where the store has their timing.
  std::int64_t timeline_steps = 0;
  std::size_t timeline_cells = 0;
  /// What to show of a cell, with its number, as soon as it is finished.
  std::function<std::string(const CellResult&, std::size_t number)> cell_line{};
};

/// The three stages end to end. Every output of a stage is computed once, whatever the number of
/// cells that depend on it: a decision for each (trace, stage-1 composition, seed, steps), a plan
/// for each decision, cache, layout and shape, a timing for each cell. Each is given to the store
/// as soon as it is known, and found there by the next replay.
class Replay {
 public:
  /// Reads the traces' attributes and hashes, and looks into the store. The experiment outlives
  /// this object.
  Replay(const Experiment& experiment, const ReplayOptions& options);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  [[nodiscard]] std::size_t cells() const;           ///< of the shard
  [[nodiscard]] std::size_t finished_cells() const;  ///< of them, found in the store
  /// By stage. Seconds are of threads() threads that nothing else slows down, at the rates that the
  /// store's last replay took, or else, where rates_measured() is false, at those of a server core.
  [[nodiscard]] std::array<StageCost, kStageCount> costs() const;
  [[nodiscard]] int threads() const;
  [[nodiscard]] bool rates_measured() const;
  /// Once.
  [[nodiscard]] ReplayResult run();

 private:
  struct Work;
  std::unique_ptr<Work> work_;
};

[[nodiscard]] ReplayResult replay(const Experiment& experiment, const ReplayOptions& options = {});

}  // namespace kvreplay
