#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace kvreplay {

/// Keeps outputs of stages, each under its kind and the hash of everything that it depends on
/// (stage_keys.hpp). Thread-safe.
class StageStore {
 public:
  /// Keeps nothing and finds nothing.
  [[nodiscard]] static StageStore& none();

  StageStore() = default;
  virtual ~StageStore() = default;
  StageStore(const StageStore&) = delete;
  StageStore& operator=(const StageStore&) = delete;

  /// A file that starts with the output, if the output is stored. Counts as a use.
  [[nodiscard]] virtual std::optional<std::string> find(const std::string& kind,
                                                        const std::string& key) = 0;
  /// The output, if it is stored. Counts as a use.
  [[nodiscard]] virtual std::optional<std::string> read(const std::string& kind,
                                                        const std::string& key) = 0;

  virtual void put(const std::string& kind, const std::string& key, std::string_view output) = 0;
  /// The same; `write` writes the output to the path that it is given.
  virtual void put_file(const std::string& kind, const std::string& key,
                        const std::function<void(const std::string& path)>& write) = 0;
  /// Why outputs cannot be stored; "" while they can.
  [[nodiscard]] virtual std::string problem() const = 0;

  /// While a Lock lives, another process's or thread's Lock on one of its keys waits. It ends with
  /// the process, however that ends. To request one while holding another may deadlock.
  class Lock {
   public:
    Lock() = default;
    virtual ~Lock() = default;
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
  };
  [[nodiscard]] virtual std::unique_ptr<Lock> lock(std::span<const std::string> keys) const = 0;
};

}  // namespace kvreplay
