#pragma once

#include <string>
#include <string_view>

namespace kvreplay {

/// A file that appears whole or not at all: written beside its final name, renamed by commit(),
/// removed when commit() was never reached. It replaces a regular file of that name; anything else
/// there (a folder, a link, a device) is a UserError.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Where to write. The folder exists.
  [[nodiscard]] const std::string& temporary_path() const { return temporary_; }
  /// Renames to the final path, after the bytes have reached the disk. UserError when that fails.
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  const char* name_at_end_ = nullptr;  ///< for remove_temporary_files()
  bool committed_ = false;
};

/// Removes the temporary files of all OutputFiles that are not committed; whether there was one.
/// For a program that is about to end: it may be called in a signal handler, and in a forked child
/// it does nothing.
bool remove_temporary_files();

/// Writes a whole text file through an OutputFile. UserError (full disk, no permission) names it.
void write_text_file(const std::string& path, std::string_view text);

}  // namespace kvreplay
