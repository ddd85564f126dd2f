#include "devices/real/block_target.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "base/files.hpp"
#include "base/random.hpp"
#include "devices/real/aligned_buffer.hpp"

namespace kvreplay {
namespace {

std::string errno_text(int error) {
  return std::strerror(error);
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return value_; }

 private:
  int value_;
};

/// Opens the same file again, even when its name has been removed.
std::string path_of(int descriptor) {
  return "/proc/self/fd/" + std::to_string(descriptor);
}

int open_direct(const std::string& path, int flags) {
  struct stat status {};
  // Before opening, which would wait for the other end of a pipe.
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode) &&
      !S_ISDIR(status.st_mode)) {
    throw UserError({path, ""}, "is not a regular file", "a file, or a block device");
  }
  const int descriptor = ::open(path.c_str(), flags | O_DIRECT | O_CLOEXEC);
  if (descriptor >= 0) return descriptor;
  const int error = errno;
  const SourceLocation place{path, ""};
  if (error == ENOENT) {
    throw UserError(place, "no such file or device", "a file, or a block device");
  }
  if (error == EINVAL) {
    throw UserError(place, "its file system has no direct I/O (O_DIRECT)",
                    "a file on a disk's file system, or a block device");
  }
  if (error == EISDIR) {
    throw UserError(place, "is a directory", "a file, or a block device");
  }
  if (error == EBUSY) {
    throw UserError(place, "is in use by the system (mounted?)", "a device that nothing uses");
  }
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  throw UserError(place,
                  std::string("cannot be opened for ") + (writes ? "writing" : "reading") + " (" +
                      errno_text(error) + ")",
                  writes ? "a writable target" : "a readable target");
}

/// Bytes that this thread has caused to be fetched from storage; nothing where the kernel does not
/// count them.
std::optional<std::uint64_t> thread_read_bytes() {
  std::ifstream stream("/proc/thread-self/io");
  for (std::string name; stream >> name;) {
    std::uint64_t value = 0;
    stream >> value;
    if (name == "read_bytes:") return value;
  }
  return std::nullopt;
}

/// Whether the block is in the page cache. Without permission to know, the kernel says yes.
bool is_cached(int descriptor, std::uint64_t offset, std::size_t bytes) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = offset / page * page;
  const std::size_t length = static_cast<std::size_t>(offset - begin) + bytes;
  void* map = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, descriptor, static_cast<off_t>(begin));
  if (map == MAP_FAILED) return true;
  std::vector<unsigned char> pages((length + page - 1) / page);
  const bool known = ::mincore(map, length, pages.data()) == 0;
  ::munmap(map, length);
  return !known || std::any_of(pages.begin(), pages.end(), [](auto p) { return (p & 1) != 0; });
}

}  // namespace

BlockTarget BlockTarget::open(const std::string& path) {
  return {path, open_direct(path, O_RDONLY), false};
}

BlockTarget BlockTarget::open_destructive(const std::string& path) {
  // O_EXCL without O_CREAT: refuses a block device that is mounted or otherwise in use.
  return {path, open_direct(path, O_RDWR | O_EXCL), true};
}

BlockTarget BlockTarget::create(const std::string& path, std::uint64_t bytes,
                                const std::function<void(std::uint64_t)>& on_progress) {
  const SourceLocation place{path, ""};
  if (bytes == 0) throw UserError(place, "cannot be created with 0 bytes", "at least one block");
  check_free_space(path, bytes);
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0 && errno == EEXIST) {
    throw UserError(place, "exists already", "the name of a new file");
  }
  if (file.get() < 0) {
    throw UserError(place, "cannot be created (" + errno_text(errno) + ")", "a writable folder");
  }
  ::unlink(path.c_str());
  // Written, not only allocated, because a file system answers reads of unwritten blocks by itself.
  // Random, because some devices compress.
  Random random(1);
  std::vector<std::uint64_t> piece(1 << 17);
  for (std::uint64_t done = 0; done < bytes;) {
    if (on_progress) on_progress(done);
    for (std::uint64_t& word : piece) word = random.next();
    const auto wanted = std::min<std::uint64_t>(bytes - done, piece.size() * sizeof(piece[0]));
    const ssize_t written = ::write(file.get(), piece.data(), wanted);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const std::string why = errno_text(errno);
      throw UserError(place,
                      "cannot be filled: " + std::to_string(done) + " of " + std::to_string(bytes) +
                          " bytes written (" + why + ")",
                      "a folder with enough free space");
    }
    done += static_cast<std::uint64_t>(written);
  }
  if (::fsync(file.get()) != 0) {
    throw UserError(place, "cannot be synced (" + errno_text(errno) + ")", "a sound disk");
  }
  // A direct write first takes the pages of its range from the system's cache, which would count as
  // time of the device.
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  const int direct = ::open(path_of(file.get()).c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  if (direct < 0) {
    throw UserError(place,
                    "its file system has no direct I/O (O_DIRECT: " + errno_text(errno) + ")",
                    "a folder on a disk's file system");
  }
  return {path, direct, true};
}

BlockTarget::BlockTarget(std::string path, int descriptor, bool writable)
    : path_(std::move(path)), descriptor_(descriptor), writable_(writable) {
  try {
    read_size();
    read_alignment();
    prove_direct_io();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

BlockTarget::BlockTarget(BlockTarget&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      writable_(other.writable_),
      is_block_device_(other.is_block_device_),
      size_bytes_(other.size_bytes_),
      alignment_(std::move(other.alignment_)),
      direct_io_proof_(std::move(other.direct_io_proof_)) {}

BlockTarget BlockTarget::duplicate() const {
  BlockTarget copy(*this);
  copy.descriptor_ = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  if (copy.descriptor_ < 0) {
    throw UserError(place(), "cannot be opened again (" + errno_text(errno) + ")", "");
  }
  return copy;
}

BlockTarget::~BlockTarget() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string BlockTarget::descriptor_path() const {
  return path_of(descriptor_);
}

void BlockTarget::read_size() {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) {
    throw UserError(place(), "its size cannot be read (" + errno_text(errno) + ")", "");
  }
  is_block_device_ = S_ISBLK(status.st_mode);
  if (!is_block_device_ && !S_ISREG(status.st_mode)) {
    throw UserError(place(), "is neither a file nor a block device", "one of these");
  }
  if (!is_block_device_) {
    size_bytes_ = static_cast<std::uint64_t>(status.st_size);
  } else if (::ioctl(descriptor_, BLKGETSIZE64, &size_bytes_) != 0) {
    throw UserError(place(), "its size cannot be read (" + errno_text(errno) + ")", "");
  }
}

void BlockTarget::read_alignment() {
#ifdef STATX_DIOALIGN
  struct statx extended {};
  // An alignment of 0 says that direct I/O is not possible, but an emulator that does not know the
  // field also leaves it 0: the proof decides.
  if (::statx(descriptor_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &extended) == 0 &&
      (extended.stx_mask & STATX_DIOALIGN) != 0 && extended.stx_dio_offset_align > 0) {
    alignment_ = {extended.stx_dio_offset_align, extended.stx_dio_mem_align, "statx"};
  }
#endif
  int sector = 0;
  if (alignment_.source.empty() && is_block_device_ &&
      ::ioctl(descriptor_, BLKSSZGET, &sector) == 0 && sector > 0) {
    const auto bytes = static_cast<std::uint32_t>(sector);
    alignment_ = {bytes, bytes, "BLKSSZGET"};
  }
  if (alignment_.source.empty()) {
    struct stat status {};
    ::fstat(descriptor_, &status);
    const auto bytes = static_cast<std::uint32_t>(std::max<blksize_t>(status.st_blksize, 512));
    alignment_ = {bytes, bytes, "file-system block"};
  }
  size_bytes_ -= size_bytes_ % alignment_.offset_bytes;
  if (size_bytes_ == 0) {
    throw UserError(place(), "is smaller than one block",
                    "at least " + std::to_string(alignment_.offset_bytes) + " bytes");
  }
}

void BlockTarget::prove_direct_io() {
  const std::size_t block = alignment_.offset_bytes;
  const std::uint64_t offset = size_bytes_ / 2 / block * block;
  const auto at = static_cast<off_t>(offset);
  const AlignedBuffer cached(block, alignment_.memory_bytes);
  const AlignedBuffer direct(block, alignment_.memory_bytes);
  const auto read_failed = [&](const char* how, ssize_t got) {
    return UserError(place(),
                     std::string(how) + " read of " + std::to_string(block) + " bytes at offset " +
                         std::to_string(offset) + " failed (" +
                         (got < 0 ? errno_text(errno) : std::to_string(got) + " bytes came") + ")",
                     "a target that can be read");
  };
  const auto read_direct = [&] {
    const ssize_t got = ::pread(descriptor_, direct.bytes().data(), block, at);
    if (got != static_cast<ssize_t>(block)) throw read_failed("a direct", got);
  };

  const Descriptor buffered(::open(descriptor_path().c_str(), O_RDONLY | O_CLOEXEC));
  if (buffered.get() < 0) throw read_failed("a buffered", -1);
  const ssize_t got = ::pread(buffered.get(), cached.bytes().data(), block, at);
  if (got != static_cast<ssize_t>(block)) throw read_failed("a buffered", got);

  // The block is now in the page cache, so only a read that bypasses the cache fetches anything.
  const std::optional<std::uint64_t> before = thread_read_bytes();
  read_direct();
  const std::optional<std::uint64_t> after = thread_read_bytes();
  if (!std::equal(direct.bytes().begin(), direct.bytes().end(), cached.bytes().begin())) {
    throw UserError(place(),
                    "a direct read (O_DIRECT) returns other bytes than a buffered one at offset " +
                        std::to_string(offset),
                    "a file system whose direct I/O works, not FUSE or emulated storage");
  }
  if (before && after && *after >= *before + block) {
    direct_io_proof_ = "/proc/thread-self/io";
    return;
  }

  // Alternatively: a read that bypasses the page cache leaves nothing in it.
  ::fdatasync(buffered.get());
  ::posix_fadvise(buffered.get(), at, static_cast<off_t>(block), POSIX_FADV_DONTNEED);
  read_direct();
  if (is_cached(buffered.get(), offset, block)) {
    const off_t data = ::lseek(buffered.get(), at, SEEK_DATA);
    if (!is_block_device_ && data != at) {
      throw UserError(place(),
                      "is sparse: nothing was ever written at offset " + std::to_string(offset) +
                          ", and the file system answers there without the device",
                      "a file that is written through, as --create SIZE makes it");
    }
    throw UserError(place(), "takes O_DIRECT but reads through the page cache",
                    "a file system whose direct I/O is in effect");
  }
  direct_io_proof_ = "mincore";
}

void BlockTarget::check(const IoCommand& command) const {
  const std::uint64_t block = alignment_.offset_bytes;
  const std::string what = (command.write ? "a write of " : "a read of ") +
                           std::to_string(command.bytes) + " bytes at offset " +
                           std::to_string(command.offset);
  if (command.bytes == 0 || command.bytes % block != 0 || command.offset % block != 0) {
    throw UserError(place(), what + " is not aligned",
                    "multiples of " + std::to_string(block) + " bytes (" + alignment_.source + ")");
  }
  if (command.offset > size_bytes_ || command.bytes > size_bytes_ - command.offset) {
    throw UserError(place(), what + " passes its end", "up to " + std::to_string(size_bytes_));
  }
  if (command.write && !writable_) {
    throw UserError(place(), what + ", but it is open for reading only",
                    "--allow-destructive, or a file that kvreplay creates (--create)");
  }
}

}  // namespace kvreplay
