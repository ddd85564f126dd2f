#include "devices/logs/blktrace.hpp"

#include <linux/blktrace_api.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.hpp"

namespace kvreplay {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSector = 512;
constexpr std::string_view kWholeRecords = "whole records of blktrace";

/// The file of one processor: `sda.blktrace.3`.
struct ProcessorFile {
  std::string base;  ///< "sda"
  std::uint32_t processor = 0;
};

std::optional<ProcessorFile> processor_file(const std::string& file) {
  constexpr std::string_view kInfix = ".blktrace.";
  const std::size_t at = file.rfind(kInfix);
  if (at == std::string::npos) return std::nullopt;
  ProcessorFile found{file.substr(0, at), 0};
  const char* const end = file.data() + file.size();
  const auto [stop, error] =
      std::from_chars(file.data() + at + kInfix.size(), end, found.processor);
  if (error != std::errc() || stop != end) return std::nullopt;
  return found;
}

/// All per-processor files that share this name, sorted by processor number.
std::vector<std::string> files_of_processors(const std::string& base) {
  const fs::path path(base);
  const fs::path folder = path.parent_path();
  std::map<std::uint32_t, std::string> found;
  std::error_code ignored;
  for (const auto& entry :
       fs::directory_iterator(folder.empty() ? fs::path(".") : folder, ignored)) {
    const fs::path name = entry.path().filename();
    const auto file = processor_file(name.string());
    if (file && file->base == path.filename()) found[file->processor] = (folder / name).string();
  }
  std::vector<std::string> files;
  for (auto& [processor, file] : found) files.push_back(std::move(file));
  return files;
}

/// All files to read when `file` is named; none when nothing exists there.
std::vector<std::string> files_of(const std::string& file) {
  const auto one = processor_file(file);
  if (one) return files_of_processors(one->base);
  std::error_code ignored;
  if (fs::exists(file, ignored)) return {file};
  return files_of_processors(file);
}

constexpr bool is_magic(std::uint32_t word) {
  constexpr std::uint32_t kVersion = 0xff;
  return (word & ~kVersion) == BLK_IO_TRACE_MAGIC;
}

/// Converts from the other byte order.
void swap(blk_io_trace& record) {
  record.magic = __builtin_bswap32(record.magic);
  record.sequence = __builtin_bswap32(record.sequence);
  record.time = __builtin_bswap64(record.time);
  record.sector = __builtin_bswap64(record.sector);
  record.bytes = __builtin_bswap32(record.bytes);
  record.action = __builtin_bswap32(record.action);
  record.pid = __builtin_bswap32(record.pid);
  record.device = __builtin_bswap32(record.device);
  record.cpu = __builtin_bswap32(record.cpu);
  record.error = __builtin_bswap16(record.error);
  record.pdu_len = __builtin_bswap16(record.pdu_len);
}

/// The records of one file, one after another, in the host's byte order.
class RecordReader {
 public:
  explicit RecordReader(const std::string& file) : file_(file), stream_(file, std::ios::binary) {
    if (!stream_) throw UserError({file_, ""}, "cannot be read", kWholeRecords);
  }

  /// Advances to the next record; false at the end.
  bool next() {
    const std::uint64_t payload = record_.pdu_len;
    const std::uint64_t before = begin_;
    begin_ = end_;
    const std::uint64_t got = take(reinterpret_cast<char*>(&record_), sizeof record_);
    if (got == 0) return false;
    if (got < sizeof record_) {
      throw UserError(place(),
                      "the file ends after " + std::to_string(got) + " of the " +
                          std::to_string(sizeof record_) + " bytes of a record",
                      kWholeRecords);
    }
    if (begin_ == 0) swapped_ = is_magic(__builtin_bswap32(record_.magic));
    if (swapped_) swap(record_);
    if (!is_magic(record_.magic)) {
      std::array<char, 16> word{};
      std::snprintf(word.data(), word.size(), "%08x", record_.magic);
      std::string found = std::string("no record begins here (0x") + word.data() + ")";
      if (payload > 0) {
        found += ", where that of byte " + std::to_string(before) + " ends, with " +
                 std::to_string(payload) + " bytes of payload";
      }
      throw UserError(place(), found, "0x65617407, in either byte order");
    }
    const std::uint32_t version = record_.magic - BLK_IO_TRACE_MAGIC;
    if (version != BLK_IO_TRACE_VERSION) {
      throw UserError(place(), "a record of version " + std::to_string(version), "version 7");
    }
    stream_.ignore(record_.pdu_len);
    const auto skipped = static_cast<std::uint64_t>(stream_.gcount());
    end_ += skipped;
    if (skipped < record_.pdu_len) {
      throw UserError(place(),
                      "the file ends after " + std::to_string(skipped) + " of the " +
                          std::to_string(record_.pdu_len) + " bytes of a record's payload",
                      kWholeRecords);
    }
    return true;
  }

  [[nodiscard]] const blk_io_trace& record() const { return record_; }
  /// Where the record stands in the file.
  [[nodiscard]] std::uint64_t byte() const { return begin_; }
  [[nodiscard]] SourceLocation place() const { return {file_, "byte " + std::to_string(begin_)}; }

 private:
  std::uint64_t take(char* to, std::size_t bytes) {
    stream_.read(to, static_cast<std::streamsize>(bytes));
    const auto got = static_cast<std::uint64_t>(stream_.gcount());
    end_ += got;
    return got;
  }

  std::string file_;
  std::ifstream stream_;
  blk_io_trace record_{};
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
  bool swapped_ = false;
};

/// The requests of all files.
class BlktraceReader {
 public:
  void add(const std::string& file) {
    RecordReader reader(file);
    last_ns_.clear();
    while (reader.next()) take(reader);
    end_ = reader.place();
  }

  IoLog finish() && {
    if (requests_.empty()) throw UserError(end_, "no read or write until here", "events Q");
    std::stable_sort(requests_.begin(), requests_.end(), [](const Request& a, const Request& b) {
      return std::tie(a.time_ns, a.cpu, a.sequence) < std::tie(b.time_ns, b.cpu, b.sequence);
    });
    const std::uint64_t first = requests_.front().time_ns;
    const std::uint64_t span = requests_.back().time_ns - first;
    if (span > std::uint64_t{1'000'000'000} * kMaxLogSeconds) {
      throw UserError(end_, "its requests span " + std::to_string(span / 1'000'000'000) + " s",
                      "up to " + std::to_string(kMaxLogSeconds) + " s");
    }
    for (const Request& request : requests_) {
      log_.requests.push_back(
          {static_cast<std::int64_t>(request.time_ns - first), request.extent, request.write});
    }
    return std::move(log_);
  }

 private:
  struct Request {
    std::uint64_t time_ns = 0;
    std::uint32_t cpu = 0;
    std::uint32_t sequence = 0;
    Extent extent;
    bool write = false;
  };

  void take(const RecordReader& reader) {
    const blk_io_trace& record = reader.record();
    const auto is = [&record](std::uint32_t category) {
      return (record.action & BLK_TC_ACT(category)) != 0;
    };
    if (is(BLK_TC_NOTIFY)) return;  // names, clocks and messages; these are not in time order
    std::uint64_t& last = last_ns_[{record.device, record.cpu}];
    if (record.time < last) {
      throw UserError(reader.place(),
                      "its time is before that of processor " + std::to_string(record.cpu) +
                          "'s record above it",
                      "times that ascend");
    }
    last = record.time;

    constexpr std::uint32_t kEvent = (1U << BLK_TC_SHIFT) - 1;
    if ((record.action & kEvent & ~std::uint32_t{__BLK_TA_CGROUP}) != __BLK_TA_QUEUE) return;
    const std::uint64_t sectors = record.bytes / kSector;
    // BLK_TC_PC: a command set of its own, such as SCSI commands.
    if (is(BLK_TC_DISCARD) || is(BLK_TC_PC) || sectors == 0) {
      ++log_.left_out;
      return;
    }
    if (record.sector > kMaxLogOffset / kSector) {
      throw UserError(reader.place(), "sector " + std::to_string(record.sector),
                      "up to " + std::to_string(kMaxLogOffset / kSector));
    }
    if (!device_) device_ = record.device;
    if (*device_ != record.device) {
      throw UserError(reader.place(),
                      "a second target, " + name(record.device) + ", after " + name(*device_),
                      "the log of one file or device");
    }
    requests_.push_back({record.time,
                         record.cpu,
                         record.sequence,
                         {record.sector * kSector, sectors * kSector},
                         is(BLK_TC_WRITE)});
  }

  /// "8,16", from the kernel's device number.
  static std::string name(std::uint32_t device) {
    constexpr int kMinorBits = 20;
    return std::to_string(device >> kMinorBits) + "," +
           std::to_string(device & ((1U << kMinorBits) - 1));
  }

  IoLog log_{.format = "blktrace", .requests = {}, .left_out = 0, .files = {}};
  std::vector<Request> requests_;
  std::optional<std::uint32_t> device_;
  /// Records of the file by device and processor: each has its own buffer in the kernel.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> last_ns_;
  SourceLocation end_;
};

}  // namespace

bool is_blktrace(const std::string& file) {
  std::error_code ignored;
  if (processor_file(file) || !fs::exists(file, ignored)) return !files_of(file).empty();
  std::uint32_t word = 0;
  std::ifstream stream(file, std::ios::binary);
  stream.read(reinterpret_cast<char*>(&word), sizeof word);
  return stream && (is_magic(word) || is_magic(__builtin_bswap32(word)));
}

IoLog read_blktrace(const std::string& file) {
  std::vector<std::string> files = files_of(file);
  if (files.empty()) throw UserError({file, ""}, "cannot be read", kWholeRecords);
  BlktraceReader reader;
  for (const std::string& one : files) reader.add(one);
  IoLog log = std::move(reader).finish();
  log.files = std::move(files);
  return log;
}

}  // namespace kvreplay
