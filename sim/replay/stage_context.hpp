#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "base/progress.hpp"
#include "sim/replay/experiment.hpp"
#include "sim/replay/replay_trace.hpp"
#include "sim/replay/stage_estimate.hpp"
#include "sim/replay/stage_graph.hpp"
#include "sim/replay/stage_store.hpp"

namespace kvreplay {

/// What the computation of every stage uses. All of it outlives its users.
struct StageContext {
  const Experiment& experiment;
  std::span<const ReplayTrace> traces;
  const StageGraph& graph;
  StageEstimate& estimate;
  StageStore& store;
  int threads = 1;
  bool check = false;            ///< ReplayOptions::check
  Progress* progress = nullptr;  ///< null = show nothing

  /// Names the next piece of work for display, and the nanoseconds that each Progress::advance()
  /// stands for.
  void begin_stage(const std::string& stage, std::size_t trace, double ns_per_advance) const {
    if (progress != nullptr) {
      progress->begin_stage(stage + " " + traces[trace].name, ns_per_advance);
    }
  }
  void advance() const {
    if (progress != nullptr) progress->advance();
  }
};

class Stopwatch {
 public:
  [[nodiscard]] double nanoseconds() const {
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace kvreplay
