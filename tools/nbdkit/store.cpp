#include "tools/nbdkit/store.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "base/error.hpp"

namespace kvreplay {
namespace {

std::string system_message() {
  return std::generic_category().message(errno);
}

class MemoryStore final : public Store {
 public:
  explicit MemoryStore(std::uint64_t bytes) : bytes_(bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      throw UserError({"", "size"},
                      "found " + std::to_string(bytes) + " (" + system_message() + ")",
                      "what fits into this process");
    }
    memory_ = static_cast<char*>(memory);
  }
  ~MemoryStore() override { munmap(memory_, bytes_); }
  MemoryStore(const MemoryStore&) = delete;
  MemoryStore& operator=(const MemoryStore&) = delete;

  [[nodiscard]] std::uint64_t bytes() const override { return bytes_; }
  [[nodiscard]] bool writable() const override { return true; }
  [[nodiscard]] int read(void* to, std::uint32_t count, std::uint64_t offset) override {
    std::memcpy(to, memory_ + offset, count);
    return 0;
  }
  [[nodiscard]] int write(const void* from, std::uint32_t count, std::uint64_t offset) override {
    std::memcpy(memory_ + offset, from, count);
    return 0;
  }
  void trim(std::uint32_t count, std::uint64_t offset) override {
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::uint64_t begin = (offset + page - 1) / page * page;
    const std::uint64_t end = (offset + count) / page * page;
    if (begin < end) madvise(memory_ + begin, end - begin, MADV_DONTNEED);
  }

 private:
  const std::uint64_t bytes_;
  char* memory_ = nullptr;
};

class FileStore final : public Store {
 public:
  FileStore(const std::string& path, std::uint64_t bytes, std::uint64_t block_bytes)
      : file_(open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    if (file_ < 0 && (errno == EACCES || errno == EROFS || errno == EPERM)) {
      writable_ = false;
      file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    }
    const off_t end = file_ < 0 ? -1 : lseek(file_, 0, SEEK_END);
    if (end < 0) {
      const std::string why = system_message();
      if (file_ >= 0) close(file_);
      throw UserError({path, ""}, "cannot be opened (" + why + ")", "a file or a block device");
    }
    const auto size = static_cast<std::uint64_t>(end);
    bytes_ = bytes > 0 ? bytes : size / block_bytes * block_bytes;
    if (bytes_ == 0 || bytes_ > size) {
      close(file_);
      throw UserError({path, ""}, "found " + std::to_string(size) + " bytes",
                      "at least " + std::to_string(bytes > 0 ? bytes : block_bytes));
    }
  }
  ~FileStore() override { close(file_); }
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  [[nodiscard]] std::uint64_t bytes() const override { return bytes_; }
  [[nodiscard]] bool writable() const override { return writable_; }
  [[nodiscard]] int read(void* to, std::uint32_t count, std::uint64_t offset) override {
    return transfer(static_cast<char*>(to), count, offset, pread);
  }
  [[nodiscard]] int write(const void* from, std::uint32_t count, std::uint64_t offset) override {
    return transfer(static_cast<const char*>(from), count, offset, pwrite);
  }
  void trim(std::uint32_t count, std::uint64_t offset) override {
    // Where the file system makes no holes, the bytes stay.
    (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                    static_cast<off_t>(count));
  }

 private:
  template <typename Pointer, typename Call>
  [[nodiscard]] int transfer(Pointer data, std::size_t count, std::uint64_t offset, Call call) {
    while (count > 0) {
      const ssize_t done = call(file_, data, count, static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return errno;
      if (done == 0) return EIO;  // the file was cut short while it was served
      data += done;
      offset += static_cast<std::uint64_t>(done);
      count -= static_cast<std::size_t>(done);
    }
    return 0;
  }

  int file_;
  bool writable_ = true;
  std::uint64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<Store> memory_store(std::uint64_t bytes) {
  return std::make_unique<MemoryStore>(bytes);
}

std::unique_ptr<Store> file_store(const std::string& path, std::uint64_t bytes,
                                  std::uint64_t block_bytes) {
  return std::make_unique<FileStore>(path, bytes, block_bytes);
}

}  // namespace kvreplay
