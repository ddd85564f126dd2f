#include "sim/replay/trace_hash.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/hdf5/hdf5_file.hpp"
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

/// A UserError that names the first data set that the disk does not give.
void check_data_sets(const std::string& file) {
  const Hdf5File hdf5 = Hdf5File::open(file);
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  std::vector<char> piece(1 << 20);
  std::string path;
  int error = 0;
  for (const std::string& name : hdf5.paths()) {
    if (descriptor < 0 || error != 0) break;
    if (!hdf5.is_dataset(name)) continue;
    const Hdf5Dataset found = hdf5.dataset(name);
    if (!found.contiguous || !found.offset) continue;
    path = name;
    for (std::int64_t done = 0; done < found.stored_bytes && error == 0;) {
      const auto most = std::min(std::ssize(piece), found.stored_bytes - done);
      const ssize_t got =
          ::pread(descriptor, piece.data(), static_cast<std::size_t>(most), *found.offset + done);
      if (got < 0) error = errno;
      if (got <= 0) break;
      done += got;
    }
  }
  ::close(descriptor);
  if (error != 0) {
    throw UserError({file, path}, std::string("cannot be read (") + std::strerror(error) + ")",
                    "a readable file");
  }
}

/// Of the whole file; an error of the disk names the data set.
std::string sha256_trace(const std::string& file) {
  try {
    return sha256_file(file);
  } catch (const UserError&) {
    check_data_sets(file);
    throw;
  }
}

}  // namespace

std::string trace_hash(const std::string& file, StageStore& store) {
  const std::optional<std::string> found = identity(file);
  if (!found) return sha256_trace(file);
  const std::string key = sha256_text(*found);
  if (std::optional<std::string> stored = store.read(kind::kTraceHash, key)) return *stored;
  std::string hash = sha256_trace(file);
  // For a file that changes while it is read, neither identity guarantees the hash.
  if (identity(file) == found) store.put(kind::kTraceHash, key, hash);
  return hash;
}

}  // namespace kvreplay
