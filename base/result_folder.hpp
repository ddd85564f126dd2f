#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/interrupt_cleanup.hpp"

namespace kvreplay {

/// A text file of results by its name in their folder.
struct ResultFile {
  std::string name;
  std::string text;
};

/// A folder of results that appears whole or not at all: filled under another name beside the
/// nearest folder that exists, renamed by commit(), removed when commit() was never reached or an
/// interrupt ends the program. Never touches results that are there already.
class ResultFolder {
 public:
  /// `path` must be new or empty: a UserError otherwise, before any work is done.
  [[nodiscard]] static ResultFolder at(const std::string& path);
  /// The first that is free of `path`, `path`-2, `path`-3 ...
  [[nodiscard]] static ResultFolder numbered(const std::string& path);

  /// The UserError that at() would give.
  static void check_free(const std::string& path);

  ~ResultFolder();
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;

  /// Where to write.
  [[nodiscard]] std::string temporary_path() const { return temporary_.string(); }
  /// A text file of the folder.
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
