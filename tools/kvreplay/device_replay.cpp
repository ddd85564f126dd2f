// `kvreplay device schedule`, `time` and `replay`: one workload, written down, on a model, for
// real.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/build_info.hpp"
#include "base/files.hpp"
#include "base/hash.hpp"
#include "base/output_file.hpp"
#include "base/progress.hpp"
#include "devices/device_config.hpp"
#include "devices/logs/io_log.hpp"
#include "devices/real/io_engine.hpp"
#include "devices/real/probe.hpp"
#include "devices/real/replay_target.hpp"
#include "devices/real/schedule_report.hpp"
#include "devices/schedule/time_schedule.hpp"
#include "policies/kernels/kernels.hpp"
#include "sim/replay/experiment.hpp"
#include "sim/replay/replay.hpp"
#include "tools/kvreplay/open_target.hpp"
#include "tools/kvreplay/result_folder.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

using Json = nlohmann::ordered_json;

namespace {

/// What all three commands take.
struct WorkloadOptions {
  std::string source;
  std::string model_device;
  std::vector<std::string> sets;
  std::int64_t steps = 0;
  std::string configs;

  void add_to(CLI::App& command) {
    command
        .add_option("SOURCE", source,
                    "An experiment (a file or a name) of one cell; or a schedule of `device "
                    "schedule`, an iolog of fio (version 2 or 3), the text of blkparse, the binary "
                    "files of blktrace")
        ->required()
        ->type_name("");
    command
        .add_option("--model-device", model_device,
                    "The modelled device: a name from `list devices`, or a file as `device "
                    "calibrate` writes it")
        ->required()
        ->type_name("DEVICE");
    command
        .add_option("--set", sets,
                    "As of `run`: system=kvswap, device.logical_block_bytes=4096 ...; may be given "
                    "again")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
    command.add_option("--steps", steps, "Time at most N steps, drawn evenly from all")
        ->check(in_range(1, 1 << 30))
        ->type_name("N");
    command.add_option("--configs", configs, "Where names are looked up")->type_name("DIR");
  }
};

struct Workload {
  Schedule schedule;
  DeviceSpec model;
  std::string trace;         ///< file; "" unless it is an experiment's
  Json from;                 ///< provenance
  std::size_t left_out = 0;  ///< requests of a log
};

bool is_schedule(const std::string& file) {
  check_regular_file(file);
  std::ifstream stream(file);
  std::string line;
  return stream && std::getline(stream, line) && line == Schedule::kFirstLine;
}

/// A file that is none of what SOURCE may be, and no name of an experiment either.
bool is_something_else(const std::string& file, const ConfigFolder& configs) {
  if (file.ends_with(".json") || !std::filesystem::is_regular_file(file)) return false;
  const std::vector<std::string> known = configs.names("experiments");
  if (std::find(known.begin(), known.end(), file) != known.end()) return false;
  std::ifstream stream(file);
  char first = 0;
  return !(stream >> first) || first != '{';
}

/// Of --set, those that change the device, applied to its file.
DeviceSpec load_device(const std::string& file, const std::vector<std::string>& sets) {
  constexpr std::string_view kDevice = "device.";
  ConfigNode node = ConfigNode::load(file);
  for (const std::string& set : sets) {
    const std::size_t equal = set.find('=');
    if (!set.starts_with(kDevice) || equal == std::string::npos) {
      throw UserError({"--set " + set, ""}, "only an experiment has it", "device.PARAMETER=VALUE");
    }
    node = node.with(std::string_view(set).substr(kDevice.size(), equal - kDevice.size()),
                     std::string_view(set).substr(equal + 1));
  }
  return DeviceSpec::parse(node);
}

Workload from_experiment(const WorkloadOptions& options, const ConfigFolder& configs,
                         const std::string& device) {
  std::vector<std::string> sets{"device=" + device};
  sets.insert(sets.end(), options.sets.begin(), options.sets.end());
  if (options.steps > 0) sets.push_back("timed_steps=" + std::to_string(options.steps));
  const Experiment experiment =
      Experiment::load(configs.file("experiments", options.source, {}), sets, configs);
  Workload workload;
  ReplayOptions replay_options;
  replay_options.show_progress = true;
  replay_options.schedule = &workload.schedule;
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

/// Of one file its hash; of several the hash of each, by name.
Json sha256_of(const std::vector<std::string>& files) {
  if (files.size() == 1) return sha256_file(files.front());
  Json hashes;
  for (const std::string& file : files) hashes[file] = sha256_file(file);
  return hashes;
}

Workload load_workload(const WorkloadOptions& options) {
  const ConfigFolder configs =
      options.configs.empty() ? ConfigFolder::standard() : ConfigFolder(options.configs);
  // Absolute: an experiment would look for it beside itself.
  std::string device = configs.file("devices", options.model_device, {});
  device = std::filesystem::absolute(device).string();
  const bool log = is_io_log(options.source);
  if (!log && !is_schedule(options.source)) {
    if (is_something_else(options.source, configs)) {
      throw UserError({options.source, ""}, "is nothing that can be timed or replayed",
                      "a schedule of `device schedule`, an iolog of fio (version 2 or 3), the text "
                      "of blkparse, the binary files of blktrace, an experiment");
    }
    return from_experiment(options, configs, device);
  }

  Workload workload;
  workload.model = load_device(device, options.sets);
  if (log) {
    const IoLog requests = read_io_log(options.source);
    Simulation simulation;
    workload.schedule = to_schedule(requests, workload.model.make(simulation)->limits(),
                                    requests.format + " " + options.source);
    workload.left_out = requests.left_out;
    workload.from = {{"log", options.source}, {"format", requests.format}};
    workload.from["sha256"] = sha256_of(requests.files);
  } else {
    workload.schedule = Schedule::read(options.source);
    workload.from = {{"schedule", options.source},
                     {"made_from", workload.schedule.made_from()},
                     {"sha256", sha256_file(options.source)}};
  }
  if (options.steps > 0) {
    workload.schedule = workload.schedule.first_steps(static_cast<std::size_t>(options.steps));
  }
  if (workload.left_out > 0) {
    std::cerr << "kvreplay: left out " << workload.left_out
              << " requests that neither read nor write\n";
  }
  return workload;
}

struct ScheduleOptions {
  WorkloadOptions workload;
  std::string format = "schedule";
  std::string target;
  std::string out;
};

void write_schedule(const ScheduleOptions& options) {
  check_not_input(options.out, options.workload.source);
  check_not_input(options.out, options.workload.model_device);
  const Workload workload = load_workload(options.workload);
  const Schedule& schedule = workload.schedule;
  if (options.format == "fio") {
    const std::string target = std::filesystem::absolute(options.target).string();
    write_text_file(options.out,
                    fio_log(schedule, time_schedule(schedule, workload.model), target));
    if (schedule.writes()) {
      std::cerr << "kvreplay: the plan writes: fio will overwrite what " << target << " holds\n";
    }
  } else {
    write_text_file(options.out, schedule.text());
  }
  std::cerr << "kvreplay: " << schedule.steps() << " steps, " << schedule.commands().size()
            << " commands below " << schedule.space_bytes() << " bytes in " << options.out << '\n';
}

void print_time(const WorkloadOptions& options) {
  const Workload workload = load_workload(options);
  const ScheduleMeasurement modelled = time_schedule(workload.schedule, workload.model);
  std::cout << workload.schedule.made_from() << "\n\nstep,read_bytes,write_bytes,latency_ms,"
            << "compute_ms,exposed_io_ms,busy_io_ms\n";
  for (std::size_t step = 0; step < modelled.steps.size(); ++step) {
    const StepMeasurement& times = modelled.steps[step];
    std::cout << step << ',' << times.read_bytes << ',' << times.write_bytes;
    for (const std::int64_t ns :
         {times.latency_ns, times.compute_ns, times.exposed_io_ns(), times.busy_io_ns}) {
      std::cout << ',' << static_cast<double>(ns) * 1e-6;
    }
    std::cout << '\n';
  }
  std::vector<std::int64_t> latencies;
  for (const RequestTimes& request : modelled.requests) latencies.push_back(request.latency_ns());
  const LatencySummary all = summarise(std::move(latencies));
  std::cout << "\n"
            << all.requests << " requests on " << workload.model.name << ", latency (us): mean "
            << all.mean_us << ", p50 " << all.p50_us << ", p90 " << all.p90_us << ", p99 "
            << all.p99_us << ", p99.9 " << all.p999_us << ", max " << all.max_us << '\n';
}

struct RunOptions {
  WorkloadOptions workload;
  std::string target;
  std::string engine;
  std::string compute = "wait";
  std::uint32_t depth = 0;
  std::uint64_t create_bytes = 0;
  bool allow_destructive = false;
  bool wrap = false;
  bool huge_pages = false;
  double request_timeout_seconds = kRequestTimeoutSeconds;
  RemoteFlags remote;
  std::string out;
};

/// Computes with the attention kernel on a layer of the trace until the time is over: what else
/// runs on the memory and the processor while requests are under way.
class AttentionLoad {
 public:
  explicit AttentionLoad(const TraceReader& trace)
      : layer_(trace.load_layer(0)),
        scale_(static_cast<float>(trace.info().softmax_scale)),
        tokens_(static_cast<std::size_t>(std::min<std::int64_t>(layer_.keys.tokens, 256))),
        query_(static_cast<std::size_t>(layer_.keys.dim)),
        weights_(tokens_.size()),
        output_(query_.size()) {
    kernels::to_float(layer_.queries.row(0, 0), query_.data(), layer_.queries.dim);
  }

  void operator()(std::int64_t duration_ns) {
    const std::int64_t until = monotonic_ns() + duration_ns;
    while (monotonic_ns() < until) {
      // Every call other tokens and the next head, so that the memory is really read.
      head_ = (head_ + 1) % layer_.keys.heads;
      for (std::int32_t& token : tokens_) {
        token = static_cast<std::int32_t>((first_ += 37) % layer_.keys.tokens);
      }
      kernels::attend(query_.data(), layer_.keys.head(head_), layer_.values.head(head_), tokens_,
                      layer_.keys.dim, scale_, weights_.data(), output_.data());
    }
  }

 private:
  TraceLayer layer_;
  float scale_;
  std::vector<std::int32_t> tokens_;
  std::vector<float> query_;
  std::vector<float> weights_;
  std::vector<float> output_;
  std::int64_t head_ = 0;
  std::int64_t first_ = 0;
};

/// What a target gave: of this machine, or of another one.
struct TargetRun {
  ReplayEnd end;
  Schedule schedule;  ///< as it was run: wrapped, where asked for
  Json setting;       ///< target, engine, host
};

/// What runs in the time of a computation; nothing where that is waited for.
std::function<void(std::int64_t)> computation(const RunOptions& options, const Workload& workload) {
  if (options.compute != "kernels") return {};
  if (is_device_address(options.target)) {
    throw UserError({"--compute kernels", ""}, "runs on this machine, not on a connected device",
                    "wait");
  }
  if (workload.trace.empty()) {
    throw UserError({"--compute kernels", ""}, "needs the vectors of a trace",
                    "an experiment as SOURCE");
  }
  return [load = std::make_shared<AttentionLoad>(TraceReader(workload.trace))](
             std::int64_t duration_ns) { (*load)(duration_ns); };
}

TargetRun run_on_target(const RunOptions& options, const Workload& workload) {
  const bool writes = workload.schedule.writes();
  if (writes && options.create_bytes == 0 && !options.allow_destructive) {
    throw UserError({options.target, ""}, "the plan writes, and would destroy what it holds",
                    "--create SIZE for a new file, or --allow-destructive");
  }
  const std::function<void(std::int64_t)> compute = computation(options, workload);
  const auto [device, target] = open_target(options.target, options.create_bytes, writes,
                                            options.allow_destructive, options.remote);
  TargetRun run;
  std::optional<Progress> progress;
  const ReplaySink sink{
      [&, &device = device](const Json& setting) {
        run.setting = setting;
        if (device) {
          run.setting["device"] = device->name();
          run.setting["agent_sha256"] = device->hello().at("sha256");
        }
        for (const Json& refusal : setting.at("engine").at("refused")) {
          std::cerr << "kvreplay: no " << refusal.at("engine").get<std::string>() << ": "
                    << refusal.at("reason").get<std::string>() << '\n';
        }
        run.schedule = fit(workload.schedule, setting.at("target").at("size_bytes"), options.wrap,
                           options.target);
        progress.emplace("replay", static_cast<std::int64_t>(run.schedule.steps()));
      },
      [&](const ReplayPart& part) {
        progress->advance(static_cast<std::int64_t>(part.measured.steps.size()));
      }};
  const ReplayRequest request{options.engine, options.depth, options.wrap,
                              options.huge_pages ? Pages::kHuge : Pages::kOrdinary,
                              options.request_timeout_seconds};
  run.end = device
                ? device->replay(workload.schedule, request, interrupted, sink)
                : replay_schedule(*target, workload.schedule, request, compute, interrupted, sink);
  // Of a lost device, what had not been asked for is missing.
  run.end.measurement.requests.resize(run.schedule.commands().size());
  return run;
}

void write_report(const std::string& folder, const RunOptions& options, const Workload& workload,
                  const TargetRun& run, const ScheduleComparison& comparison) {
  Json json{{"format", "kvreplay device replay 1"},
            {"program", "kvreplay " + version()},
            {"complete", run.end.ended_by.empty()}};
  if (!run.end.ended_by.empty()) json["ended_by"] = run.end.ended_by;
  json["workload"] = workload.from;
  json["schedule"] = {{"sha256", sha256_text(workload.schedule.text())},
                      {"steps", workload.schedule.steps()},
                      {"commands", workload.schedule.commands().size()},
                      {"space_bytes", workload.schedule.space_bytes()},
                      {"wrapped", run.schedule.space_bytes() != workload.schedule.space_bytes()}};
  json["model_device"] = {{"name", workload.model.name}, {"title", workload.model.title}};
  json.update(run.setting);
  json["compute"] = options.compute;
  json.update(comparison.summary());
  const auto write = [&](const char* name, const std::string& text) {
    write_text_file((std::filesystem::path(folder) / name).string(), text);
  };
  write("steps.csv", comparison.steps_csv());
  write("latencies.csv", comparison.latencies_csv());
  write("table.txt", comparison.table());
  write("replay.json", json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

/// The error of a step is the device's only while computations take as long as they should.
void warn_of_late_computations(const ScheduleComparison& comparison) {
  const Json summary = comparison.summary();
  const double scheduled = summary.at("modelled").at("compute_seconds");
  const double measured = summary.at("measured").at("compute_seconds");
  if (measured <= 1.05 * scheduled || scheduled == 0) return;
  std::cerr << "kvreplay: computations took " << std::lround(100 * (measured / scheduled - 1))
            << " % longer than scheduled, so the error of a step is not the device's: the machine "
               "is busy; stop what else runs, or start kvreplay by `chrt -f 10`\n";
}

void run_replay(const RunOptions& options) {
  // First: a result without a place would be lost. The folder itself is made in the end, because
  // until then an interrupt must not remove it: it ends the replay, and keeps its steps.
  { const ResultFolder free_and_writable = ResultFolder::at(options.out); }
  const Workload workload = load_workload(options.workload);
  const TargetRun run = run_on_target(options, workload);
  const ScheduleMeasurement modelled = time_schedule(run.schedule, workload.model);
  const ScheduleComparison comparison(run.schedule, modelled, run.end.measurement);
  ResultFolder folder = ResultFolder::at(options.out);
  write_report(folder.temporary_path(), options, workload, run, comparison);
  const std::string name = folder.commit();
  std::cout << comparison.table();
  warn_of_late_computations(comparison);
  std::cerr << "kvreplay: " << run.end.measurement.steps.size() << " of " << run.schedule.steps()
            << " steps in " << name << (!run.end.ended_by.empty() ? " (partial)\n" : "\n");
  const bool failed = !run.end.ended_by.empty() && !run.end.measurement.interrupted;
  if (failed) throw UserError(run.end.ended_by);
}

}  // namespace

void add_device_replay(CLI::App& device) {
  {
    CLI::App* command = device.add_subcommand(
        "schedule", "Write down what the decode steps of an experiment ask of the device");
    auto options = std::make_shared<ScheduleOptions>();
    options->workload.add_to(*command);
    command->add_option("--out", options->out, "The file to write; missing folders are made")
        ->required()
        ->type_name("FILE");
    command
        ->add_option("--format", options->format,
                     "fio: an iolog, version 3, with the times of the modelled device")
        ->check(one_of({"schedule", "fio"}))
        ->type_name("schedule|fio")
        ->capture_default_str();
    command->add_option("--target", options->target, "The file or device that a fio log names")
        ->type_name("FILE");
    command->footer(
        "Examples:\n"
        "  kvreplay device schedule first --set system=kvswap --model-device ufs40 --out "
        "kvswap.schedule\n"
        "  kvreplay device schedule first --set system=kvswap --model-device ufs40 --format fio "
        "--target /data/t.bin --out kvswap.fiolog && fio --name=x --read_iolog=kvswap.fiolog "
        "--direct=1 --ioengine=libaio --iodepth=32");
    command->callback([options] {
      if ((options->format == "fio") == options->target.empty()) {
        throw UserError({"--target", ""}, "a fio log names a target, a schedule does not",
                        "--format fio --target FILE");
      }
      write_schedule(*options);
    });
  }
  {
    CLI::App* command =
        device.add_subcommand("time", "Time a schedule or an I/O log on a modelled device");
    auto options = std::make_shared<WorkloadOptions>();
    options->add_to(*command);
    command->footer(
        "Examples:\n"
        "  kvreplay device time kvswap.schedule --model-device ufs40\n"
        "  kvreplay device time blkparse.txt --model-device emmc51\n"
        "  kvreplay device time sda.blktrace.0 --model-device emmc51    # and .1, .2 ... beside "
        "it");
    command->callback([options] { print_time(*options); });
  }
  CLI::App* command = device.add_subcommand(
      "replay", "Do the I/O of an experiment on a real device, and compare with the model");
  auto options = std::make_shared<RunOptions>();
  options->workload.add_to(*command);
  command
      ->add_option("--target", options->target,
                   "A file or block device, as large as the plan's space, here or by "
                   "ssh:[USER@]HOST[:PORT]:/PATH or adb:SERIAL:/PATH; only read by default")
      ->required()
      ->type_name("TARGET");
  command
      ->add_option("--out", options->out,
                   "New folder for the results; missing ones above it are made")
      ->required()
      ->type_name("DIR");
  add_size_option(*command, "--create", options->create_bytes,
                  "Make TARGET, a new file of this size; it is removed in the end")
      ->check(create_range())
      ->type_name("BYTES");
  command->add_flag("--allow-destructive", options->allow_destructive,
                    "Writes of the plan may destroy what TARGET holds");
  command->add_flag("--wrap", options->wrap,
                    "Fold a plan that is larger than TARGET into it: offsets modulo its mebibytes");
  command->add_flag("--huge-pages", options->huge_pages,
                    "Memory of huge pages, as of `device probe`: do both with it, or both without");
  command
      ->add_option("--compute", options->compute,
                   "What happens in the time of a computation: nothing, or attention over the "
                   "vectors of the trace on another thread")
      ->check(one_of({"wait", "kernels"}))
      ->type_name("wait|kernels")
      ->capture_default_str();
  command
      ->add_option("--engine", options->engine,
                   "How requests are made (default: the first that the system permits)")
      ->type_name(join(engine_preference(), "|"));
  command
      ->add_option("--depth", options->depth,
                   "Outstanding requests at most (default: the modelled device's)")
      ->check(in_range(1, 1024))
      ->type_name("N");
  command
      ->add_option("--request-timeout", options->request_timeout_seconds,
                   "Seconds: a request that takes longer ends it")
      ->type_name("S")
      ->check(in_range(0.01, 86400.0))
      ->capture_default_str();
  options->remote.add_to(*command);
  command->footer(
      "An interrupt (Ctrl-C), a failed request or a lost device keeps the steps that ended and\n"
      "marks the result as partial. Example:\n"
      "  kvreplay device replay first --set system=kvswap --model-device ./mine.json --target \\\n"
      "    /data/test.bin --create 2G --out results/kvswap-real && tools/plot replay \\\n"
      "    results/kvswap-real");
  command->callback([options] {
    try {
      run_replay(*options);
    } catch (const UserError& error) {
      if (!interrupted) throw;
      std::cerr << "kvreplay: " << error.what() << '\n';
    }
    raise_interrupt();
  });
}

}  // namespace kvreplay
