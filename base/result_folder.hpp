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

/// The name of a folder of results, which a long run holds from its beginning: nobody else on this
/// host can claim it meanwhile, so that no run ends without a place for its results. It leaves
/// nothing behind, however the process ends.
class ResultClaim {
 public:
  /// UserErrors: those of ResultFolder::at(), and that another process holds the name. An empty
  /// `path`, of results that have no folder yet, claims nothing.
  explicit ResultClaim(const std::string& path);
  ~ResultClaim();
  ResultClaim(const ResultClaim&) = delete;
  ResultClaim& operator=(const ResultClaim&) = delete;

 private:
  int socket_ = -1;
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
