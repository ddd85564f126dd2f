#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace kvreplay {

/// The bytes of a served device, apart from its timing. Several threads may use it at once.
/// Overlapping reads and writes are as unordered as on a real device.
class Store {
 public:
  virtual ~Store() = default;
  [[nodiscard]] virtual std::uint64_t bytes() const = 0;
  [[nodiscard]] virtual bool writable() const = 0;
  /// The range must lie within bytes(). Returns 0 or an errno value.
  [[nodiscard]] virtual int read(void* to, std::uint32_t count, std::uint64_t offset) = 0;
  [[nodiscard]] virtual int write(const void* from, std::uint32_t count, std::uint64_t offset) = 0;
  /// The range is no longer needed: it may then read as zeros, or as before.
  virtual void trim(std::uint32_t count, std::uint64_t offset) = 0;
};

/// Zeros in memory that is allocated page by page as it is written. Throws UserError when the
/// system refuses.
[[nodiscard]] std::unique_ptr<Store> memory_store(std::uint64_t bytes);
/// A file or block device, read-only where it cannot be opened for writing. `bytes`: how many of
/// its first bytes to serve; 0: all whole blocks of `block_bytes`. Throws UserError when it cannot
/// be opened or is smaller.
[[nodiscard]] std::unique_ptr<Store> file_store(const std::string& path, std::uint64_t bytes,
                                                std::uint64_t block_bytes);

}  // namespace kvreplay
