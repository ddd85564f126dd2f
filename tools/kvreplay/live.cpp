#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/build_info.hpp"
#include "base/config_folder.hpp"
#include "base/files.hpp"
#include "base/key_value.hpp"
#include "base/output_file.hpp"
#include "base/parallel.hpp"
#include "base/result_folder.hpp"
#include "base/size.hpp"
#include "base/statistics.hpp"
#include "base/utc_time.hpp"
#include "devices/real/host.hpp"
#include "policies/decide/trace_adapters.hpp"
#include "sim/live/live_target.hpp"
#include "sim/models/record.hpp"
#include "sim/replay/results.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/count_range.hpp"
#include "tools/kvreplay/device.hpp"
#include "tools/kvreplay/model_files.hpp"
#include "tools/kvreplay/open_target.hpp"
#include "tools/kvreplay/option_values.hpp"
#include "tools/kvreplay/text_options.hpp"

namespace kvreplay {
namespace {

using Json = nlohmann::ordered_json;

struct LiveCommand {
  std::string model;
  TextOptions text;
  std::string system;
  std::vector<std::string> sets;
  std::optional<std::int64_t> budget;
  std::string target;
  std::uint64_t create_bytes = 0;
  bool allow_destructive = false;
  std::optional<std::int64_t> prompt;
  std::optional<std::int64_t> steps;
  bool generate = false;
  SamplingOptions sampling{.temperature = 0};
  std::string adapters;
  std::string model_config;
  bool dry_run = false;
  bool huge_pages = false;
  bool quiet = false;
  LiveRequest request;
  LiveOptions options{.threads = 0};
  std::string out;
  ConfigFolder configs = ConfigFolder::standard();
};

/// The system with --set and --budget.
SystemSpec load_system(const LiveCommand& command) {
  ConfigNode node = command.configs.find("systems", command.system, {"--system", ""});
  const std::string name = std::filesystem::path(node.place().file).stem().string();
  if (command.budget) {
    node = node.with("selection.budget_tokens", std::to_string(*command.budget));
    // A share of the context would come on top.
    if (node.at("selection").has("budget_share")) node = node.with("selection.budget_share", "0");
  }
  for (const std::string& set : command.sets) {
    const std::optional<KeyValue> given = split_key_value(set);
    if (!given) throw UserError({"--set", ""}, "found '" + set + "'", "PART.PARAMETER=VALUE");
    if (command.budget && given->key == "selection.budget_tokens") {
      throw UserError({"--set", ""},
                      "found '" + set + "' beside --budget " + std::to_string(*command.budget),
                      "one of the two");
    }
    node = node.with(given->key, given->value);
  }
  return SystemSpec::parse(node, name);
}

/// As results name what was read.
std::string text_name(const TextOptions& text) {
  if (!text.from_trace.empty()) return trace_name(text.from_trace);
  return std::filesystem::path(text.text.empty() ? text.token_ids : text.text).filename().string();
}

/// A new target has no name any more; its folder does.
std::string folder_of(const std::string& file) {
  return std::filesystem::absolute(file).parent_path().string();
}

class OwnedAdapters final : public AdapterSource {
 public:
  OwnedAdapters(const std::string& trace, const Model& model, const std::string& system)
      : trace_(trace), adapters_(trace_, system) {
    check_adapters_fit(trace_, trace_info(model, {}));
  }
  [[nodiscard]] Adapter adapter(std::int64_t layer, const std::string& name) const override {
    return adapters_.adapter(layer, name);
  }

 private:
  TraceReader trace_;
  TraceAdapters adapters_;
};

class NoAdapters final : public AdapterSource {
 public:
  [[nodiscard]] Adapter adapter(std::int64_t, const std::string& name) const override {
    throw UserError({"--adapters", ""}, "not given, but the system needs " + name,
                    "a trace of this model with adapters, as `kvreplay adapt` writes it");
  }
};

/// Prints what the model says as it comes: text, or ids where the model has no tokenizer.
class Printer {
 public:
  Printer(const Model& model, bool quiet) : quiet_(quiet) {
    if (!quiet) pieces_ = token_pieces(model);
  }
  void operator()(std::int32_t id) {
    if (quiet_) return;
    if (pieces_.empty()) {
      std::cout << id << ' ' << std::flush;
    } else if (static_cast<std::size_t>(id) < pieces_.size()) {
      std::cout << pieces_[static_cast<std::size_t>(id)] << std::flush;
    }
    said_ = true;
  }
  void end() const {
    if (said_) std::cout << "\n\n";
  }

 private:
  bool quiet_;
  std::vector<std::string> pieces_;
  bool said_ = false;
};

std::string steps_csv(const LiveResult& result) {
  std::string text =
      "step,token,latency_us,compute_us,exposed_io_us,busy_io_us,read_bytes,read_requests,"
      "write_bytes,write_requests,log_probability,likeliest\n";
  for (std::size_t i = 0; i < result.steps.size(); ++i) {
    const StepTiming& step = result.steps[i];
    const std::size_t token = result.ids.size() - result.steps.size() + i;
    std::array<char, 512> line{};
    // Of the token that follows, which the last step has none of.
    std::array<char, 32> next{};
    if (i + 1 < result.steps.size()) {
      std::snprintf(next.data(), next.size(), "%.9g",
                    static_cast<double>(result.log_probability[i]));
    }
    const auto us = [](SimTime ns) { return static_cast<double>(ns) / 1e3; };
    std::snprintf(
        line.data(), line.size(), "%zu,%d,%.1f,%.1f,%.1f,%.1f,%lld,%lld,%lld,%lld,%s,%d\n", i,
        result.ids[token], us(step.latency_ns), us(step.compute_ns), us(step.exposed_io_ns),
        us(step.busy_io_ns), static_cast<long long>(step.read_bytes),
        static_cast<long long>(step.read_requests), static_cast<long long>(step.write_bytes),
        static_cast<long long>(step.write_requests), next.data(), result.likeliest[i]);
    text += line.data();
  }
  return text;
}

Json processor_times(const LiveResult& result) {
  const LiveWorkTimes& work = result.work;
  Json json = Json::object();
  for (const auto& [name, ns] : {std::pair{"project", work.project_ns},
                                 {"layer", work.layer_ns},
                                 {"head", work.head_ns},
                                 {"in_memory", work.in_memory_ns},
                                 {"score", work.layers.score_ns},
                                 {"fetch", work.layers.fetch_ns},
                                 {"decode", work.layers.decode_ns},
                                 {"buffered", work.layers.buffered_ns},
                                 {"attention", work.layers.attend_ns},
                                 {"append", work.layers.append_ns},
                                 {"start", work.start_ns},
                                 {"hand_over", work.hand_over_ns}}) {
    json[name] = static_cast<double>(ns) * 1e-6 / static_cast<double>(result.steps.size());
  }
  return json;
}

std::string manifest(const LiveCommand& command, const LiveOptions& options, const Model& model,
                     const SystemSpec& system, const BlockTarget* target, const LiveRun& run) {
  const LiveResult& result = run.result;
  Json json;
  json["command"] = "kvreplay live";
  json["model"] = {{"name", model.name()}, {"source_sha256", model.source_sha256()}};
  json["text"] = {{"source", options.text.source},
                  {"sha256", options.text.sha256},
                  {"mode", options.sampling ? "generated" : "followed"}};
  json["prompt_tokens"] = options.prompt_tokens;
  json["steps"] = {{"wanted", options.steps}, {"done", result.steps.size()}};
  json["system"] = {{"name", system.name}, {"resolved", Json::parse(system.resolved())}};
  json["differs"] = system.differs;
  json["seed"] = options.seed;
  json["threads"] = options.threads;
  if (target != nullptr) {
    json["target"] = {{"path", target->path()},
                      {"size_bytes", target->size_bytes()},
                      {"file_system", file_system_of(folder_of(target->path()))},
                      {"direct_io_proof", target->direct_io_proof()}};
    json["engine"] = run.engine.name;
    json["depth"] = command.request.limits.queue_depth;
    json["block_bytes"] =
        std::max(command.request.limits.logical_block_bytes, target->alignment().offset_bytes);
  }
  json["first_token_s"] = result.first_token_s;
  json["prompt_s"] = result.prompt_s;
  json["stolen_share"] = result.stolen_share;
  json["processor_ms_per_step"] = processor_times(result);
  json["block_reads_before_writes"] = result.base_reads;
  json["memory"] = {{"entries_bytes", result.memory.entries_bytes},
                    {"in_memory_layers_bytes", result.memory.in_memory_layers_bytes},
                    {"decoded_bytes", result.memory.decoded_bytes},
                    {"io_buffer_bytes", result.memory.io_bytes},
                    {"process_in_steps_bytes", result.memory.process_in_steps_bytes},
                    {"process_peak_bytes", result.memory.process_peak_bytes}};
  if (options.check) {
    json["checked_entries"] = result.checked_entries;
    json["checked_extents"] = result.checked_extents;
  }
  json["interrupted"] = result.interrupted;
  json["kvreplay_version"] = version();
  json["host"] = to_json(host_facts());
  json["created_utc"] = utc_now();
  return json.dump(2) + '\n';
}

void print_summary(const CellResult& cell, const LiveResult& result, bool checked) {
  std::vector<double> latencies;
  for (const StepTiming& step : result.steps) {
    latencies.push_back(static_cast<double>(step.latency_ns) / 1e6);
  }
  std::sort(latencies.begin(), latencies.end());
  std::cout << results_table({&cell, 1});
  std::printf("first token: %.3f s; latency p50 %.2f ms, p99 %.2f ms\n", result.first_token_s,
              percentile(latencies, 0.5), percentile(latencies, 0.99));
  if (const std::string text = disturbance(result.stolen_share); !text.empty()) {
    std::printf("disturbed: %s in the steps\n", text.c_str());
  }
  std::printf(
      "KV in memory, by the process's own count: %s of entries, %s in layers that are whole "
      "in memory, %s decoded, %s where requests land\n",
      size_text(result.memory.entries_bytes).c_str(),
      size_text(result.memory.in_memory_layers_bytes).c_str(),
      size_text(result.memory.decoded_bytes).c_str(), size_text(result.memory.io_bytes).c_str());
  std::printf(
      "the process, by the system's count: %s of its own after the last step, %s at most with the "
      "model file and the work on the prompt\n",
      size_text(result.memory.process_in_steps_bytes).c_str(),
      size_text(result.memory.process_peak_bytes).c_str());
  if (checked) {
    std::printf("checked: %lld entries that were read are equal to what was stored, bit for bit; ",
                static_cast<long long>(result.checked_entries));
    if (result.interrupted) {
      std::printf("extents are compared only at the end of a run\n");
    } else {
      std::printf("%lld extents are those of stage 2\n",
                  static_cast<long long>(result.checked_extents));
    }
  }
  std::fflush(stdout);
}

/// Throws UserError where the target is sure to be too small, or its blocks do not suit.
void check_target(const LiveCommand& command, std::uint64_t bytes, std::uint64_t least,
                  std::uint64_t needed) {
  if (bytes >= least) return;
  throw UserError({command.create_bytes > 0 ? "--create" : command.target, ""},
                  size_text(static_cast<std::int64_t>(bytes)) + " are too small",
                  "at least " + short_size_text(least) + "; " + short_size_text(needed) +
                      " are enough, by estimate");
}

void tell_dry_run(const SystemSpec& system, std::uint64_t needed) {
  std::cout << system.name << ": can be run";
  if (needed > 0)
    std::cout << "; --create " << short_size_text(needed) << " is enough, by estimate";
  std::cout << '\n';
}

void check_block(const LiveCommand& command, const BlockTarget& target) {
  const std::uint64_t block = command.request.limits.logical_block_bytes;
  const std::uint64_t unit = target.alignment().offset_bytes;
  if (block < unit || block % unit == 0) return;
  throw UserError({"--block", ""}, "found " + std::to_string(block),
                  "multiples of " + std::to_string(unit) + " bytes on " + target.path() + " (" +
                      target.alignment().source + ")");
}

void live(const LiveCommand& command) {
  constexpr std::uint64_t kSector = 512;
  if (command.request.limits.logical_block_bytes % kSector != 0) {
    throw UserError({"--block", ""},
                    "found " + std::to_string(command.request.limits.logical_block_bytes),
                    "multiples of " + std::to_string(kSector) + " bytes");
  }
  const std::string out = command.out;
  const ResultClaim claim(out);
  if (out.empty() && !command.dry_run) {
    static_cast<void>(ResultFolder::numbered("results/live"));  // before the run, whether it can be
  }
  const auto model = std::make_shared<const Model>(find_model(command.model));
  if (!command.model_config.empty()) {
    const std::string file =
        command.configs.file("models", command.model_config, {"--model-config", ""});
    check_shape(*model, ModelSpec::load(file, command.configs), {"--model-config", ""});
  }
  const SystemSpec system = as_live_runs_it(load_system(command));
  LiveOptions options = command.options;
  options.text = load_text(command.text, *model);
  options.prompt_tokens = command.prompt.value_or(options.text.prompt_tokens.value_or(
      std::min<std::int64_t>(options.prompt_tokens, std::ssize(options.text.ids))));
  options.steps = command.steps.value_or(options.text.steps.value_or(options.steps));
  if (command.generate) options.sampling = command.sampling;
  if (options.threads == 0) options.threads = processor_count();
  options.created_utc = utc_now();
  check_text(*model, options.text.ids, options.prompt_tokens, options.steps,
             options.prompt_tokens + (options.sampling ? 0 : options.steps));
  check_live_system(*model, system, options.prompt_tokens, options.prompt_tokens + options.steps);
  std::optional<OutputFile> record;
  if (!options.record.empty()) {
    check_is_new(options.record);
    record.emplace(options.record).claim();
  }
  std::shared_ptr<const AdapterSource> adapters;
  if (command.adapters.empty()) {
    adapters = std::make_shared<NoAdapters>();
  } else {
    adapters = std::make_shared<OwnedAdapters>(command.adapters, *model, system.name);
  }
  LiveRequest request = command.request;
  request.pages = command.huge_pages ? Pages::kHuge : Pages::kOrdinary;

  const std::uint64_t needed =
      live_target_bytes(*model, system, options.prompt_tokens + options.steps, request.limits);
  const std::uint64_t least = least_live_target_bytes(*model, system, options.prompt_tokens,
                                                      options.prompt_tokens + options.steps);
  std::shared_ptr<const BlockTarget> target;
  if (needed > 0) {
    if (command.target.empty()) {
      throw UserError({"--target", ""},
                      "not given, but " + system.name +
                          " keeps entries outside "
                          "memory",
                      "a new file, with --create " + short_size_text(needed));
    }
    if (is_device_address(command.target)) {
      throw UserError({command.target, ""}, "a connected device", "a path of this machine");
    }
    if (command.create_bytes == 0 && !command.allow_destructive) {
      throw UserError({command.target, ""}, "the run writes, and would destroy what it holds",
                      "--create SIZE for a new file, or --allow-destructive");
    }
    if (command.create_bytes > 0) check_target(command, command.create_bytes, least, needed);
    if (command.dry_run) return tell_dry_run(system, needed);
    OpenTarget opened =
        open_target(command.target, command.create_bytes, true, command.allow_destructive, {});
    target = std::make_shared<const BlockTarget>(std::move(*opened.target));
    check_target(command, target->size_bytes(), least, needed);
    check_block(command, *target);
  } else {
    if (command.dry_run) return tell_dry_run(system, needed);
    stop_at_signals();
  }
  Printer printer(*model, command.quiet);
  options.on_token = [&](std::int32_t id) { printer(id); };
  const LiveRun run = run_live_on(model, system, target, request, options, adapters, interrupted);
  printer.end();
  if (run.result.steps.empty()) return;
  const std::string device = target ? "live: " + file_system_of(folder_of(command.target)) : "none";
  CellResult cell = live_cell(*model, system, device, options, run.result);
  cell.trace = text_name(command.text);
  print_summary(cell, run.result, options.check);
  if (!options.record.empty()) {
    std::cerr << "kvreplay: " << (run.result.interrupted ? "interrupted: did not write " : "wrote ")
              << options.record << '\n';
  }
  ResultFolder folder =
      out.empty() ? ResultFolder::numbered("results/live") : ResultFolder::at(out);
  const ResultTable table = result_rows({&cell, 1});
  folder.write({"results.csv", csv_text(table)});
  folder.write({"results.json", json_text(table)});
  folder.write({"table.txt", table_text(table)});
  folder.write({"steps.csv", steps_csv(run.result)});
  folder.write({"manifest.json", manifest(command, options, *model, system, target.get(), run)});
  std::cerr << "kvreplay: " << run.result.steps.size() << " of " << options.steps << " steps in "
            << folder.commit() << (run.result.interrupted ? " (partial)\n" : "\n");
}

}  // namespace

void add_live(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "live", "Run a model with a system for real: its kernels, its cache, its I/O on a target");
  auto options = std::make_shared<LiveCommand>();
  add_model_option(*command, options->model);
  add_text_options(*command, options->text);
  command->add_option("--system", options->system, "A name of `list systems`, or a file")
      ->required()
      ->type_name("NAME|FILE");
  command
      ->add_option("--target", options->target,
                   "The file or block device that holds the entries; not needed where all are in "
                   "memory")
      ->type_name("TARGET");
  add_create_option(*command, options->create_bytes);
  command->add_flag("--allow-destructive", options->allow_destructive,
                    "The run may destroy what TARGET holds");
  command
      ->add_option("--prompt", options->prompt,
                   "Prompt tokens, which are prefilled (default: the trace's own, or 1024, or the "
                   "whole text)")
      ->transform(in_count_range(1, std::int64_t{1} << 30))
      ->type_name("N");
  command->add_option("--steps", options->steps, "Decode steps (default: the trace's own, or 128)")
      ->transform(in_count_range(1, std::int64_t{1} << 30))
      ->type_name("N");
  add_sampling_options(*command, options->generate, options->sampling);
  command->add_option("--budget", options->budget, "The system's selection.budget_tokens")
      ->check(in_range(std::int64_t{0}, std::int64_t{1} << 30))
      ->type_name("N");
  command
      ->add_option("--set", options->sets,
                   "A parameter of the system, such as cache.capacity_groups=128; repeatable")
      ->type_name("PART.PARAMETER=VALUE")
      ->allow_extra_args(false);
  takes_traces(command->add_option("--adapters", options->adapters,
                                   "A trace of this model that carries the low-rank, PCA or skew "
                                   "matrices that the system needs"))
      ->type_name("TRACE");
  command
      ->add_option("--model-config", options->model_config,
                   "A model of `list models`, or a file of that kind, whose shape the model file "
                   "must have")
      ->type_name("NAME|FILE");
  command->add_flag("--dry-run", options->dry_run,
                    "Check all that is given and say what TARGET must hold, and run nothing");
  command
      ->add_option("--engine", options->request.engine,
                   "How requests are made (default: the first that the system permits)")
      ->type_name(join(engine_preference(), "|"));
  command
      ->add_option("--depth", options->request.limits.queue_depth, "Outstanding requests at most")
      ->check(in_range(1, 1024))
      ->type_name("N")
      ->capture_default_str();
  add_size_option(*command, "--block", options->request.limits.logical_block_bytes,
                  "Unit of requests; at least what direct I/O on TARGET asks for",
                  {.example = "4KiB", .min = 512, .max = 1 << 20})
      ->default_str("4KiB");
  command->add_flag("--huge-pages", options->huge_pages, "Memory of huge pages for requests");
  command
      ->add_option("--request-timeout", options->request.request_timeout_seconds,
                   "Seconds: a request that takes longer ends the run")
      ->type_name("S")
      ->check(in_range(0.01, 86400.0))
      ->capture_default_str();
  command->add_flag("--check", options->options.check,
                    "Keep a copy of every stored entry and compare each one that is read, bit for "
                    "bit; compare all extents with what stage 2 plans");
  command
      ->add_option("--record", options->options.record,
                   "Write what the run computed as a trace, so that a replay can be set beside "
                   "it; missing folders are made")
      ->type_name("FILE");
  command->add_option("--seed", options->options.seed, "Of the system's own, and of the draws")
      ->check(seed_range())
      ->type_name("N")
      ->capture_default_str();
  add_threads_option(*command, options->options.threads, "text, selections and I/O do");
  command->add_flag("--quiet", options->quiet, "Do not print the text");
  add_configs_option(*command, options->configs);
  command
      ->add_option("--out", options->out,
                   "New folder for the results (default: results/live, numbered when taken)")
      ->type_name("DIR");
  command->footer(
      "An interrupt (Ctrl-C) ends the run after the step under way and keeps its results. "
      "Examples:\n"
      "  kvreplay live --model smollm2-135m --text story.txt --system clusterkv --budget 256 \\\n"
      "      --target /data/live.bin --create 1GiB --prompt 1024 --steps 64 --generate\n"
      "  kvreplay live --model smollm2-135m --text story.txt --system in_memory --steps 64");
  command->callback([options] {
    options->sampling.seed = options->options.seed;
    try {
      live(*options);
    } catch (const UserError& error) {
      if (!interrupted) throw;
      std::cerr << "kvreplay: " << error.what() << '\n';
    }
    raise_interrupt();
  });
}

}  // namespace kvreplay
