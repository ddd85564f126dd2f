#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/size.hpp"
#include "base/table.hpp"
#include "tools/kvreplay/cache_options.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/option_values.hpp"

namespace kvreplay {
namespace {

/// What the folders of a cache hold (docs/experiments.md).
const std::map<std::string, const char*> kMeanings{
    {"decide", "access logs: what systems selected on a trace"},
    {"place", "I/O plans: what is read and written"},
    {"time", "timings of finished cells"},
    {"quality", "quality, means by layer"},
    {"trace", "hashes of trace files"},
    {"rates", "how long the work took, for the estimate of --plan"}};

std::vector<std::string> line_of(const std::string& kind, const FolderStore::Use& use,
                                 const std::string& meaning) {
  std::vector<std::string> line{kind, std::to_string(use.entries) + " entries",
                                size_text(use.bytes)};
  if (!meaning.empty()) line.push_back("  " + meaning);
  return line;
}

void print_info(const CacheOptions& options) {
  const std::optional<FolderStore> store = options.open();
  std::cout << "folder: " << store->folder() << '\n';
  constexpr auto kLeft = Table::Align::kLeft;
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"", kLeft, 10}, {"", kRight, 18}, {"", kRight, 12}, {"", kLeft}}, "");
  FolderStore::Use all;
  for (const auto& [kind, use] : store->use_by_kind()) {
    const auto meaning = kMeanings.find(kind);
    table.add_row(line_of(kind, use, meaning == kMeanings.end() ? "" : meaning->second));
    all.entries += use.entries;
    all.bytes += use.bytes;
  }
  table.add_row(line_of("all", all, ""));
  std::cout << table.text(false);
}

void prune(const CacheOptions& options) {
  std::optional<FolderStore> store = options.open();
  const FolderStore::Use removed = store->prune(options.limit_bytes);
  std::cout << "removed " << removed.entries << " entries, " << size_text(removed.bytes)
            << ", from " << store->folder() << '\n';
}

}  // namespace

void CacheOptions::add_to(CLI::App& command) {
  command
      .add_option("--cache", folder,
                  "Folder of stored outputs (default: $XDG_CACHE_HOME/kvreplay, or else "
                  "~/.cache/kvreplay)")
      ->type_name("DIR");
  add_size_option(command, "--cache-limit", limit_bytes,
                  "Remove the least recently used entries when the folder outgrows this",
                  {.example = "10GiB"})
      ->default_str("10GiB");
}

std::optional<FolderStore> CacheOptions::open() const {
  if (none) return std::nullopt;
  return std::optional<FolderStore>(
      std::in_place, folder.empty() ? FolderStore::default_folder() : folder, limit_bytes);
}

std::string CacheOptions::left_by_interrupt() const {
  if (none) return "nothing was kept, as --no-cache says";
  return "what is finished is kept in " +
         (folder.empty() ? FolderStore::default_folder() : folder) +
         "; the same command continues from there";
}

void add_cache(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "cache", "Show or prune the folder in which sweeps keep finished outputs");
  command->require_subcommand(1);
  auto options = std::make_shared<CacheOptions>();
  CLI::App* info = command->add_subcommand("info", "Show what the folder holds, by kind");
  options->add_to(*info);
  info->callback([options] { print_info(*options); });
  CLI::App* removal = command->add_subcommand(
      "prune", "Remove the least recently used entries, down to --cache-limit (0 = all)");
  options->add_to(*removal);
  removal->callback([options] { prune(*options); });
}

}  // namespace kvreplay
