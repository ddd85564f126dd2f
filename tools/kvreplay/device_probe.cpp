#include <atomic>
#include <csignal>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>

#include "devices/real/aligned_buffer.hpp"
#include "devices/real/block_target.hpp"
#include "devices/real/io_engine.hpp"
#include "devices/real/probe.hpp"
#include "sim/base/output_file.hpp"
#include "tools/kvreplay/device.hpp"

namespace kvreplay {
namespace {

const std::map<std::string, Pattern> kPatterns{{"random", Pattern::kRandom},
                                               {"sequential", Pattern::kSequential}};

std::atomic<bool> interrupted{false};
std::atomic<int> interrupting_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "set by a signal handler");

/// A second signal ends the program, should the device not answer.
void stop_at_signals() {
  for (const int signal : {SIGINT, SIGTERM}) {
    std::signal(signal, [](int number) {
      interrupted = true;
      interrupting_signal = number;
      std::signal(number, SIG_DFL);
    });
  }
}

struct ProbeOptions {
  std::string target;
  ProbeGrid grid{.sizes_bytes = {4 << 10, 8 << 10, 16 << 10, 24 << 10, 32 << 10, 64 << 10,
                                 128 << 10, 512 << 10},
                 .depths = {1, 2, 4, 8, 16, 32}};
  std::vector<std::string> patterns{"random"};
  std::vector<double> write_percents{0};
  std::string engine;
  std::uint64_t create_bytes = 0;
  bool allow_destructive = false;
  bool huge_pages = false;
  std::string out;
};

BlockTarget open_target(const ProbeOptions& options) {
  if (options.create_bytes > 0) return BlockTarget::create(options.target, options.create_bytes);
  if (!options.grid.writes()) return BlockTarget::open(options.target);
  if (!options.allow_destructive) {
    throw UserError({options.target, ""}, "a mix with writes would destroy what it holds",
                    "--create SIZE for a new file, or --allow-destructive");
  }
  return BlockTarget::open_destructive(options.target);
}

void run_probe(ProbeOptions options) {
  ProbeGrid& grid = options.grid;
  grid.patterns.clear();
  for (const std::string& name : options.patterns) grid.patterns.push_back(kPatterns.at(name));
  grid.write_shares.clear();
  for (const double percent : options.write_percents) grid.write_shares.push_back(percent / 100);

  OutputFile output(options.out);  // first: a result without a place would be lost
  std::ofstream stream(output.temporary_path());
  if (!stream) throw UserError({options.out, ""}, "cannot be written", "a writable folder");
  const BlockTarget target = open_target(options);
  const EngineChoice choice = choose_engine(target, options.engine);
  for (const auto& [engine, reason] : choice.refused) {
    std::cerr << "kvreplay: no " << engine << ": " << reason << '\n';
  }
  if (choice.name == "sync" && options.engine.empty()) grid.depths = {1};
  const AlignedBuffer memory(grid.memory_bytes(), target.alignment().memory_bytes,
                             options.huge_pages ? Pages::kHuge : Pages::kOrdinary);
  fill_random(memory.bytes(), grid.seed);
  const auto engine =
      Chosen<IoEngine>::by_name(choice.name).make({target, memory.bytes(), grid.greatest_depth()});

  stop_at_signals();
  ProbeResult result;
  {
    Progress progress("probe", static_cast<std::int64_t>(grid.points()));
    result = probe(target, *engine, grid, interrupted, progress);
  }
  std::string notes = options.huge_pages ? "memory of huge pages" : "memory of ordinary pages";
  if (!engine->notes().empty()) notes += "; " + engine->notes();
  stream << probe_json(result, grid, target, choice, notes, "kvreplay " KVREPLAY_VERSION);
  stream.close();
  if (!stream) throw UserError({options.out, ""}, "cannot be written", "free space");
  output.commit();
  std::cerr << "kvreplay: " << result.points.size() << " of " << grid.points() << " points by "
            << choice.name << " in " << options.out << (result.partial() ? " (partial)\n" : "\n");
  if (result.failure) throw result.failure->to_error(target);
}

}  // namespace

void add_device_probe(CLI::App& device) {
  CLI::App* command = device.add_subcommand(
      "probe", "Measure a file or block device by size, depth, pattern and mix, with direct I/O");
  auto options = std::make_shared<ProbeOptions>();
  command->add_option("TARGET", options->target, "A file or block device; only read by default")
      ->required()
      ->type_name("");
  command->add_option("--out", options->out, "The result, as JSON")->required()->type_name("FILE");
  as_list(add_size_option(*command, "--size", options->grid.sizes_bytes, "Request sizes"))
      ->type_name("BYTES,...")
      ->check(CLI::Range(1.0, 64.0 * (1 << 20)));
  as_list(command->add_option("--depth", options->grid.depths, "Outstanding requests"))
      ->type_name("N,...")
      ->check(CLI::Range(1, 1024));
  as_list(command->add_option("--pattern", options->patterns, "Where requests go"))
      ->type_name("random|sequential,...")
      ->check(CLI::IsMember(kPatterns))
      ->default_str("random");
  as_list(command->add_option("--mix", options->write_percents,
                              "Percent of requests that are writes; needs --create or "
                              "--allow-destructive"))
      ->type_name("0..100,...")
      ->check(CLI::Range(0.0, 100.0))
      ->default_str("0");
  command->add_option("--seconds", options->grid.seconds, "Time of each point")
      ->type_name("S")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  command
      ->add_option("--engine", options->engine,
                   "How requests are made (default: the first that the system permits)")
      ->type_name(join(engine_preference(), "|"));
  add_size_option(*command, "--create", options->create_bytes,
                  "Make TARGET, a new file of this size; it is removed in the end")
      ->type_name("BYTES");
  command->add_flag("--allow-destructive", options->allow_destructive,
                    "Writes may destroy what TARGET holds");
  command->add_flag("--huge-pages", options->huge_pages,
                    "Memory of huge pages: large requests are then split less");
  command->add_option("--seed", options->grid.seed, "Of the random places")
      ->type_name("N")
      ->capture_default_str();
  command->footer(
      "An interrupt (Ctrl-C) keeps the points measured so far and marks the result as partial.\n"
      "Examples:\n"
      "  kvreplay device probe /data/test.bin --create 2G --out probe.json\n"
      "  kvreplay device probe /dev/mmcblk0 --size 4K,24K,128K --depth 1,8,31 --out sd.json");
  command->callback([options] {
    run_probe(*options);
    // All is written and closed: end as whoever interrupted us expects.
    if (interrupted) std::raise(interrupting_signal);
  });
}

}  // namespace kvreplay
