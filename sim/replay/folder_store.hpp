#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/replay/stage_store.hpp"

namespace kvreplay {

/// A store in a folder: FOLDER/KIND/KE/KEY. An entry is the output's bytes, followed by a trailer
/// with the key and a checksum, so a damaged, truncated or foreign file is detected and counts as
/// absent. Entries appear whole or not at all. Any number of processes and threads may share a
/// folder. When the folder outgrows its limit, the least recently used entries are removed first.
///
/// A store that cannot be written continues without storing; problem() then says why. Entries are
/// not synced to the disk, because a lost one is merely computed again.
class FolderStore final : public StageStore {
 public:
  /// `folder` is created when the first entry is put.
  FolderStore(std::string folder, std::int64_t limit_bytes);
  /// $XDG_CACHE_HOME/kvreplay or, where that is not set, $HOME/.cache/kvreplay.
  [[nodiscard]] static std::string default_folder();

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::optional<std::string> find(const std::string& kind,
                                                const std::string& key) override;
  [[nodiscard]] std::optional<std::string> read(const std::string& kind,
                                                const std::string& key) override;
  void put(const std::string& kind, const std::string& key, std::string_view output) override;
  void put_file(const std::string& kind, const std::string& key,
                const std::function<void(const std::string& path)>& write) override;
  [[nodiscard]] std::string problem() const override;
  [[nodiscard]] std::unique_ptr<Lock> lock(std::span<const std::string> keys) const override;

  struct Use {
    std::int64_t entries = 0;
    std::int64_t bytes = 0;
  };
  [[nodiscard]] std::map<std::string, Use> use_by_kind() const;
  /// Removes the least recently used entries until at most `limit_bytes` are left, and whatever
  /// killed writers left behind. Returns what was removed.
  Use prune(std::int64_t limit_bytes);

 private:
  struct Entry {
    std::string path;
    std::string kind;
    std::int64_t bytes = 0;
    std::int64_t used_ns = 0;
  };

  [[nodiscard]] std::string path_of(const std::string& kind, const std::string& key) const;
  [[nodiscard]] std::vector<Entry> entries() const;
  void remove_abandoned() const;
  void account(std::int64_t bytes);

  std::string folder_;
  std::int64_t limit_bytes_;
  mutable std::mutex mutex_;
  std::string problem_;
  std::int64_t known_bytes_ = -1;  ///< in the folder, as far as this process knows; -1 = unknown
};

}  // namespace kvreplay
