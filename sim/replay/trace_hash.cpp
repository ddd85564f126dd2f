#include "sim/replay/trace_hash.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <optional>

#include "base/hash.hpp"
#include "sim/replay/stage_keys.hpp"
#include "sim/replay/stage_store.hpp"

namespace kvreplay {
namespace {

std::string time_text(const timespec& time) {
  return std::to_string(time.tv_sec) + "." + std::to_string(time.tv_nsec);
}

/// The file's path and the metadata that change with its content.
std::optional<std::string> identity(const std::string& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return std::nullopt;
  return std::filesystem::absolute(file).string() + '\n' + std::to_string(status.st_dev) + ' ' +
         std::to_string(status.st_ino) + ' ' + std::to_string(status.st_size) + ' ' +
         time_text(status.st_mtim) + ' ' + time_text(status.st_ctim);
}

}  // namespace

std::string trace_hash(const std::string& file, StageStore& store) {
  const std::optional<std::string> found = identity(file);
  if (!found) return sha256_file(file);
  const std::string key = sha256_text(*found);
  if (std::optional<std::string> stored = store.read(kind::kTraceHash, key)) return *stored;
  std::string hash = sha256_file(file);
  // For a file that changes while it is read, neither identity guarantees the hash.
  if (identity(file) == found) store.put(kind::kTraceHash, key, hash);
  return hash;
}

}  // namespace kvreplay
