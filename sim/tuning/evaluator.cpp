#include "sim/tuning/evaluator.hpp"

#include <iterator>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.hpp"

namespace kvreplay {

Evaluator::Evaluator(const Experiment& experiment, const Cell& cell, StageStore& store)
    : experiment_(experiment), cell_(cell), store_(store) {
  cell_.settings.clear();
}

std::vector<std::optional<CellResult>> Evaluator::evaluate(
    std::span<const SystemSpec> systems, std::map<std::string, std::string>* refused) const {
  if (systems.empty()) return {};
  try {
    std::vector<CellResult> cells = replay_all(systems);
    return {std::move_iterator(cells.begin()), std::move_iterator(cells.end())};
  } catch (const UserError& error) {
    // One of them is at fault. Halving finds it in few replays.
    if (systems.size() == 1) {
      if (refused != nullptr) (*refused)[systems.front().name] = error.what();
      return {std::nullopt};
    }
  } catch (const std::logic_error& error) {
    // A bug of ours. What shows it is worth knowing.
    if (systems.size() == 1) {
      throw std::logic_error(std::string(error.what()) + ", in a replay of " +
                             systems.front().resolved());
    }
  }
  const std::size_t half = systems.size() / 2;
  std::vector<std::optional<CellResult>> cells = evaluate(systems.first(half), refused);
  for (std::optional<CellResult>& cell : evaluate(systems.subspan(half), refused)) {
    cells.push_back(std::move(cell));
  }
  return cells;
}

Experiment Evaluator::experiment_of(std::span<const SystemSpec> systems) const {
  Experiment experiment;
  experiment.name = experiment_.name;
  experiment.title = experiment_.title;
  experiment.threads = experiment_.threads;
  experiment.traces = {experiment_.traces[cell_.trace]};
  experiment.models = {experiment_.models[cell_.model]};
  experiment.platforms = {experiment_.platforms[cell_.platform]};
  experiment.devices = {experiment_.devices[cell_.device]};
  experiment.systems.assign(systems.begin(), systems.end());
  for (std::size_t i = 0; i < systems.size(); ++i) {
    Cell cell = cell_;
    cell.trace = cell.model = cell.platform = cell.device = 0;
    cell.system = i;
    experiment.cells.push_back(std::move(cell));
  }
  return experiment;
}

std::vector<CellResult> Evaluator::replay_all(std::span<const SystemSpec> systems) const {
  ReplayOptions options;
  options.store = store_;
  return replay(experiment_of(systems), options).cells;
}

double Evaluator::seconds(std::span<const SystemSpec> systems) const {
  ReplayOptions options;
  options.store = store_;
  const Experiment experiment = experiment_of(systems);
  double sum = 0;
  for (const StageCost& cost : Replay(experiment, options).costs()) sum += cost.seconds;
  return sum;
}

Cell common_cell(const Experiment& experiment) {
  const auto rest = [](const Cell& cell) {
    return std::tuple(cell.trace, cell.model, cell.platform, cell.device, cell.batch, cell.seed,
                      cell.steps, cell.timed_steps, cell.warm_up_steps);
  };
  const Cell& first = experiment.cells.front();
  for (const Cell& cell : experiment.cells) {
    if (rest(cell) == rest(first)) continue;
    throw UserError({experiment.name, ""},
                    "has several traces, models, platforms, devices, batches or settings",
                    "one of each; choose by --set, such as --set device=ufs40");
  }
  return first;
}

}  // namespace kvreplay
