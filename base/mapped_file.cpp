#include "base/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/files.hpp"
#include "base/interrupt_cleanup.hpp"

namespace kvreplay {

/// What a signal handler must know of a mapping. Never freed, only used again: a handler may be
/// looking at it. It reads the texts of the one entry that holds the address at fault, and whoever
/// accessed that address keeps the entry's mapping alive.
struct MappedFile::Entry {
  struct Part {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::string within;
    const Part* next = nullptr;
  };

  std::atomic<std::uintptr_t> begin{0};  ///< 0 = free
  std::atomic<std::uintptr_t> end{0};
  std::atomic<const Part*> parts{nullptr};
  int descriptor = -1;
  std::string file;
  std::vector<std::unique_ptr<Part>> kept;
  Entry* next = nullptr;
};

namespace {

std::atomic<MappedFile::Entry*> mapped_entries{nullptr};
std::mutex mapped_entries_mutex;
int failure_exit_code = 0;

MappedFile::Entry* free_entry() {
  for (MappedFile::Entry* entry = mapped_entries; entry != nullptr; entry = entry->next) {
    if (entry->begin == 0) return entry;
  }
  auto* const made = new MappedFile::Entry;
  made->next = mapped_entries;
  mapped_entries = made;
  return made;
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const MappedFile::Entry* entry = mapped_entries;
  while (entry != nullptr && !(entry->begin <= address && address < entry->end))
    entry = entry->next;
  if (entry == nullptr) {  // not ours: as it would have been without this handler
    ::signal(signal, SIG_DFL);
    return;
  }
  MessageLine line;
  line << "kvreplay: " << entry->file << ": ";
  for (const MappedFile::Entry::Part* part = entry->parts; part != nullptr; part = part->next) {
    if (part->begin <= address && address < part->end) {
      line << part->within << ": ";
      break;
    }
  }
  char byte = 0;
  const auto offset = static_cast<off_t>(address - entry->begin);
  const bool is_shorter = ::pread(entry->descriptor, &byte, 1, offset) == 0;
  line << (is_shorter ? "cannot be read: the file became shorter while it was in use"
                      : "cannot be read (Input/output error)")
       << "; allowed: a whole file on a sound disk, which stays as it is";
  end_program(line.end(), failure_exit_code);
}

std::pair<std::int64_t, std::int64_t> time_of_change(const struct stat& status) {
  return {status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

}  // namespace

MappedFile::MappedFile(const std::string& file, std::string_view allowed) : file_(file) {
  check_regular_file(file);
  descriptor_ = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) {
    throw UserError({file, ""}, std::string("cannot be opened (") + std::strerror(errno) + ")",
                    allowed);
  }
  void* bytes = MAP_FAILED;
  if (::fstat(descriptor_, &status_) == 0) {
    if (status_.st_size == 0) {
      ::close(descriptor_);
      throw UserError({file, ""}, "is empty", std::string(allowed) + ": a regular, non-empty file");
    }
    bytes = ::mmap(nullptr, static_cast<std::size_t>(status_.st_size), PROT_READ, MAP_PRIVATE,
                   descriptor_, 0);
  }
  if (bytes == MAP_FAILED) {
    const int error = errno;
    ::close(descriptor_);
    throw UserError({file, ""}, std::string("cannot be mapped (") + std::strerror(error) + ")",
                    allowed);
  }
  bytes_ = static_cast<const std::byte*>(bytes);
  const std::lock_guard guard(mapped_entries_mutex);
  entry_ = free_entry();
  entry_->descriptor = descriptor_;
  entry_->file = file;
  entry_->kept.clear();
  entry_->parts = nullptr;
  entry_->end = reinterpret_cast<std::uintptr_t>(bytes) + static_cast<std::size_t>(status_.st_size);
  entry_->begin = reinterpret_cast<std::uintptr_t>(bytes);
}

MappedFile::~MappedFile() {
  ::munmap(const_cast<std::byte*>(bytes_), static_cast<std::size_t>(status_.st_size));
  ::close(descriptor_);
  const std::lock_guard guard(mapped_entries_mutex);
  entry_->begin = 0;
}

void MappedFile::release(std::int64_t offset, std::int64_t bytes) const {
  const auto page = static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
  const std::int64_t begin = (offset + page - 1) / page * page;
  const std::int64_t end = (offset + bytes) / page * page;
  if (begin >= end) return;
  ::madvise(const_cast<std::byte*>(bytes_) + begin, static_cast<std::size_t>(end - begin),
            MADV_DONTNEED);
}

void MappedFile::name_part(std::int64_t offset, std::int64_t bytes, std::string within) {
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes_) + static_cast<std::uintptr_t>(offset);
  const std::lock_guard guard(mapped_entries_mutex);
  entry_->kept.push_back(std::make_unique<Entry::Part>(Entry::Part{
      begin, begin + static_cast<std::uintptr_t>(bytes), std::move(within), entry_->parts}));
  entry_->parts = entry_->kept.back().get();
}

void MappedFile::check_unchanged() const {
  struct stat now {};
  if (::fstat(descriptor_, &now) == 0 && now.st_size == status_.st_size &&
      time_of_change(now) == time_of_change(status_)) {
    return;
  }
  throw UserError({file_, ""}, "was changed while it was in use", "a file that stays as it is");
}

void end_at_failed_mapping(int exit_code) {
  failure_exit_code = exit_code;
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace kvreplay
