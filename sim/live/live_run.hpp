#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "devices/real/block_target.hpp"
#include "sim/live/live_io.hpp"
#include "sim/live/live_layer.hpp"
#include "sim/models/model_file.hpp"
#include "sim/models/model_text.hpp"
#include "sim/models/next_token.hpp"
#include "sim/replay/replay_result.hpp"
#include "sim/replay/system.hpp"

namespace kvreplay {

struct LiveOptions {
  ModelText text{};  ///< prompt_tokens + steps ids that are followed, or a prompt to continue
  std::int64_t prompt_tokens = 1024;
  std::int64_t steps = 128;
  /// The steps' tokens are drawn by the model; none: those of the text are followed.
  std::optional<SamplingOptions> sampling = std::nullopt;
  std::int64_t query_window = 64;  ///< last queries of the prompt that policies may look at
  const AdapterSource* adapters = nullptr;
  std::uint64_t seed = 1;
  int threads = 1;
  bool check = false;    ///< keeps a copy of every stored entry, and compares what is read
  std::string record{};  ///< the trace to write; queries are then used as it holds them
  std::string created_utc{};
  const std::atomic<bool>* stop = nullptr;  ///< ends the run after the step under way
  /// Called for each token that the model says or the text has, the first after the prompt.
  std::function<void(std::int32_t id)> on_token{};
};

/// Peaks of the process's own count, in bytes; and what the system counts, 0 where it does not.
struct LiveMemory {
  std::int64_t entries_bytes = 0;  ///< stored entries in memory, and blocks that wait to be written
  /// Layers without a part on the target, in half precision; twice where the system stores them in
  /// another form, whose decoded entries stand beside them.
  std::int64_t in_memory_layers_bytes = 0;
  std::int64_t decoded_bytes = 0;  ///< rows of the layer that computes
  std::int64_t io_bytes = 0;       ///< buffers that requests land in
  /// Resident after the last step, without mapped files such as the model's.
  std::int64_t process_in_steps_bytes = 0;
  std::int64_t process_peak_bytes = 0;  ///< of all that was resident, the prompt's work included
};

/// What the processor did in the steps, in nanoseconds. The first three are the model's; `layers`
/// of those with entries on the target.
struct LiveWorkTimes {
  std::int64_t project_ns = 0;
  std::int64_t layer_ns = 0;      ///< output projection and feed-forward part
  std::int64_t head_ns = 0;       ///< last norm, LM head
  std::int64_t in_memory_ns = 0;  ///< attention and appending of layers that are whole in memory
  std::int64_t start_ns = 0;      ///< transfers handed to the engine
  /// Computations beside transfers, handed to another thread and seen to be over.
  std::int64_t hand_over_ns = 0;
  LiveLayerWork layers{};
};

struct LiveResult {
  double stolen_share = 0;        ///< of the processors' time, which the host took during the steps
  std::vector<std::int32_t> ids;  ///< the prompt's, and the steps'
  std::vector<float> log_probability;   ///< of the token after each step; 0 at the last
  std::vector<std::int32_t> likeliest;  ///< after each step
  std::vector<StepTiming> steps;
  LiveWorkTimes work;           ///< of all steps
  double prompt_s = 0;          ///< prefill, grouping, and its writes as far as they are waited for
  double first_token_s = 0;     ///< until the first token after the prompt is known
  std::int64_t base_reads = 0;  ///< blocks read because a write covers only a part of them
  std::int64_t checked_entries = 0;
  std::int64_t checked_extents = 0;  ///< compared with those of stage 2
  LiveMemory memory;
  AccessLog log;
  IoPlan plan;  ///< what stage 2 makes of the log
  bool interrupted = false;
};

/// Bytes of a target that the run takes at most, by estimate: entries with room to grow.
[[nodiscard]] std::uint64_t live_target_bytes(const Model& model, const SystemSpec& system,
                                              std::int64_t tokens, const DeviceLimits& limits);

/// The fewest bytes of a target with which the run could succeed: half of the prompt's stored
/// entries, in whole regions of the layers. A layout may take more.
[[nodiscard]] std::uint64_t least_live_target_bytes(const Model& model, const SystemSpec& system,
                                                    std::int64_t prompt_tokens,
                                                    std::int64_t tokens);

/// Throws UserError for a system that live cannot run with this model; of parts that need adapters
/// or token statistics, run_live() says so.
void check_live_system(const Model& model, const SystemSpec& system, std::int64_t prompt_tokens,
                       std::int64_t tokens);

/// Runs the model with the system's pipeline, policy, cache and layout, its entries on a target
/// that is open for writing. It is called on the thread that may do I/O: it makes its own engine.
/// UserErrors: a system that live cannot run, a target too small, a failed request, a wrong entry.
[[nodiscard]] LiveResult run_live(const Model& model, const SystemSpec& system,
                                  const BlockTarget* target, const LiveIo::Options& io,
                                  const LiveOptions& options);

/// The shape of a model file, with the bits of its weights.
[[nodiscard]] ModelSpec model_spec_of(const Model& model);

/// Throws UserError at `place` unless the model file has the layers, widths, heads and vocabulary
/// of the config. Bits of weights may differ: a file may hold them in another form.
void check_shape(const Model& model, const ModelSpec& config, const SourceLocation& place);

/// The run as a row of results.csv, with what stage 2 knows of it.
[[nodiscard]] CellResult live_cell(const Model& model, const SystemSpec& system,
                                   const std::string& device, const LiveOptions& options,
                                   const LiveResult& result);

/// The system with its index seeing entries as they are stored, which is all that live has.
[[nodiscard]] SystemSpec as_live_runs_it(SystemSpec system);

}  // namespace kvreplay
