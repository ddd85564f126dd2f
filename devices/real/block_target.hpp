#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "devices/device.hpp"

namespace kvreplay {

/// What direct I/O on a target requires, and the source of these numbers.
struct DirectAlignment {
  std::uint32_t offset_bytes = 4096;  ///< offsets and sizes of requests are multiples of it
  std::uint32_t memory_bytes = 4096;  ///< addresses of buffers are multiples of it
  std::string source;                 ///< "statx", "BLKSSZGET" or "file-system block"
};

/// A file or block device that is open for direct I/O (O_DIRECT). Opening proves that requests
/// reach the device: a file system may accept O_DIRECT and still read through the page cache (f2fs
/// with encrypted files), or return wrong bytes (FUSE storage of phones). Every refusal is a
/// UserError that names the path.
class BlockTarget {
 public:
  /// An existing file or block device, for reading.
  [[nodiscard]] static BlockTarget open(const std::string& path);
  /// Opens for reading and writing: existing contents may be lost. The caller has the user's
  /// consent.
  [[nodiscard]] static BlockTarget open_destructive(const std::string& path);
  /// A new file of random bytes, for reading and writing. Its name is removed as soon as it is
  /// open, so that nothing is left behind however the program ends. `on_progress` receives the
  /// bytes written so far; an exception from it cancels the creation.
  [[nodiscard]] static BlockTarget create(
      const std::string& path, std::uint64_t bytes,
      const std::function<void(std::uint64_t done_bytes)>& on_progress = {});

  ~BlockTarget();
  BlockTarget(BlockTarget&& other) noexcept;
  BlockTarget& operator=(BlockTarget&&) = delete;
  /// Opens the same target a second time, for a thread that may have to be left behind.
  [[nodiscard]] BlockTarget duplicate() const;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// A path to the open target, whether it still has a name or not.
  [[nodiscard]] std::string descriptor_path() const;
  [[nodiscard]] bool writable() const { return writable_; }
  [[nodiscard]] bool is_block_device() const { return is_block_device_; }
  /// Whole blocks of the alignment; direct I/O cannot reach a shorter rest at the end.
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] const DirectAlignment& alignment() const { return alignment_; }
  /// How direct I/O was proved: "/proc/thread-self/io" or "mincore".
  [[nodiscard]] const std::string& direct_io_proof() const { return direct_io_proof_; }

  /// Throws UserError unless the command is aligned, lies within the target and is allowed.
  void check(const IoCommand& command) const;

 private:
  BlockTarget(std::string path, int descriptor, bool writable);
  BlockTarget(const BlockTarget& other) = default;
  [[nodiscard]] SourceLocation place() const { return {path_, ""}; }
  void read_size();
  void read_alignment();
  void prove_direct_io();

  std::string path_;
  int descriptor_ = -1;
  bool writable_ = false;
  bool is_block_device_ = false;
  std::uint64_t size_bytes_ = 0;
  DirectAlignment alignment_;
  std::string direct_io_proof_;
};

}  // namespace kvreplay
