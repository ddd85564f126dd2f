#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "devices/device.hpp"

namespace kvreplay {

/// What direct I/O on a target demands, and who said so.
struct DirectAlignment {
  std::uint32_t offset_bytes = 4096;  ///< offsets and sizes of requests are multiples of it
  std::uint32_t memory_bytes = 4096;  ///< addresses of buffers
  std::string source;                 ///< "statx", "BLKSSZGET" or "file-system block"
};

/// A file or block device that is open for direct I/O (O_DIRECT). Opening proves that requests
/// reach the device: a file system may take O_DIRECT and read through the page cache all the same
/// (f2fs with encrypted files), or return wrong bytes (FUSE storage of phones). Every refusal is a
/// UserError that names the path.
class BlockTarget {
 public:
  /// An existing file or block device, for reading.
  [[nodiscard]] static BlockTarget open(const std::string& path);
  /// For reading and writing: what it holds may be lost. The caller has the user's word for that.
  [[nodiscard]] static BlockTarget open_destructive(const std::string& path);
  /// A new file of random bytes, for reading and writing. Its name is gone as soon as it is open,
  /// so that nothing is left behind however the program ends. `on_progress` is told the bytes
  /// written so far; what it throws ends the matter.
  [[nodiscard]] static BlockTarget create(
      const std::string& path, std::uint64_t bytes,
      const std::function<void(std::uint64_t done_bytes)>& on_progress = {});

  ~BlockTarget();
  BlockTarget(BlockTarget&& other) noexcept;
  BlockTarget& operator=(BlockTarget&&) = delete;
  /// The same target, open for itself: for a thread that may have to be left behind.
  [[nodiscard]] BlockTarget duplicate() const;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  /// Leads to the open target, whether it still has a name or not.
  [[nodiscard]] std::string descriptor_path() const;
  [[nodiscard]] bool writable() const { return writable_; }
  [[nodiscard]] bool is_block_device() const { return is_block_device_; }
  /// Whole blocks of the alignment; a shorter rest at the end is out of reach of direct I/O.
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] const DirectAlignment& alignment() const { return alignment_; }
  /// How direct I/O was proved: "/proc/thread-self/io" or "mincore".
  [[nodiscard]] const std::string& direct_io_proof() const { return direct_io_proof_; }

  /// UserError unless the command is aligned, lies within the target and is allowed.
  void check(const IoCommand& command) const;

 private:
  BlockTarget(std::string path, int descriptor, bool writable);
  BlockTarget(const BlockTarget& other) = default;
  [[nodiscard]] Place place() const { return {path_, ""}; }
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
