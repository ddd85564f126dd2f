#include "base/output_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/error.hpp"
#include "base/partial_name.hpp"

namespace kvreplay {
namespace {

UserError write_error(const std::string& path) {
  return {SourceLocation{path, ""}, "cannot be written (" + std::string(std::strerror(errno)) + ")",
          "a writable folder with free space"};
}

UserError taken_error(const std::string& path) {
  return {SourceLocation{path, ""}, "cannot be written (what is there already is no regular file)",
          "a new file, or a regular one to replace"};
}

/// The names of the temporary files. A name is owned by whoever takes it out: an OutputFile's
/// destructor, or remove_temporary_files(), which may interrupt that destructor. Files beyond the
/// table's size are still written, but a signal leaves them behind.
std::array<std::atomic<const char*>, 64> temporary_names{};
static_assert(std::atomic<const char*>::is_always_lock_free, "read by a signal handler");
const pid_t kOwner = ::getpid();

const char* enter(const std::string& name) {
  char* const copy = ::strdup(name.c_str());
  for (std::atomic<const char*>& slot : temporary_names) {
    const char* empty = nullptr;
    if (slot.compare_exchange_strong(empty, copy)) return copy;
  }
  std::free(copy);
  return nullptr;
}

void leave(const char* name) {
  if (name == nullptr) return;
  for (std::atomic<const char*>& slot : temporary_names) {
    const char* expected = name;
    if (slot.compare_exchange_strong(expected, nullptr)) {
      std::free(const_cast<char*>(name));
      return;
    }
  }
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  static std::atomic<unsigned> count{0};
  temporary_ = partial_name(path_) + "-" + std::to_string(count++);
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  std::error_code code;
  const std::filesystem::file_type type = std::filesystem::symlink_status(path_, code).type();
  if (type != std::filesystem::file_type::not_found &&
      type != std::filesystem::file_type::regular) {
    throw taken_error(path_);
  }
  code.clear();
  if (!folder.empty()) std::filesystem::create_directories(folder, code);
  if (code) {
    throw UserError({folder.string(), ""}, "cannot be created (" + code.message() + ")",
                    "a writable folder");
  }
  remove_abandoned(path_);
  name_at_end_ = enter(temporary_);
}

void OutputFile::claim() {
  claimed_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (claimed_ < 0) throw write_error(path_);
  ::flock(claimed_, LOCK_EX | LOCK_NB);  // a file system without locks refuses nobody
  for (const std::string& other : partial_names(path_)) {
    if (other == temporary_) continue;
    const int descriptor = ::open(other.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) continue;
    const bool taken = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    ::close(descriptor);
    if (taken) {
      throw UserError({path_, ""}, "another kvreplay writes it",
                      "another file, or when that has ended");
    }
  }
}

OutputFile::~OutputFile() {
  if (claimed_ >= 0) ::close(claimed_);
  if (!committed_) ::unlink(temporary_.c_str());
  leave(name_at_end_);
}

void OutputFile::commit() {
  const int descriptor = ::open(temporary_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw write_error(path_);
  const bool synced = ::fsync(descriptor) == 0;
  ::close(descriptor);
  if (!synced || std::rename(temporary_.c_str(), path_.c_str()) != 0) throw write_error(path_);
  committed_ = true;
}

bool remove_temporary_files() {
  if (::getpid() != kOwner) return false;
  bool removed = false;
  for (std::atomic<const char*>& slot : temporary_names) {
    const char* const name = slot.exchange(nullptr);
    if (name != nullptr && ::unlink(name) == 0) removed = true;
  }
  return removed;
}

void write_text_file(const std::string& path, std::string_view text) {
  OutputFile output(path);
  std::ofstream stream(output.temporary_path(), std::ios::binary);
  stream << text;
  stream.close();
  if (!stream) throw write_error(path);
  output.commit();
}

}  // namespace kvreplay
