#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/replay/experiment.hpp"
#include "sim/tuning/goal.hpp"
#include "sim/tuning/search.hpp"
#include "tools/kvreplay/cache_options.hpp"

namespace kvreplay {

struct TuneOptions {
  std::string command;  ///< what was asked for: without threads, cache and folder of results

  // What is tuned, and on what.
  std::string experiment = "tune";
  std::string system;
  std::vector<std::string> members;  ///< settings that --model, --device ... stand for
  std::vector<std::string> sets;
  std::string configs;
  std::string out;
  int threads = 0;
  CacheOptions cache;

  // The search.
  SearchOptions search;
  std::string quality = "output_error";
  std::string max_dram;
  double max_latency_ms = 0;
  double min_attention_mass = 0;
  double max_output_error = 0;
  std::string best_by = "auto";
  std::vector<std::string> against;
  std::vector<std::string> validate;
  bool no_validation = false;
  std::vector<std::string> hold;
  std::vector<std::string> exclude{"grouping/global"};

  // KVSwap's tuner.
  std::int64_t budget_mib = 0;
  std::int64_t max_context = 0;
  std::int64_t max_batch = 1;
  double alpha = 0.1;
  std::int64_t max_group_tokens = 16;
  std::int64_t max_sigma = 32;
  std::int64_t initial_reuse_tokens = 0;
  std::int64_t delta_tokens = 0;

  // A solution of it.
  std::string look_up;
  std::int64_t batch = 1;
  std::int64_t context = 0;
};

/// The experiment with the options' settings and `more`, which win.
[[nodiscard]] Experiment load_experiment(const TuneOptions& options,
                                         const std::vector<std::string>& more);

/// Searches compositions of parts and arguments, writes a folder of results, prints the answer.
void tune_search(const TuneOptions& options);
/// KVSwap's tuner: writes a folder with solutions.json, prints its table.
void tune_kvswap(const TuneOptions& options);
/// Prints the system of the nearest solution.
void look_up_solution(const TuneOptions& options);

// What a search found, for its report.

struct TunedRow {
  std::string name;  ///< of the system, or by the number of the evaluation
  Composition composition;
  std::int64_t generation = 0;
  bool reference = false;  ///< a system as it ships, with the experiment's settings
  bool on_front = false;
  Score score{};
  CellResult cell{};
};

struct Tuning {
  Goal goal;
  std::string about;  ///< model, platform, device, batch
  std::string space;  ///< what was searched
  std::vector<TunedRow> rows;
  std::size_t best = 0;     ///< a row
  std::string best_reason;  ///< the rule that chose it
};

/// A trace that nothing was tuned on: the front, the best and the references of `Tuning::rows`.
struct Validation {
  std::string trace;
  std::vector<TunedRow> rows;
  std::string problem;  ///< why there are no rows
};

/// Marks the front, which takes rows that meet the limits alone, and picks the best by the rule:
/// "latency", "quality", "balance", or "auto". UserError where no row meets the limits.
void judge(Tuning& tuning, const std::string& best_by);

[[nodiscard]] std::string rows_csv(const std::vector<TunedRow>& rows);
[[nodiscard]] std::string comparison_csv(const Tuning& tuning);
/// The answer in plain words.
[[nodiscard]] std::string answer_text(const Tuning& tuning,
                                      const std::vector<Validation>& validations);

}  // namespace kvreplay
