#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "policies/place/access_export.hpp"
#include "sim/replay/experiment.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/option_values.hpp"

namespace kvreplay {
namespace {

struct ExportOptions {
  std::string log;
  std::string out;
  std::int64_t layer = 0;
  std::string model;
  ConfigFolder configs = ConfigFolder::standard();
};

/// The index of the model's layer in the log. A layer with full attention has no cache.
std::size_t index_of(const AccessLog& log, const ExportOptions& options) {
  std::vector<std::string> known;
  for (std::size_t i = 0; i < log.layers.size(); ++i) {
    if (log.layers[i].full_attention) continue;
    if (log.layers[i].layer == options.layer) return i;
    known.push_back(std::to_string(log.layers[i].layer));
  }
  throw UserError({options.log, "/layer"},
                  "has no accesses of layer " + std::to_string(options.layer),
                  known.empty() ? "a log of a layer that selects" : join(known));
}

/// The first kind of the model's layers that follows layers decided under that window.
KvShape kind_for(const ModelSpec& model, std::int64_t window) {
  for (const KvShape& kind : model.kv_kinds()) {
    if (kind.sliding_window.value_or(window) == window) return kind;
  }
  throw UserError(model.arguments.place("sliding_window"),
                  "has no layer that sees what the log's layer saw, " + std::to_string(window) +
                      " tokens (0 = all)",
                  "the model that the log was made for");
}

void export_log(const ExportOptions& options) {
  const AccessLog log = read_access_log(options.log);
  const std::size_t layer = index_of(log, options);
  KvShape shape{std::ssize(log.layers), log.query_heads, log.kv_heads, log.head_dim};
  if (!options.model.empty()) {
    const std::string file = options.configs.file("models", options.model, {});
    shape = kind_for(ModelSpec::load(file, options.configs), log.layers[layer].sliding_window);
  }
  export_accesses(log, layer, shape, options.out);
  std::cerr << "kvreplay: wrote " << options.out << '\n';
}

}  // namespace

void add_export_accesses(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "export-accesses",
      "Write the accesses of a layer's cache as libCacheSim's oracleGeneral records");
  auto options = std::make_shared<ExportOptions>();
  command
      ->add_option("ACCESSLOG", options->log, "An .access.h5 file of `kvreplay run --access-log`")
      ->required()
      ->type_name("");
  command->add_option("OUT", options->out, "The file to write")
      ->required()
      ->check(CLI::NonexistentPath)
      ->type_name("");
  command->add_option("--layer", options->layer, "The recorded model's layer number")
      ->required()
      ->check(number_range())
      ->type_name("N");
  command
      ->add_option("--model", options->model,
                   "Project onto this model's shape (default: as recorded)")
      ->type_name("NAME");
  add_configs_option(*command, options->configs);
  command->footer(
      "A record is 24 bytes, little-endian: u32 step, u64 stream << 32 | group, u32 bytes, i64 "
      "number "
      "of\nthe next access to the group or -1 (docs/caches.md).\n\n"
      "Example:\n"
      "  kvreplay run first --access-log --out runs/first\n"
      "  kvreplay export-accesses runs/first/smollm2-135m-story-3k.quest.access.h5 "
      "quest.oracleGeneral "
      "--layer 12\n"
      "  cachesim quest.oracleGeneral oracleGeneral lru,s3fifo 1MB");
  command->callback([options] { export_log(*options); });
}

}  // namespace kvreplay
