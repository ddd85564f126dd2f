#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/stage.hpp"

namespace kvreplay {

class StageGraph;
class StageOutputs;
class StageStore;
struct Experiment;
struct ReplayTrace;

/// What a replay will compute of one stage.
struct StageCost {
  std::int64_t outputs = 0;  ///< distinct outputs that the cells need
  std::int64_t stored = 0;   ///< already stored, or needed only by finished cells
  double seconds = 0;        ///< estimate for the other outputs
};

/// Estimates the work of each output and its time, by one rate per stage, which is measured during
/// the replay.
class StageEstimate {
 public:
  /// The graph and the store must outlive this object. The rates are those of the store's last
  /// replay, or else those of a server core.
  StageEstimate(const Experiment& experiment, std::span<const ReplayTrace> traces,
                const StageGraph& graph, StageStore& store);

  [[nodiscard]] bool rates_measured() const {
    return rates_measured_;
  }  ///< the rates are the store's
  /// Units of work of a stage's output, by its number in the graph.
  [[nodiscard]] double units(Stage stage, std::size_t output) const {
    return units_[index_of(stage)][output];
  }
  /// Nanoseconds of one thread.
  [[nodiscard]] double nanoseconds(Stage stage, double units) const {
    return rates_[index_of(stage)] * units;
  }
  /// Costs by stage, on `threads` threads that nothing else slows down.
  [[nodiscard]] std::array<StageCost, kStageCount> costs(const StageOutputs& outputs,
                                                         int threads) const;

  /// Records finished work and its time.
  void add_measurement(Stage stage, double units, double thread_ns);
  /// Stores the measured rates.
  void store_rates();

 private:
  struct Meter {
    double units = 0;
    double thread_ns = 0;
  };

  const StageGraph& graph_;
  StageStore& store_;
  std::array<std::vector<double>, kStageCount> units_;  ///< by output
  std::array<double, kStageCount> rates_;               ///< nanoseconds of one thread per unit
  bool rates_measured_ = false;
  std::array<Meter, kStageCount> meters_;
};

}  // namespace kvreplay
