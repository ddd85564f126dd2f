#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "policies/place/place.hpp"
#include "sim/replay/decided_logs.hpp"
#include "sim/replay/stage_context.hpp"
#include "sim/replay/stage_outputs.hpp"
#include "sim/time/known_prefills.hpp"

namespace kvreplay {

class Schedule;

struct ExecutorOptions {
  std::int64_t memory_bytes = 0;  ///< limit for logs and plans together
  std::string access_log_folder;  ///< as ReplayOptions has it
  bool record_tokens = false;
  Schedule* schedule = nullptr;          ///< receives what the timed steps of the single timing do
  Schedule* prefill_schedule = nullptr;  ///< receives what its prefill does
  /// Called with the graph's number of each timing as soon as it is known, from any thread.
  std::function<void(std::size_t timing)> on_timing;
};

/// Computes the unknown outputs of a graph's shard within a memory limit, and stores each as soon
/// as it is known.
class StageExecutor {
 public:
  /// `outputs` receives what is computed. It and the context must outlive this object.
  StageExecutor(const StageContext& context, StageOutputs& outputs, ExecutorOptions options);
  void run();

 private:
  void check_traces() const;
  [[nodiscard]] std::vector<std::vector<std::size_t>> chunks() const;
  void run_chunk(const std::vector<std::size_t>& chunk);
  [[nodiscard]] std::string settings_of(std::size_t decision, const std::string& system) const;
  void write_logs(std::size_t decision);
  void run_plans(const std::vector<std::size_t>& chunk);
  std::int64_t run_window(std::span<const std::size_t> placements);
  [[nodiscard]] std::vector<IoPlan> place_all(std::span<const std::size_t> placements);
  void time_all(std::span<const std::size_t> placements, std::span<const IoPlan> plans);
  [[nodiscard]] IoPlan plan_of(std::size_t placement, double& units);
  void time(const IoPlan& plan, std::size_t timing);
  void add_measurement(Stage stage, const std::vector<double>& units, const Stopwatch& watch) const;

  const StageContext& context_;
  StageOutputs& outputs_;
  const ExecutorOptions options_;
  DecidedLogs logs_;
  KnownPrefills prefills_;
  std::map<std::string, int> logs_written_;  ///< by name
  std::int64_t max_plan_bytes_ = 0;
};

}  // namespace kvreplay
