#include "sim/workload/device_workload.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/hash.hpp"
#include "base/key_value.hpp"
#include "devices/logs/io_log.hpp"
#include "sim/replay/experiment_request.hpp"
#include "sim/replay/replay.hpp"

namespace kvreplay {

using Json = nlohmann::ordered_json;

namespace {

bool is_schedule(const std::string& file) {
  check_regular_file(file);
  std::ifstream stream(file);
  std::string line;
  return stream && std::getline(stream, line) && line == Schedule::kFirstLine;
}

/// Throws for a source that is neither a known kind of file nor the name of an experiment.
bool is_something_else(const std::string& file, const ConfigFolder& configs) {
  if (file.ends_with(".json") || !std::filesystem::is_regular_file(file)) return false;
  const std::vector<std::string> known = configs.names("experiments");
  if (std::find(known.begin(), known.end(), file) != known.end()) return false;
  std::ifstream stream(file);
  char first = 0;
  return !(stream >> first) || first != '{';
}

/// Applies the --set options that change the device to the device's file.
DeviceSpec load_device(const std::string& file, const std::vector<std::string>& sets,
                       const ConfigFolder& configs) {
  constexpr std::string_view kDevice = "device.";
  ConfigNode node = configs.load("devices", file);
  for (const std::string& set : sets) {
    const std::optional<KeyValue> given = split_key_value(set);
    if (!given || !given->key.starts_with(kDevice)) {
      throw UserError({"--set " + set, ""}, "only an experiment has it", "device.PARAMETER=VALUE");
    }
    node = node.with(std::string_view(given->key).substr(kDevice.size()), given->value);
  }
  return DeviceSpec::parse(node);
}

DeviceWorkload from_experiment(const WorkloadRequest& request, const std::string& device) {
  for (const std::string& set : request.sets) {
    const std::optional<KeyValue> given = split_key_value(set);
    if (given && given->key == "device") {
      throw UserError({"--set " + set, ""}, "--model-device names the device",
                      "device.PARAMETER=VALUE, which changes that one");
    }
  }
  std::vector<std::string> sets{"device=" + device};
  sets.insert(sets.end(), request.sets.begin(), request.sets.end());
  if (request.steps > 0) sets.push_back("timed_steps=" + std::to_string(request.steps));
  const Experiment experiment =
      ExperimentRequest{request.source, std::move(sets), request.configs}.load();
  DeviceWorkload workload;
  ReplayOptions replay_options;
  replay_options.show_progress = request.show_progress;
  (request.prefill ? replay_options.prefill_schedule : replay_options.schedule) =
      &workload.schedule;
  const ReplayResult result = replay(experiment, replay_options);
  workload.model = experiment.devices.front();
  workload.trace = experiment.traces.front();
  workload.from = {{"experiment", experiment.name},
                   {"system", experiment.systems.front().name},
                   {"model", experiment.models.front().name},
                   {"platform", experiment.platforms.front().name},
                   {"projection", result.cells.front().projection},
                   {"trace_sha256", result.traces.front().sha256},
                   {"config", Json::parse(experiment.resolved())}};
  return workload;
}

/// The hash of a single file; for several files, the hash of each by name.
Json sha256_of(const std::vector<std::string>& files) {
  if (files.size() == 1) return sha256_file(files.front());
  Json hashes;
  for (const std::string& file : files) hashes[file] = sha256_file(file);
  return hashes;
}

}  // namespace

DeviceWorkload load_device_workload(const WorkloadRequest& request) {
  // Absolute, because an experiment looks up relative paths beside itself.
  std::string device = request.configs.file("devices", request.model_device, {});
  device = std::filesystem::absolute(device).string();
  const bool log = is_io_log(request.source);
  if (!log && !is_schedule(request.source)) {
    if (is_something_else(request.source, request.configs)) {
      throw UserError({request.source, ""}, "is nothing that can be timed or replayed",
                      "a schedule of `device schedule`, an iolog of fio (version 2 or 3), the text "
                      "of blkparse, the binary files of blktrace, an experiment");
    }
    return from_experiment(request, device);
  }

  if (request.prefill) {
    throw UserError({"--prefill", ""}, "found with " + request.source, "an experiment");
  }
  DeviceWorkload workload;
  workload.model = load_device(device, request.sets, request.configs);
  if (log) {
    const IoLog requests = read_io_log(request.source);
    Simulation simulation;
    workload.schedule = to_schedule(requests, workload.model.make(simulation)->limits(),
                                    requests.format + " " + request.source);
    workload.left_out = requests.left_out;
    workload.from = {{"log", request.source}, {"format", requests.format}};
    workload.from["sha256"] = sha256_of(requests.files);
  } else {
    workload.schedule = Schedule::read(request.source);
    workload.from = {{"schedule", request.source},
                     {"made_from", workload.schedule.made_from()},
                     {"sha256", sha256_file(request.source)}};
  }
  if (request.steps > 0) {
    workload.schedule = workload.schedule.first_steps(static_cast<std::size_t>(request.steps));
  }
  return workload;
}

}  // namespace kvreplay
