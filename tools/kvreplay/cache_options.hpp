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
  std::string folder;  ///< "" = the user's cache folder
  std::int64_t limit_bytes = std::int64_t{10} << 30;
  bool none = false;

  /// Adds --cache and --cache-limit. The object must outlive the command.
  void add_to(CLI::App& command);
  /// The store; keeps nothing if none is wanted.
  [[nodiscard]] std::optional<FolderStore> open() const;
  /// Message after an interrupt: what is kept, and how to continue.
  [[nodiscard]] std::string left_by_interrupt() const;
};

}  // namespace kvreplay
