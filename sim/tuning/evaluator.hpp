#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/replay/experiment.hpp"
#include "sim/replay/replay.hpp"

namespace kvreplay {

/// Replays systems on one trace, model, platform, device and batch, which are those of an
/// experiment's cell.
class Evaluator {
 public:
  /// The experiment and the store must outlive this object.
  Evaluator(const Experiment& experiment, const Cell& cell, StageStore& store);

  /// Results in the order of the systems. None for a system that a stage refuses, which the checks
  /// of its parts did not find before the replay; `refused`, unless null, receives its name and
  /// what the stage said.
  [[nodiscard]] std::vector<std::optional<CellResult>> evaluate(
      std::span<const SystemSpec> systems,
      std::map<std::string, std::string>* refused = nullptr) const;

  /// Seconds that evaluating the systems takes, by estimate, if nothing else runs.
  [[nodiscard]] double seconds(std::span<const SystemSpec> systems) const;

 private:
  [[nodiscard]] Experiment experiment_of(std::span<const SystemSpec> systems) const;
  [[nodiscard]] std::vector<CellResult> replay_all(std::span<const SystemSpec> systems) const;

  const Experiment& experiment_;
  Cell cell_;
  StageStore& store_;
};

/// The single combination of trace, model, platform, device, batch and settings that all cells
/// share, whatever their system. Throws UserError where there are several.
[[nodiscard]] Cell common_cell(const Experiment& experiment);

}  // namespace kvreplay
