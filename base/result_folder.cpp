#include "base/result_folder.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.hpp"
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

ResultFolder ResultFolder::at(const std::string& path) {
  return {path, false};
}
void ResultFolder::check_free(const std::string& path) {
  static_cast<void>(at(path));  // made, and removed
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
