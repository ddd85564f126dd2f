#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/replay/folder_store.hpp"

namespace CLI {
class App;
}

namespace kvreplay {

/// Which cache folder a command uses.
struct CacheOptions {
  std::string folder;  ///< "" = the user's own
  std::int64_t limit_bytes = std::int64_t{10} << 30;
  bool none = false;

  /// --cache and --cache-limit. The object outlives the command.
  void add_to(CLI::App& command);
  /// Nothing, where none is wanted.
  [[nodiscard]] std::optional<FolderStore> open() const;
  /// What an interrupt leaves, and how to go on.
  [[nodiscard]] std::string left_by_interrupt() const;
};

}  // namespace kvreplay
