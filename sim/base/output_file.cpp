#include "sim/base/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "sim/base/error.hpp"

namespace kvreplay {
namespace {

UserError write_error(const std::string& path) {
  return {Place{path, ""}, "cannot be written (" + std::string(std::strerror(errno)) + ")",
          "a writable folder with free space"};
}

UserError taken_error(const std::string& path) {
  return {Place{path, ""}, "cannot be written (what is there already is no regular file)",
          "a new file, or a regular one to replace"};
}

}  // namespace

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  static std::atomic<unsigned> count{0};
  temporary_ = path_ + ".partial-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
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
}

OutputFile::~OutputFile() {
  if (!committed_) ::unlink(temporary_.c_str());
}

void OutputFile::commit() {
  const int descriptor = ::open(temporary_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw write_error(path_);
  const bool synced = ::fsync(descriptor) == 0;
  ::close(descriptor);
  if (!synced || std::rename(temporary_.c_str(), path_.c_str()) != 0) throw write_error(path_);
  committed_ = true;
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
