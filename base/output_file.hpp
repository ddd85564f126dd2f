#pragma once

#include <string>
#include <string_view>

namespace kvreplay {

/// A file that appears whole or not at all: it is written beside its final name, renamed by
/// commit(), and removed if commit() was never called. It replaces a regular file of that name;
/// anything else there (a folder, a link, a device) is a UserError.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// The path to write to. Its folder exists.
  [[nodiscard]] const std::string& temporary_path() const { return temporary_; }
  /// Makes the temporary file at once, empty, for work that takes long. Throws UserError where
  /// another process of this host, which has not ended, has claimed the same file.
  void claim();
  /// Renames the file to its final path, after the bytes have reached the disk. Throws UserError
  /// when that fails.
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  const char* name_at_end_ = nullptr;  ///< for remove_temporary_files()
  bool committed_ = false;
  int claimed_ = -1;  ///< a descriptor with a lock, which goes with the process
};

/// Removes the temporary files of all OutputFiles that are not committed, and returns whether there
/// was one. For a program that is about to end: it may be called in a signal handler, and it does
/// nothing in a forked child.
bool remove_temporary_files();

/// Writes a whole text file through an OutputFile. Throws a UserError that names it (full disk, no
/// permission).
void write_text_file(const std::string& path, std::string_view text);

}  // namespace kvreplay
