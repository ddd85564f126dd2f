#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace kvreplay::fuzz {

[[nodiscard]] inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// The input as a file, for readers that take a path; in memory where the system has a folder of
/// such files. Not a memfd: HDF5 wants a path that it can resolve.
class InputFile {
 public:
  InputFile(const std::uint8_t* data, std::size_t size) {
    const bool has_shm = ::access("/dev/shm", W_OK) == 0;
    path_ = (has_shm ? "/dev/shm" : std::filesystem::temp_directory_path().string()) +
            "/kvreplay-fuzz-XXXXXX";
    const int descriptor = ::mkstemp(path_.data());
    if (descriptor < 0) std::abort();
    std::size_t done = 0;
    while (done < size) {
      const ssize_t written = ::write(descriptor, data + done, size - done);
      if (written <= 0) std::abort();
      done += static_cast<std::size_t>(written);
    }
    ::close(descriptor);
  }
  ~InputFile() { ::unlink(path_.c_str()); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// How many inputs, or messages in them, were refused.
inline int refusals = 0;

/// Runs `read`; a UserError is what a bad input must give, and anything else is a finding.
template <typename Read>
int expect_user_error(Read&& read) {
  try {
    read();
  } catch (const UserError& error) {
    ++refusals;
    const std::string_view line = error.what();
    if (line.empty() || line.find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}

}  // namespace kvreplay::fuzz
