#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result_folder.hpp"
#include "sim/replay/experiment_request.hpp"
#include "sim/tuning/search.hpp"
#include "sim/tuning/tuning.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

class Progress;
class StageStore;

/// What to search, from where, and on what to try again what was found. Members are named as the
/// options of `kvreplay tune` are, and so are errors.
struct TuneRequest {
  ExperimentRequest experiment{};
  std::string system{};  ///< whose parameters are searched, or "any": also the parts
  Goal goal{};
  std::vector<std::string> hold{};     ///< SpaceOptions::held
  std::vector<std::string> exclude{};  ///< SpaceOptions::excluded
  /// Systems to compare with, by name or file. None: the experiment's where parts are searched,
  /// from which the search then starts; else the system as it ships.
  std::vector<std::string> against{};
  SearchOptions search{};
  std::string best_by = "auto";  ///< of best_rules()
  /// Traces that nothing is tuned on. Without a value: of the two that ship, the dialogue for what
  /// is tuned on the story.
  std::optional<std::vector<std::string>> validate{};
};

/// A search of compositions of parts and arguments on replays of one trace: from systems that ship
/// to compositions, their scores, the best of them, and how these do on other texts.
class Tuner {
 public:
  /// Reads and checks all that the search needs. UserError, before any work: of what is named and
  /// not known, of an experiment with several traces, models ..., and where the trace does not
  /// allow the system that is tuned.
  explicit Tuner(TuneRequest request);
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// Of what is tuned: "any", or the system's.
  [[nodiscard]] std::string name() const;
  /// A line for each system that the trace does not allow: no start and no reference.
  [[nodiscard]] const std::vector<std::string>& left_out() const { return left_out_; }
  /// Compositions that tune() evaluates at most, its unit of progress.
  [[nodiscard]] std::int64_t work() const;

  /// Searches and judges. `store` and `progress`: null = none. UserError where nothing can be
  /// replayed, or nothing meets the limits.
  [[nodiscard]] Tuning tune(StageStore& store, Progress* progress) const;
  /// Replays the front, the best and the references on each of those traces.
  [[nodiscard]] std::vector<Validation> validate(const Tuning& tuning, StageStore& store) const;
  /// evaluated.csv, front.csv, comparison.csv, validation.TRACE.csv, best.json, answer.txt,
  /// manifest.json. `command` gives the same results again.
  [[nodiscard]] std::vector<ResultFile> files(const Tuning& tuning,
                                              const std::vector<Validation>& validations,
                                              const std::string& command, StageStore& store) const;

 private:
  [[nodiscard]] bool any_part() const;
  void take_references();
  [[nodiscard]] const std::string* reference_name(const Composition& composition) const;
  void describe(Tuning& tuning) const;
  [[nodiscard]] Validation validate_on(const std::string& trace, const Tuning& tuning,
                                       StageStore& store) const;
  [[nodiscard]] std::string manifest(const Tuning& tuning,
                                     const std::vector<Validation>& validations,
                                     const std::string& command, StageStore& store) const;

  const TuneRequest request_;
  const Experiment experiment_;
  const Cell cell_;
  const TraceReader trace_;
  const SearchSpace space_;
  const std::vector<std::string> validation_traces_;
  std::vector<std::pair<std::string, Composition>> references_;
  std::vector<std::string> left_out_;
};

}  // namespace kvreplay
