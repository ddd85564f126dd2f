#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/interrupt_cleanup.hpp"

namespace kvreplay {

/// A text file of results, by its name in their folder.
struct ResultFile {
  std::string name;
  std::string text;
};

/// A folder of results that appears whole or not at all. It is filled under another name beside the
/// nearest folder that exists, and renamed by commit(). It is removed when commit() was never
/// reached or an interrupt ends the program. It never touches results that are already there.
class ResultFolder {
 public:
  /// `path` must be new or an empty folder. Otherwise throws UserError, before any work is done.
  [[nodiscard]] static ResultFolder at(const std::string& path);
  /// The first free one of `path`, `path`-2, `path`-3 ...
  [[nodiscard]] static ResultFolder numbered(const std::string& path);

  /// The UserError that at() would throw.
  static void check_free(const std::string& path);

  ~ResultFolder();
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;

  /// The folder to write to.
  [[nodiscard]] std::string temporary_path() const { return temporary_.string(); }
  /// Writes a text file of the folder.
  void write(const ResultFile& file) const;
  void write_all(const std::vector<ResultFile>& files) const;
  /// Returns the final name.
  std::string commit();

 private:
  ResultFolder(const std::filesystem::path& path, bool numbered);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  bool numbered_;
  bool committed_ = false;
  std::optional<InterruptCleanup> interrupt_cleanup_;  ///< until commit()
};

}  // namespace kvreplay
