#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "devices/device_config.hpp"
#include "sim/base/config_folder.hpp"
#include "sim/model.hpp"
#include "sim/platform.hpp"
#include "sim/system.hpp"

namespace kvreplay {

/// What to replay: every trace with every system, model, platform, device and batch size. Loading
/// reads and checks every file that it names, so nothing runs on half a configuration.
struct Experiment {
  /// `sets`: "key=value" as given to --set, applied in order over the file's members:
  ///   device=emmc51,ufs40             replaces a member; a comma list where the member takes one
  ///   system.cache.capacity_groups=9  a parameter of every system whose cache has it
  ///   system.kvswap.cache.part=lru    the same, of one system
  ///   model.weight_bits=4             likewise for model, platform and device
  /// The file's "set" member holds such keys, too; they come first. A trace path in the file is
  /// relative to the file's folder, one given to --set to the working folder.
  [[nodiscard]] static Experiment load(const std::string& file, std::span<const std::string> sets,
                                       const ConfigFolder& configs);
  /// Parameters of the experiment itself: seed, threads, steps, timed_steps, warm_up_steps.
  [[nodiscard]] static std::span<const Parameter> parameters();

  std::string name;
  std::string title;
  std::vector<std::string> traces;  ///< files
  std::vector<SystemSpec> systems;
  std::vector<ModelSpec> models;
  std::vector<PlatformSpec> platforms;
  std::vector<DeviceSpec> devices;
  std::vector<std::int64_t> batches;
  std::uint64_t seed = 1;
  int threads = 0;                 ///< 0 = as many as the machine has; results do not depend on it
  std::int64_t steps = 0;          ///< decode steps to decide; 0 = all of the trace's
  std::int64_t timed_steps = 0;    ///< decode steps to simulate in time; 0 = all after warm-up
  std::int64_t warm_up_steps = 0;  ///< first decode steps that fill the caches and do not count

  /// Every name, part and number that results depend on, as canonical JSON. Traces by name: their
  /// content is known by its hash.
  [[nodiscard]] std::string resolved() const;
};

/// How results name a trace: its file name without folder and endings.
[[nodiscard]] std::string trace_name(const std::string& file);

}  // namespace kvreplay
