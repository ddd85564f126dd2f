// `kvreplay device schedule`, `time` and `replay`: one workload, written to a file, on a model, or
// on a real device.

#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/files.hpp"
#include "base/output_file.hpp"
#include "base/progress.hpp"
#include "base/result_folder.hpp"
#include "devices/logs/io_log.hpp"
#include "devices/real/io_engine.hpp"
#include "devices/real/probe.hpp"
#include "devices/schedule/time_schedule.hpp"
#include "sim/workload/attention_load.hpp"
#include "sim/workload/device_workload.hpp"
#include "sim/workload/workload_report.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/open_target.hpp"

namespace kvreplay {

using Json = nlohmann::ordered_json;

namespace {

/// Arguments of all three commands.
struct WorkloadOptions {
  WorkloadRequest request{.show_progress = true};

  void add_to(CLI::App& command) {
    command
        .add_option("SOURCE", request.source,
                    "An experiment (a file or a name) of one cell; or a schedule of `device "
                    "schedule`, an iolog of fio (version 2 or 3), the text of blkparse, the binary "
                    "files of blktrace")
        ->required()
        ->type_name("");
    command
        .add_option("--model-device", request.model_device,
                    "The modelled device: a name from `list devices`, or a file of `device "
                    "calibrate`")
        ->required()
        ->type_name("DEVICE");
    command
        .add_option(
            "--set", request.sets,
            "As for `run`: system=kvswap, device.logical_block_bytes=4096 ...; may be given "
            "again")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
    command.add_option("--steps", request.steps, "Time at most N steps, drawn evenly from all")
        ->check(in_range(1, 1 << 30))
        ->type_name("N");
    command.add_flag("--prefill", request.prefill,
                     "Of an experiment: the writes of the prompt, behind its computation, in place "
                     "of the decode steps");
    add_configs_option(command, request.configs);
  }
};

DeviceWorkload load_workload(const WorkloadOptions& options) {
  DeviceWorkload workload = load_device_workload(options.request);
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
  check_not_input(options.out, options.workload.request.source);
  check_not_input(options.out, options.workload.request.model_device);
  const DeviceWorkload workload = load_workload(options.workload);
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

struct DeviceReplayOptions {
  WorkloadOptions workload;
  std::string target;
  std::string engine;
  std::string compute = "wait";
  std::uint32_t depth = 0;
  std::uint64_t create_bytes = 0;
  bool allow_destructive = false;
  bool wrap = false;
  PagesFlags pages;
  double request_timeout_seconds = kRequestTimeoutSeconds;
  RemoteFlags remote;
  std::string out;
};

/// What runs during a computation; null where the replay waits for its duration.
std::function<void(std::int64_t)> computation(const DeviceReplayOptions& options,
                                              const DeviceWorkload& workload) {
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

TargetRun run_on_target(const DeviceReplayOptions& options, const DeviceWorkload& workload) {
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
  const ReplayRequest request{options.engine, options.depth, options.wrap, options.pages.pages(),
                              options.request_timeout_seconds};
  run.end = device
                ? device->replay(workload.schedule, request, interrupted, sink)
                : replay_schedule(*target, workload.schedule, request, compute, interrupted, sink);
  // After the loss of a device, what had not been requested from it is missing.
  run.end.measurement.requests.resize(run.schedule.commands().size());
  return run;
}

void warn_of_late_computations(const ScheduleComparison& comparison) {
  const std::optional<std::int64_t> percent = late_computations_percent(comparison);
  if (!percent) return;
  std::cerr << "kvreplay: computations took " << *percent
            << " % longer than scheduled, so the error of a step is not due to the device alone: "
               "the machine "
               "is busy; stop other programs, or start kvreplay with `chrt -f 10`\n";
}

void run_replay(const DeviceReplayOptions& options) {
  // First, so that no result is lost for lack of a place. The folder itself is created at the end:
  // until then an interrupt must not remove it, because it ends the replay and keeps its steps.
  const ResultClaim claim(options.out);
  const DeviceWorkload workload = load_workload(options.workload);
  const TargetRun run = run_on_target(options, workload);
  const ScheduleMeasurement modelled = time_schedule(run.schedule, workload.model);
  const ScheduleComparison comparison(run.schedule, modelled, run.end.measurement);
  ResultFolder folder = ResultFolder::at(options.out);
  folder.write_all(replay_files(workload, run, options.compute, comparison));
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
        "schedule", "Write what the decode steps of an experiment request of the device to a file");
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
    command->callback([options] { std::cout << modelled_times_text(load_workload(*options)); });
  }
  CLI::App* command = device.add_subcommand(
      "replay", "Run the I/O of an experiment on a real device, and compare it with the model");
  auto options = std::make_shared<DeviceReplayOptions>();
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
  add_create_option(*command, options->create_bytes);
  command->add_flag("--allow-destructive", options->allow_destructive,
                    "Allow the plan's writes to destroy what TARGET holds");
  command->add_flag("--wrap", options->wrap,
                    "Fold a plan larger than TARGET into it: offsets modulo its mebibytes");
  options->pages.add_to(*command);
  command
      ->add_option("--compute", options->compute,
                   "What to do during a computation: wait, or run attention over the "
                   "vectors of the trace on another thread")
      ->check(one_of({"wait", "kernels"}))
      ->type_name("wait|kernels")
      ->capture_default_str();
  command
      ->add_option("--engine", options->engine,
                   "I/O engine (default: the first that the system permits)")
      ->type_name(join(engine_preference(), "|"));
  command
      ->add_option("--depth", options->depth,
                   "Upper limit of outstanding requests (default: the modelled device's)")
      ->check(in_range(1, 1024))
      ->type_name("N");
  command
      ->add_option("--request-timeout", options->request_timeout_seconds,
                   "Time in seconds after which an unanswered request ends the replay")
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
