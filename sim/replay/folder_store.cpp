#include "sim/replay/folder_store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace kvreplay {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kKeyDigits = 64;
/// MAGIC KEY BYTES CHECKSUM\n. The checksum covers the output, followed by the key.
constexpr std::string_view kMagic = "kvreplay-stage-1";
constexpr std::size_t kSizeDigits = 16;
constexpr std::size_t kTrailerBytes = kMagic.size() + 1 + kKeyDigits + 1 + kSizeDigits + 1 + 64 + 1;

constexpr std::string_view kTemporary = "temporary-";
constexpr std::int64_t kAbandonedSeconds = 3600;

bool is_key(std::string_view name) {
  return name.size() == kKeyDigits &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// The trailer of an entry whose output is the file's first `bytes` bytes; none when they cannot be
/// read.
std::optional<std::string> trailer_of(const std::string& path, std::size_t bytes,
                                      const std::string& key) {
  std::ifstream stream(path, std::ios::binary);
  Sha256 hash;
  std::vector<char> piece(1 << 16);
  for (std::size_t left = bytes; left > 0;) {
    const std::size_t count = std::min(left, piece.size());
    if (!stream.read(piece.data(), static_cast<std::streamsize>(count))) return std::nullopt;
    hash.update(std::string_view(piece.data(), count));
    left -= count;
  }
  hash.update(key);
  std::array<char, kSizeDigits + 1> size{};
  std::snprintf(size.data(), size.size(), "%016zx", bytes);
  return std::string(kMagic) + " " + key + " " + size.data() + " " + hash.hex() + "\n";
}

/// Bytes of the output of an undamaged entry.
std::optional<std::size_t> output_bytes(const std::string& path, const std::string& key) {
  std::error_code code;
  const std::uintmax_t bytes = fs::file_size(path, code);
  if (code || bytes < kTrailerBytes) return std::nullopt;
  const std::size_t output = static_cast<std::size_t>(bytes) - kTrailerBytes;
  std::array<char, kTrailerBytes> found{};
  std::ifstream stream(path, std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(output));
  if (!stream.read(found.data(), found.size())) return std::nullopt;
  const std::string_view trailer(found.data(), found.size());
  if (trailer != trailer_of(path, output, key)) return std::nullopt;
  return output;
}

/// A file that is removed unless it was moved away.
class Temporary {
 public:
  explicit Temporary(const std::string& folder) {
    path_ = (fs::path(folder) / (std::string(kTemporary) + "XXXXXX")).string();
    const int descriptor = ::mkstemp(path_.data());
    if (descriptor < 0) throw std::system_error(errno, std::generic_category());
    ::close(descriptor);
  }
  ~Temporary() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  void move_to(const std::string& to) {
    fs::rename(path_, to);
    path_.clear();
  }

 private:
  std::string path_;
};

void append(const std::string& path, std::string_view text) {
  std::ofstream stream(path, std::ios::binary | std::ios::app);
  stream << text;
  stream.close();
  if (!stream) throw std::system_error(errno, std::generic_category());
}

/// Locks one byte per key of a file, which need not contain those bytes.
class FileLock final : public StageStore::Lock {
 public:
  FileLock(const std::string& file, std::span<const std::string> keys) {
    descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) return;  // nothing can be stored then, either
    // In one fixed order, so that no two processes wait for each other.
    std::vector<std::int64_t> bytes;
    for (const std::string& key : keys) {
      std::int64_t byte = 0;
      std::from_chars(key.data(), key.data() + 15, byte, 16);
      bytes.push_back(byte);
    }
    std::sort(bytes.begin(), bytes.end());
    bytes.erase(std::unique(bytes.begin(), bytes.end()), bytes.end());
    for (const std::int64_t byte : bytes) {
      struct flock lock {};
      lock.l_type = F_WRLCK;
      lock.l_whence = SEEK_SET;
      lock.l_start = byte;
      lock.l_len = 1;
      while (::fcntl(descriptor_, F_OFD_SETLKW, &lock) != 0 && errno == EINTR) {
      }
    }
  }
  ~FileLock() override {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

 private:
  int descriptor_ = -1;
};

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

FolderStore::FolderStore(std::string folder, std::int64_t limit_bytes)
    : folder_(std::move(folder)), limit_bytes_(limit_bytes) {
  std::error_code code;
  const fs::file_status status = fs::status(folder_, code);
  if (fs::exists(status) && !fs::is_directory(status)) {
    throw UserError({folder_, ""}, "is no folder", "a folder for the cache, new or there already");
  }
}

std::string FolderStore::default_folder() {
  // A relative path must be ignored: XDG Base Directory Specification.
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return (fs::path(cache) / "kvreplay").string();
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') {
    throw UserError({"HOME", ""}, "names no folder for the cache", "--cache DIR, or --no-cache");
  }
  return (fs::path(home) / ".cache" / "kvreplay").string();
}

std::string FolderStore::path_of(const std::string& kind, const std::string& key) const {
  return (fs::path(folder_) / kind / key.substr(0, 2) / key).string();
}

std::optional<std::string> FolderStore::find(const std::string& kind, const std::string& key) {
  const std::string path = path_of(kind, key);
  if (!output_bytes(path, key)) return std::nullopt;
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
  return path;
}

std::optional<std::string> FolderStore::read(const std::string& kind, const std::string& key) {
  const std::optional<std::string> path = find(kind, key);
  if (!path) return std::nullopt;
  // Another process may have evicted the entry since it was found.
  std::error_code code;
  const std::uintmax_t bytes = fs::file_size(*path, code);
  if (code || bytes < kTrailerBytes) return std::nullopt;
  std::string output(static_cast<std::size_t>(bytes) - kTrailerBytes, '\0');
  std::ifstream stream(*path, std::ios::binary);
  if (!stream.read(output.data(), static_cast<std::streamsize>(output.size()))) return std::nullopt;
  return output;
}

void FolderStore::put(const std::string& kind, const std::string& key, std::string_view output) {
  put_file(kind, key, [&](const std::string& path) { append(path, output); });
}

void FolderStore::put_file(const std::string& kind, const std::string& key,
                           const std::function<void(const std::string& path)>& write) {
  if (!problem().empty()) return;
  try {
    const fs::path path = path_of(kind, key);
    fs::create_directories(path.parent_path());
    Temporary temporary(folder_);
    write(temporary.path());
    const auto bytes = static_cast<std::size_t>(fs::file_size(temporary.path()));
    const std::optional<std::string> trailer = trailer_of(temporary.path(), bytes, key);
    if (!trailer) throw std::system_error(errno, std::generic_category());
    append(temporary.path(), *trailer);
    temporary.move_to(path.string());
    account(static_cast<std::int64_t>(bytes + kTrailerBytes));
  } catch (const std::system_error& error) {
    const std::lock_guard guard(mutex_);
    problem_ = folder_ + ": cannot be written (" + error.code().message() + ")";
  } catch (const UserError& error) {
    const std::lock_guard guard(mutex_);
    problem_ = error.what();
  }
}

std::string FolderStore::problem() const {
  const std::lock_guard guard(mutex_);
  return problem_;
}

void FolderStore::account(std::int64_t bytes) {
  const std::lock_guard guard(mutex_);
  if (known_bytes_ < 0) {
    known_bytes_ = 0;
    for (const Entry& entry : entries()) known_bytes_ += entry.bytes;
  } else {
    known_bytes_ += bytes;
  }
  if (known_bytes_ <= limit_bytes_) return;
  // A tenth below the limit, so that the folder is not scanned for every further entry.
  prune(limit_bytes_ / 10 * 9);
  known_bytes_ = -1;
}

std::vector<FolderStore::Entry> FolderStore::entries() const {
  std::vector<Entry> entries;
  std::error_code code;
  for (fs::recursive_directory_iterator at(folder_, code), end; !code && at != end;
       at.increment(code)) {
    const fs::path& path = at->path();
    const std::string name = path.filename().string();
    struct stat status {};
    if (!is_key(name) || ::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    const std::string kind = path.parent_path().parent_path().filename().string();
    if (path.string() != path_of(kind, name)) continue;
    entries.push_back({path.string(), kind, status.st_size, nanoseconds(status.st_mtim)});
  }
  return entries;
}

std::map<std::string, FolderStore::Use> FolderStore::use_by_kind() const {
  std::map<std::string, Use> uses;
  for (const Entry& entry : entries()) {
    ++uses[entry.kind].entries;
    uses[entry.kind].bytes += entry.bytes;
  }
  return uses;
}

void FolderStore::remove_abandoned() const {
  std::error_code code;
  for (const fs::directory_entry& file : fs::directory_iterator(folder_, code)) {
    struct stat status {};
    if (!file.path().filename().string().starts_with(kTemporary) ||
        ::lstat(file.path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
      continue;
    }
    if (status.st_mtim.tv_sec + kAbandonedSeconds < std::time(nullptr)) {
      ::unlink(file.path().c_str());
    }
  }
}

FolderStore::Use FolderStore::prune(std::int64_t limit_bytes) {
  remove_abandoned();
  std::vector<Entry> all = entries();
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) {
    return a.used_ns != b.used_ns ? a.used_ns < b.used_ns : a.path < b.path;
  });
  std::int64_t left = 0;
  for (const Entry& entry : all) left += entry.bytes;
  Use removed;
  for (const Entry& entry : all) {
    if (left <= limit_bytes) break;
    if (::unlink(entry.path.c_str()) != 0) continue;
    left -= entry.bytes;
    ++removed.entries;
    removed.bytes += entry.bytes;
  }
  return removed;
}

std::unique_ptr<StageStore::Lock> FolderStore::lock(std::span<const std::string> keys) const {
  std::error_code code;
  fs::create_directories(folder_, code);
  return std::make_unique<FileLock>((fs::path(folder_) / "lock").string(), keys);
}

}  // namespace kvreplay
