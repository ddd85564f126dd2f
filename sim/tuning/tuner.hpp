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

/// What to search, from which systems, and on which traces to validate the result. Members are
/// named like the options of `kvreplay tune`, and errors name those options.
struct TuneRequest {
  ExperimentRequest experiment{};
  std::string system{};  ///< whose parameters are searched; "any" also searches the parts
  Goal goal{};
  std::vector<std::string> hold{};     ///< SpaceOptions::held
  std::vector<std::string> exclude{};  ///< SpaceOptions::excluded
  /// Systems to compare with, by name or file. Empty: the experiment's systems. Where parts are
  /// searched, the search starts from them.
  std::vector<std::string> against{};
  SearchOptions search{};
  /// Share of the evaluations that goes to parameters of the systems in the comparison, as many for
  /// each.
  double comparison_share = 0.5;
  std::string best_by = "auto";  ///< one of best_rules()
  /// Traces that nothing is tuned on. Without a value: of the two that ship, the dialogue if the
  /// search is tuned on the story.
  std::optional<std::vector<std::string>> validate{};
};

/// Searches compositions of parts and arguments on replays of one trace. It goes from systems that
/// ship to compositions, their scores, the best one, and its results on other texts.
class Tuner {
 public:
  /// Reads and checks everything that the search needs. Throws UserError before any work: for
  /// unknown names, for an experiment with several traces, models and so on, and where the trace
  /// does not allow the tuned system.
  explicit Tuner(TuneRequest request);
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// What is tuned: "any", or the name of the system.
  [[nodiscard]] std::string name() const;
  /// One line per system that the trace does not allow, which is neither a start nor a reference.
  [[nodiscard]] const std::vector<std::string>& left_out() const { return left_out_; }
  /// Upper limit of the compositions that tune() evaluates.
  [[nodiscard]] std::int64_t work() const;
  /// Units of progress of tune() and validate() together.
  [[nodiscard]] std::int64_t progress_units() const;

  /// Searches and judges. `progress`: null = none. Throws UserError where nothing can be replayed,
  /// or nothing meets the limits.
  [[nodiscard]] Tuning tune(StageStore& store, Progress* progress) const;
  /// Replays the front, the best, the references and the best of their variants on each validation
  /// trace.
  [[nodiscard]] std::vector<Validation> validate(const Tuning& tuning, StageStore& store,
                                                 Progress* progress = nullptr) const;
  /// evaluated.csv, front.csv, comparison.csv, validation.TRACE.csv, best.json, answer.txt and
  /// manifest.json; and replay.json, an experiment that replays best.json as it was judged, with
  /// judged.model.json, judged.platform.json and judged.device.json. `command` reproduces the
  /// results.
  [[nodiscard]] std::vector<ResultFile> files(const Tuning& tuning,
                                              const std::vector<Validation>& validations,
                                              const std::string& command, StageStore& store) const;

 private:
  [[nodiscard]] bool any_part() const;
  void take_references();
  /// Evaluations for each reference's parameters.
  [[nodiscard]] std::int64_t tries_per_reference() const;
  [[nodiscard]] std::vector<ResultFile> replay_files() const;
  void describe(Tuning& tuning) const;
  [[nodiscard]] Validation validate_on(const std::string& trace, const Tuning& tuning,
                                       StageStore& store, Progress* progress) const;
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
