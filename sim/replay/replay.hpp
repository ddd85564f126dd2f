#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policies/decide/layer_means.hpp"
#include "sim/replay/experiment.hpp"
#include "sim/time/time_plan.hpp"
#include "sim/time/timeline.hpp"

namespace kvreplay {

class Schedule;
class StageStore;

/// Of the experiment's swept keys: name and value; none where the key reaches nothing in the row.
using RowSettings = std::vector<std::pair<std::string, std::optional<Value>>>;

/// One recorded layer of one system: a row of quality.csv.
struct LayerQuality {
  std::string trace;
  bool synthetic = false;  ///< the trace was generated, not recorded
  std::string system;
  RowSettings settings;  ///< those that stage 1 may depend on
  std::int64_t layer = 0;
  bool dense = false;
  QualityMeans means;
};

/// One cell of the experiment: a row of results.csv.
struct CellResult {
  std::string trace;
  bool synthetic = false;  ///< the trace was generated, not recorded
  std::string system;
  std::string model;
  std::string platform;
  std::string device;
  std::int64_t batch = 1;
  std::string projection;  ///< "none", or the recorded and the target shape
  RowSettings settings;
  std::int64_t platform_dram_bytes = 0;
  Timing timing;
  QualityMeans quality;
};

struct TraceHash {
  std::string trace;   ///< as the rows name it
  std::string sha256;  ///< of the file
  bool synthetic = false;
};

struct ReplayResult {
  std::vector<CellResult> cells;  ///< of the shard, in the experiment's order
  std::vector<LayerQuality> layers;
  std::vector<TraceHash> traces;

  std::vector<CellTimeline> timelines;  ///< of the first cells: ReplayOptions::timeline_steps

  // Where they belong in the whole experiment: cells[i] is the cell with number cell_numbers[i],
  // and layers[i] belongs to the block of rows that the cell layer_blocks[i] is the first to need.
  std::vector<std::size_t> cell_numbers;
  std::vector<std::size_t> layer_blocks;
};

/// Part `index` (from 1) of `count` of the cells: those that share stage 1 or 2 stay together as
/// far as parts of equal size allow.
struct Shard {
  std::size_t index = 1;
  std::size_t count = 1;
};

struct ReplayOptions {
  bool show_progress = false;
  /// Where to write TRACE.SYSTEM.access.h5 for every access log; "" = nowhere.
  std::string access_log_folder{};
  bool record_tokens = false;   ///< the access logs name every attended token
  StageStore* store = nullptr;  ///< where outputs of stages are kept and found; null = nowhere
  Shard shard{};
  /// What the outputs of stages may take in memory at once; 0 = four fifths of what is available.
  std::int64_t memory_bytes = 0;
  /// Receives what the timed steps do. Then the experiment has one cell, a UserError otherwise, and
  /// there is no store.
  Schedule* schedule = nullptr;
  /// Timed steps of each of the first `timeline_cells` cells that timelines show; 0 = none. These
  /// cells are timed also where the store has their timing.
  std::int64_t timeline_steps = 0;
  std::size_t timeline_cells = 0;
  /// What to show of a cell, with its number, as soon as it is finished.
  std::function<std::string(const CellResult&, std::size_t number)> cell_line{};
};

/// What a replay will compute, by stage.
struct StageCost {
  std::int64_t outputs = 0;  ///< different ones that the cells need
  std::int64_t kept = 0;     ///< of them in the store, or needed by no cell that is not finished
  double seconds = 0;        ///< for the others: an estimate, see Replay::costs()
};

/// The three stages end to end. Every output of a stage is computed once, whatever the number of
/// cells that depend on it: a decision for each (trace, stage-1 composition, seed, steps), a plan
/// for each decision, cache, layout and shape, a timing for each cell. With a store, each is kept
/// as soon as it is known, and found there by the next replay.
class Replay {
 public:
  /// Reads the traces' attributes and hashes, and looks into the store.
  Replay(const Experiment& experiment, const ReplayOptions& options);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  [[nodiscard]] std::size_t cells() const;           ///< of the shard
  [[nodiscard]] std::size_t finished_cells() const;  ///< of them, found in the store
  /// Seconds are of threads() threads that nothing else slows down, at the rates that the store's
  /// last replay took, or else, where rates_measured() is false, at those of a server core.
  [[nodiscard]] std::array<StageCost, 3> costs() const;
  [[nodiscard]] int threads() const;
  [[nodiscard]] bool rates_measured() const;
  /// Once.
  [[nodiscard]] ReplayResult run();

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

[[nodiscard]] ReplayResult replay(const Experiment& experiment, const ReplayOptions& options = {});

}  // namespace kvreplay
