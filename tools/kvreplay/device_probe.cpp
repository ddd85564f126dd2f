#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/build_info.hpp"
#include "base/files.hpp"
#include "base/output_file.hpp"
#include "base/progress.hpp"
#include "devices/real/io_engine.hpp"
#include "devices/real/probe.hpp"
#include "tools/kvreplay/open_target.hpp"

namespace kvreplay {
namespace {

const std::map<std::string, Pattern> kPatterns{{"random", Pattern::kRandom},
                                               {"sequential", Pattern::kSequential}};

struct ProbeOptions {
  std::string target;
  ProbeRequest request{.grid = {.sizes_bytes = {4 << 10, 8 << 10, 16 << 10, 24 << 10, 32 << 10,
                                                64 << 10, 128 << 10, 512 << 10},
                                .depths = {1, 2, 4, 8, 16, 32}},
                       .engine = ""};
  std::vector<std::string> patterns{"random"};
  std::vector<double> write_percents{0};
  std::uint64_t create_bytes = 0;
  bool allow_destructive = false;
  PagesFlags pages;
  RemoteFlags remote;
  std::string out;
};

/// Collects the result.
struct Collected {
  std::optional<nlohmann::ordered_json> setting;  ///< once the target is open
  std::vector<nlohmann::ordered_json> points;
  ProbeEnd end;
};

Collected measure(const ProbeOptions& options) {
  const auto [device, target] =
      open_target(options.target, options.create_bytes, options.request.grid.writes(),
                  options.allow_destructive, options.remote);
  Collected collected;
  std::optional<Progress> progress;
  const ProbeSink sink{[&, &device = device](const nlohmann::ordered_json& setting) {
                         nlohmann::ordered_json& known = collected.setting.emplace(setting);
                         if (device) {
                           known["device"] = device->name();
                           known["agent_sha256"] = device->hello().at("sha256");
                         }
                         for (const auto& refusal : setting.at("engine").at("refused")) {
                           std::cerr << "kvreplay: no " << refusal.at("engine").get<std::string>()
                                     << ": " << refusal.at("reason").get<std::string>() << '\n';
                         }
                         progress.emplace("probe", setting.at("points_wanted").get<std::int64_t>());
                       },
                       [&](const nlohmann::ordered_json& point) {
                         collected.points.push_back(point);
                         progress->advance();
                       }};
  try {
    collected.end = device ? device->probe(options.request, interrupted, sink)
                           : run_probe(*target, options.request, interrupted, sink);
  } catch (const UserError& error) {
    if (collected.points.empty()) throw;
    collected.end.ended_by = error.what();
  }
  return collected;
}

void probe(ProbeOptions options) {
  ProbeGrid& grid = options.request.grid;
  grid.patterns.clear();
  for (const std::string& name : options.patterns) grid.patterns.push_back(kPatterns.at(name));
  grid.write_shares.clear();
  for (const double percent : options.write_percents) grid.write_shares.push_back(percent / 100);
  options.request.pages = options.pages.pages();
  if (grid.writes() && options.create_bytes == 0 && !options.allow_destructive) {
    throw UserError({options.target, ""}, "a mix with writes would destroy what it holds",
                    "--create SIZE for a new file, or --allow-destructive");
  }

  check_not_input(options.out, options.target);
  check_is_new(options.out);       // a measurement takes long, and cannot be repeated
  OutputFile output(options.out);  // first, so that no result is lost for lack of a place
  output.claim();
  std::ofstream stream(output.temporary_path());
  if (!stream) throw UserError({options.out, ""}, "cannot be written", "a writable folder");
  const auto [setting, points, end] = measure(options);
  stream << probe_document(setting.value(), points, end, "kvreplay " + version());
  stream.close();
  if (!stream) throw UserError({options.out, ""}, "cannot be written", "free space");
  output.commit();
  std::cerr << "kvreplay: " << points.size() << " of " << setting->at("points_wanted")
            << " points by " << setting->at("engine").at("name").get<std::string>() << " in "
            << options.out << (end.ended_by.empty() ? "\n" : " (not complete)\n");
  if (!end.ended_by.empty() && !end.interrupted()) throw UserError(end.ended_by);
}

}  // namespace

void add_device_probe(CLI::App& device) {
  CLI::App* command = device.add_subcommand(
      "probe", "Measure a file or block device by size, depth, pattern and mix, with direct I/O");
  auto options = std::make_shared<ProbeOptions>();
  command
      ->add_option("TARGET", options->target,
                   "A file or block device, here or by ssh:[USER@]HOST[:PORT]:/PATH or "
                   "adb:SERIAL:/PATH; only read by default")
      ->required()
      ->type_name("");
  command->add_option("--out", options->out, "The result, as JSON; missing folders are made")
      ->required()
      ->type_name("FILE");
  as_list(add_size_option(*command, "--size", options->request.grid.sizes_bytes, "Request sizes",
                          {.min = 1, .max = 64 << 20}))
      ->type_name("SIZE,...");
  as_list(command->add_option("--depth", options->request.grid.depths, "Outstanding requests"))
      ->type_name("N,...")
      ->check(in_range(1, 1024));
  as_list(command->add_option("--pattern", options->patterns, "Pattern of the offsets"))
      ->type_name("random|sequential,...")
      ->check(one_of(kPatterns))
      ->default_str("random");
  as_list(command->add_option("--mix", options->write_percents,
                              "Percent of requests that are writes; needs --create or "
                              "--allow-destructive"))
      ->type_name("0..100,...")
      ->check(in_range(0.0, 100.0))
      ->default_str("0");
  command
      ->add_option("--rounds", options->request.grid.rounds,
                   "How often the points are gone through, all but the last time in random order; "
                   "each takes its share of --seconds")
      ->type_name("N")
      ->check(in_range(1, 1000))
      ->capture_default_str();
  command->add_option("--seconds", options->request.grid.seconds, "Time per point")
      ->type_name("S")
      ->check(in_range(0.01, 3600.0))
      ->capture_default_str();
  command
      ->add_option("--engine", options->request.engine,
                   "I/O engine (default: the first that the system permits)")
      ->type_name(join(engine_preference(), "|"));
  command
      ->add_option("--request-timeout", options->request.request_timeout_seconds,
                   "Time in seconds after which an unanswered request ends the probe")
      ->type_name("S")
      ->check(in_range(0.01, 86400.0))
      ->capture_default_str();
  add_create_option(*command, options->create_bytes);
  command->add_flag("--allow-destructive", options->allow_destructive,
                    "Allow writes to destroy what TARGET holds");
  options->pages.add_to(*command);
  command->add_option("--seed", options->request.grid.seed, "Seed of the random offsets")
      ->check(seed_range())
      ->type_name("N")
      ->capture_default_str();
  options->remote.add_to(*command);
  command->footer(
      "An interrupt (Ctrl-C), a closed terminal or a lost device keeps the points measured so far "
      "and marks "
      "the result as incomplete.\n"
      "Examples:\n"
      "  kvreplay device probe /data/test.bin --create 2G --out probe.json\n"
      "  kvreplay device probe /dev/mmcblk0 --size 4K,24K,128K --depth 1,8,31 --out sd.json\n"
      "  kvreplay device probe ssh:root@board:/data/test.bin --create 2G --out board.json\n"
      "  kvreplay device probe adb:SERIAL:/data/local/tmp/test.bin --create 2G --out phone.json");
  command->callback([options] {
    try {
      probe(*options);
    } catch (const UserError& error) {
      if (!interrupted) throw;
      std::cerr << "kvreplay: " << error.what() << '\n';
    }
    raise_interrupt();
  });
}

}  // namespace kvreplay
