#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/replay/experiment.hpp"
#include "sim/replay/replay.hpp"

namespace kvreplay {

/// Replays systems on one trace, model, platform, device and batch: those of an experiment's cell.
class Evaluator {
 public:
  /// The experiment and the store outlive this object.
  Evaluator(const Experiment& experiment, const Cell& cell, StageStore& store);

  /// In the order of the systems. None where a stage refuses a system: what its parts' checks did
  /// not see before the replay.
  [[nodiscard]] std::vector<std::optional<CellResult>> evaluate(
      std::span<const SystemSpec> systems) const;

 private:
  [[nodiscard]] std::vector<CellResult> replay_all(std::span<const SystemSpec> systems) const;

  const Experiment& experiment_;
  Cell cell_;
  StageStore& store_;
};

/// The one combination of trace, model, platform, device, batch and settings that all cells have in
/// common, whatever their system. UserError where there are several.
[[nodiscard]] Cell common_cell(const Experiment& experiment);

}  // namespace kvreplay
