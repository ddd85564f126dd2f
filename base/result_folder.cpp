#include "base/result_folder.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/output_file.hpp"
#include "base/partial_name.hpp"

namespace kvreplay {
namespace fs = std::filesystem;
namespace {

UserError folder_error(const fs::path& path, const std::error_code& code) {
  return {SourceLocation{path.string(), ""}, "cannot be made (" + code.message() + ")",
          "a writable folder with free space"};
}

UserError folder_taken_error(const fs::path& path) {
  return {SourceLocation{path.string(), ""}, "is there already", "a new or empty folder"};
}

/// Whether there is nothing, or an empty folder, which rename() replaces.
bool is_free(const fs::path& path) {
  std::error_code code;
  const fs::file_status status = fs::symlink_status(path, code);
  if (status.type() == fs::file_type::not_found) return true;
  return fs::is_directory(status) && fs::is_empty(path, code) && !code;
}

fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

fs::path nearest_existing(fs::path path) {
  std::error_code code;
  while (!path.empty() && !fs::exists(path, code) && path != path.root_path()) {
    path = path.parent_path();
  }
  return path;
}

}  // namespace

ResultClaim::ResultClaim(const std::string& path) {
  if (path.empty()) return;
  static_cast<void>(ResultFolder::at(path));  // made, and removed
  std::error_code code;
  const fs::path full = fs::weakly_canonical(without_slash(fs::absolute(path, code)), code);
  // An abstract name: unlike a file, it ends with the process that has it.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "kvreplay-results-" + sha256_text(full.string()).substr(0, 32);
  std::copy(name.begin(), name.end(), &address.sun_path[1]);
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0) return;  // without it, commit() refuses the second one
  if (::bind(socket_, reinterpret_cast<const sockaddr*>(&address), bytes) == 0) return;
  const bool taken = errno == EADDRINUSE;
  ::close(std::exchange(socket_, -1));
  if (taken) {
    throw UserError({path, ""}, "another kvreplay writes it",
                    "another folder, or when it has ended");
  }
}

ResultClaim::~ResultClaim() {
  if (socket_ >= 0) ::close(socket_);
}

ResultFolder ResultFolder::at(const std::string& path) {
  return {path, false};
}
ResultFolder ResultFolder::numbered(const std::string& path) {
  return {path, true};
}

ResultFolder::ResultFolder(const fs::path& path, bool numbered)
    : path_(without_slash(path)), numbered_(numbered) {
  if (!numbered_ && !is_free(path_)) throw folder_taken_error(path_);
  const fs::path beside = nearest_existing(path_.parent_path()) / path_.filename();
  remove_abandoned(beside.string());
  temporary_ = partial_name(beside.string());
  interrupt_cleanup_.emplace(temporary_);  // first: it throws where no thread can be started
  std::error_code code;
  if (!fs::create_directory(temporary_, code)) throw folder_error(path_, code);
}

ResultFolder::~ResultFolder() {
  interrupt_cleanup_.reset();
  std::error_code code;
  if (!committed_) fs::remove_all(temporary_, code);
}

void ResultFolder::write(const ResultFile& file) const {
  write_text_file((temporary_ / file.name).string(), file.text);
}

void ResultFolder::write_all(const std::vector<ResultFile>& files) const {
  for (const ResultFile& file : files) write(file);
}

std::string ResultFolder::commit() {
  interrupt_cleanup_.reset();
  std::error_code code;
  if (path_.has_parent_path()) fs::create_directories(path_.parent_path(), code);
  if (code) throw folder_error(path_, code);
  fs::path name = path_;
  for (int number = 2;; ++number) {
    fs::rename(temporary_, name, code);
    if (!code) break;
    const bool taken = code == std::errc::directory_not_empty || code == std::errc::file_exists ||
                       code == std::errc::not_a_directory;
    if (!taken) throw folder_error(name, code);
    if (!numbered_) throw folder_taken_error(name);
    name = path_.string() + "-" + std::to_string(number);
  }
  committed_ = true;
  return name.string();
}

}  // namespace kvreplay
