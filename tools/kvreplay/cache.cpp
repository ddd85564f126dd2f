#include <CLI/CLI.hpp>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "base/size.hpp"
#include "tools/kvreplay/cache_options.hpp"
#include "tools/kvreplay/commands.hpp"

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

void print_line(const std::string& kind, const FolderStore::Use& use, const std::string& meaning) {
  std::cout << std::left << std::setw(10) << kind << std::right << std::setw(10) << use.entries
            << " entries" << std::setw(12) << size_text(use.bytes)
            << (meaning.empty() ? "" : "  " + meaning) << '\n';
}

void print_info(const CacheOptions& options) {
  const std::optional<FolderStore> store = options.open();
  std::cout << "folder: " << store->folder() << '\n';
  FolderStore::Use all;
  for (const auto& [kind, use] : store->use_by_kind()) {
    const auto meaning = kMeanings.find(kind);
    print_line(kind, use, meaning == kMeanings.end() ? "" : meaning->second);
    all.entries += use.entries;
    all.bytes += use.bytes;
  }
  print_line("all", all, "");
}

void prune(const CacheOptions& options) {
  std::optional<FolderStore> store = options.open();
  const FolderStore::Use removed = store->prune(options.limit_bytes());
  std::cout << "removed " << removed.entries << " entries, " << size_text(removed.bytes)
            << ", from " << store->folder() << '\n';
}

}  // namespace

void CacheOptions::add_to(CLI::App& command) {
  command
      .add_option("--cache", folder,
                  "Folder of what is kept (default: $XDG_CACHE_HOME/kvreplay, or else "
                  "~/.cache/kvreplay)")
      ->type_name("DIR");
  command
      .add_option("--cache-limit", limit,
                  "What was used longest ago leaves the folder when it outgrows this")
      ->type_name("SIZE")
      ->capture_default_str();
}

std::int64_t CacheOptions::limit_bytes() const {
  const std::optional<std::int64_t> bytes = limit == "0" ? 0 : parse_size(limit);
  if (!bytes) throw UserError({"--cache-limit", ""}, "found " + limit, "a size such as 10GiB");
  return *bytes;
}

std::optional<FolderStore> CacheOptions::open() const {
  if (none) return std::nullopt;
  return std::optional<FolderStore>(
      std::in_place, folder.empty() ? FolderStore::default_folder() : folder, limit_bytes());
}

std::string CacheOptions::left_by_interrupt() const {
  if (none) return "nothing was kept, as --no-cache says";
  return "what is finished is kept in " +
         (folder.empty() ? FolderStore::default_folder() : folder) +
         ": the same command goes on from there";
}

void add_cache(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("cache", "The folder in which sweeps keep what is finished");
  command->require_subcommand(1);
  auto options = std::make_shared<CacheOptions>();
  CLI::App* info = command->add_subcommand("info", "How much it holds, and of what");
  options->add_to(*info);
  info->callback([options] { print_info(*options); });
  CLI::App* removal = command->add_subcommand(
      "prune", "Remove what was used longest ago, down to --cache-limit (0 = everything)");
  options->add_to(*removal);
  removal->callback([options] { prune(*options); });
}

}  // namespace kvreplay
