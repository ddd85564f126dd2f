#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/config_folder.hpp"
#include "devices/device_config.hpp"
#include "sim/replay/system.hpp"
#include "sim/time/model_spec.hpp"
#include "sim/time/platform.hpp"

namespace kvreplay {

/// One row of the results: indices into the experiment's lists, and the row's numbers.
struct Cell {
  std::size_t trace = 0;
  std::size_t system = 0;
  std::size_t model = 0;
  std::size_t platform = 0;
  std::size_t device = 0;
  std::int64_t batch = 1;
  std::uint64_t seed = 1;
  std::int64_t steps = 0;          ///< decode steps to decide; 0 = all steps of the trace
  std::int64_t timed_steps = 0;    ///< decode steps to simulate in time; 0 = all after warm-up
  std::int64_t warm_up_steps = 0;  ///< first decode steps that fill the caches and do not count
  std::int64_t prefill_chunk_tokens = 0;  ///< TimeOptions'
  bool after_prefill = false;             ///< TimeOptions'
  bool shared_prefix = false;             ///< TimeOptions'
  double idle_s = 0;                      ///< TimeOptions', as the two that follow
  std::string idle_drops = "nothing";     ///< nothing, cache or memory
  std::string turns_read = "all";         ///< all or selected
  double sustained_s = 0;                 ///< TimeOptions'
  std::int64_t conversation_tokens = 0;   ///< decoded per conversation, for wear
  double conversations_per_day = 0;
  /// This cell's values of Experiment::swept, in its order; none where the key reaches nothing that
  /// the cell uses.
  std::vector<std::optional<Value>> settings;
};

/// What to replay. The file and --set (docs/experiments.md) give combinations of settings. Each
/// combination takes every trace with every system, model, platform, device and batch size that it
/// names. Loading reads and checks every file, so nothing runs on half a configuration.
struct Experiment {
  /// `sets`: "key=value" as given to --set, which replaces the same key of the file. A trace path
  /// in the file is relative to the file's folder; one given to --set is relative to the working
  /// folder.
  [[nodiscard]] static Experiment load(const std::string& file, std::span<const std::string> sets,
                                       const ConfigFolder& configs);
  /// Parameters of the experiment itself: seed, threads, steps, timed_steps ...
  [[nodiscard]] static std::span<const Parameter> parameters();

  std::string name;
  std::string title;
  std::vector<std::string> sets;  ///< as given to load(), except for the number of threads
  int threads = 0;                ///< 0 = one per hardware thread; results do not depend on it

  // Everything that the cells use. Systems, models, platforms and devices that share a name differ
  // by the settings of their cells.
  std::vector<std::string> traces;  ///< files
  std::vector<SystemSpec> systems;
  std::vector<ModelSpec> models;
  std::vector<PlatformSpec> platforms;
  std::vector<DeviceSpec> devices;

  /// What the file sets without effect, or over what a chosen file says: a line each, for the user.
  std::vector<std::string> notes;

  std::vector<std::string> swept;  ///< names, in results, of the settings that differ between cells
  /// Ordered by combination of settings, then trace, model, platform, batch, device, system. A cell
  /// that differs from an earlier one only in settings that do not reach it is left out.
  std::vector<Cell> cells;

  /// Every name, part and number that results depend on, as canonical JSON. Traces stand by name;
  /// their hashes identify their content.
  [[nodiscard]] std::string resolved() const;
};

/// How results name a trace: its file name without folder and endings.
[[nodiscard]] std::string trace_name(const std::string& file);

}  // namespace kvreplay
