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

/// The arguments of KVSwap's tuner. Members are named like the options of `kvreplay tune`, and
/// errors name those options.
struct KvSwapRequest {
  ExperimentRequest experiment{};
  std::string system{};          ///< composed like kvswap
  std::int64_t budget_mib = 0;   ///< memory of KV management per sequence, over all layers
  std::int64_t max_context = 0;  ///< tokens
  std::int64_t max_batch = 1;
  double alpha = 0.1;  ///< share of the I/O time that compute need not hide
  std::int64_t max_group_tokens = 16;
  std::int64_t max_sigma = 32;
  std::int64_t initial_reuse_tokens = 0;
  std::int64_t delta_tokens = 0;
};

/// Computes the tuner's table, a solution per batch and context, from replays of a trace.
class KvSwapTuner {
 public:
  /// Reads and checks everything that the tuner needs. Throws UserError before any work.
  explicit KvSwapTuner(const KvSwapRequest& request);

  /// The system's name.
  [[nodiscard]] const std::string& name() const { return experiment_.systems.front().name; }
  [[nodiscard]] const KvSwapProblem& problem() const { return problem_; }
  /// Pairs of batch and context: the unit of progress of solve().
  [[nodiscard]] std::int64_t work() const { return std::ssize(cells_); }

  struct Solution {
    std::int64_t batch = 0;
    std::int64_t context_tokens = 0;
    std::optional<KvSwapSolution> found;  ///< none where nothing fits into the budget
  };
  /// What was measured for the solutions.
  struct Measured {
    /// By (sigma, group_tokens): quality does not depend on the capacity.
    std::map<std::pair<std::int64_t, std::int64_t>, KvSwapMeasured> quality;
    std::map<KvSwapSetting, double> reuse_rate;  ///< of the last cell that tried the setting
    bool synthetic = false;
    std::string stretched{};  ///< stretched_text() of the first longer context
  };
  struct Solved {
    std::vector<Solution> solutions;  ///< by context, then batch
    Measured measured;
    std::string trace_sha256;
  };
  /// `progress`: null = none. Throws UserError where nothing fits into the budget.
  [[nodiscard]] Solved solve(StageStore& store, Progress* progress) const;

  /// The solutions, for people.
  [[nodiscard]] static std::string table(const Solved& solved);
  /// solutions.json, table.txt and manifest.json. `command` reproduces the results.
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

/// The solution in a solutions.json that is nearest to a batch and a context, as a system.
struct LookedUpSolution {
  std::string system;  ///< text of the system's file
  std::int64_t batch = 0;
  std::int64_t context_tokens = 0;
};
/// Throws UserError where the file is not valid, or no solution fits its budget at so long a
/// context.
[[nodiscard]] LookedUpSolution look_up_solution(const std::string& file, std::int64_t batch,
                                                std::int64_t context_tokens);

}  // namespace kvreplay
