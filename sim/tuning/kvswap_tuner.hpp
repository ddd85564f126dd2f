#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result_folder.hpp"
#include "sim/replay/experiment_request.hpp"
#include "sim/tuning/evaluator.hpp"
#include "sim/tuning/kvswap_solver.hpp"
#include "sim/tuning/search_space.hpp"

namespace kvreplay {

class Progress;
class StageStore;

/// What KVSwap's tuner is asked for. Members are named as the options of `kvreplay tune` are, and
/// so are errors.
struct KvSwapRequest {
  ExperimentRequest experiment{};
  std::string system{};          ///< made as kvswap is
  std::int64_t budget_mib = 0;   ///< memory of KV management of one sequence, all layers
  std::int64_t max_context = 0;  ///< tokens
  std::int64_t max_batch = 1;
  double alpha = 0.1;  ///< share of the I/O time that compute need not hide
  std::int64_t max_group_tokens = 16;
  std::int64_t max_sigma = 32;
  std::int64_t initial_reuse_tokens = 0;
  std::int64_t delta_tokens = 0;
};

/// The tuner's table: a solution for each batch and context, from replays of a trace.
class KvSwapTuner {
 public:
  /// Reads and checks all that it needs. UserError, before any work.
  explicit KvSwapTuner(const KvSwapRequest& request);

  /// The system's.
  [[nodiscard]] const std::string& name() const { return experiment_.systems.front().name; }
  [[nodiscard]] const KvSwapProblem& problem() const { return problem_; }
  /// Pairs of batch and context, the unit of progress of solve().
  [[nodiscard]] std::int64_t work() const { return std::ssize(cells_); }

  struct Solution {
    std::int64_t batch = 0;
    std::int64_t context_tokens = 0;
    std::optional<KvSwapSolution> found;  ///< none where nothing fits into the budget
  };
  /// What was measured on the way to solutions.
  struct Measured {
    /// By (sigma, group_tokens), on which quality depends, whatever the capacity.
    std::map<std::pair<std::int64_t, std::int64_t>, KvSwapMeasured> quality;
    std::map<KvSwapSetting, double> reuse_rate;  ///< of the last cell that tried the setting
    bool synthetic = false;
  };
  struct Solved {
    std::vector<Solution> solutions;  ///< by context, then batch
    Measured measured;
    std::string trace_sha256;
  };
  /// `progress`: null = none. UserError where nothing fits into the budget.
  [[nodiscard]] Solved solve(StageStore& store, Progress* progress) const;

  /// The solutions, to be read.
  [[nodiscard]] static std::string table(const Solved& solved);
  /// solutions.json, table.txt and manifest.json. `command` gives the same results again.
  [[nodiscard]] std::vector<ResultFile> files(const Solved& solved,
                                              const std::string& command) const;

 private:
  void find_contexts();
  void load();
  void state_problem();
  [[nodiscard]] std::int64_t context_of(const Cell& cell) const;
  [[nodiscard]] KvSwapMeasured measure(const Evaluator& evaluator, const KvSwapSetting& setting,
                                       Measured& all) const;

  const KvSwapRequest request_;
  const std::vector<std::int64_t> batches_;
  std::vector<std::int64_t> contexts_;
  Experiment experiment_;
  int threads_ = 1;
  std::vector<Cell> cells_;  ///< by context, then batch
  Composition base_;
  KvSwapProblem problem_;
};

/// The solution of a solutions.json that is nearest to a batch and a context, as a system.
struct LookedUpSolution {
  std::string system;  ///< the text of a system's file
  std::int64_t batch = 0;
  std::int64_t context_tokens = 0;
};
/// UserError where the file is none, or no solution fits its budget at so long a context.
[[nodiscard]] LookedUpSolution look_up_solution(const std::string& file, std::int64_t batch,
                                                std::int64_t context_tokens);

}  // namespace kvreplay
