#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace kvreplay {

/// A regular file, mapped read-only. A mapped byte that cannot be read (a disk that fails, a file
/// that was cut short) reaches the program as a signal, not as an error: see end_at_failed_mapping.
class MappedFile {
 public:
  /// Throws UserError unless `file` is a regular file with at least one byte; `allowed` says what
  /// it must be.
  MappedFile(const std::string& file, std::string_view allowed);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(status_.st_size); }
  [[nodiscard]] const std::byte* at(std::int64_t offset) const { return bytes_ + offset; }
  /// Releases the memory of the whole pages within these bytes. They are read again when used.
  void release(std::int64_t offset, std::int64_t bytes) const;

  /// What messages call the bytes [offset, offset + bytes): "/layer/12/key".
  void name_part(std::int64_t offset, std::int64_t bytes, std::string within);
  /// Throws UserError when the file was written to or cut since it was mapped: what was read from
  /// it may be of neither state. (Bytes behind the new end, in its last page, read as zeros.)
  void check_unchanged() const;

  struct Entry;

 private:
  std::string file_;
  int descriptor_ = -1;
  struct stat status_ {};
  const std::byte* bytes_ = nullptr;
  Entry* entry_ = nullptr;
};

/// From now on a byte of a MappedFile that cannot be read ends the program with `exit_code`, after
/// one line that names the file and the part, and without the temporary files of unfinished
/// outputs. For main(): a library does not end the program.
void end_at_failed_mapping(int exit_code);

}  // namespace kvreplay
