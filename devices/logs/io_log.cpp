#include "devices/logs/io_log.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <limits>
#include <string_view>

#include "base/files.hpp"
#include "base/line_reader.hpp"
#include "devices/commands.hpp"
#include "devices/logs/blktrace.hpp"

namespace kvreplay {
namespace {

constexpr std::string_view kFio = "fio version ";
constexpr std::string_view kFio2 = "fio version 2 iolog";
constexpr std::string_view kFio3 = "fio version 3 iolog";
/// Of one request: above what any kernel merges. A terabyte would be millions of commands.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;
constexpr std::int64_t kStepNs = 1'000'000'000;

/// Parses a whole word as a number; false if it is not one.
template <typename Number>
bool read_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// "8,16", as blkparse prints it.
bool is_device_number(std::string_view word) {
  const std::size_t comma = word.find(',');
  unsigned number = 0;
  return comma != std::string_view::npos && read_number(word.substr(0, comma), number) &&
         read_number(word.substr(comma + 1), number);
}

class LogReader {
 public:
  LogReader(std::istream& stream, const std::string& file) : lines_(stream, file) {}

  IoLog read() && {
    constexpr std::string_view kAllowed =
        "`fio version 2 iolog`, `fio version 3 iolog`, or the text of blkparse";
    if (!lines_.next()) throw lines_.wrong(kAllowed);
    if (lines_.line() == kFio3) {
      log_.format = "fio iolog 3";
      while (lines_.next()) take_fio(true);
    } else if (lines_.line() == kFio2) {
      log_.format = "fio iolog 2";
      while (lines_.next()) take_fio(false);
    } else if (std::string_view(lines_.line()).starts_with(kFio)) {
      throw lines_.wrong(kAllowed);
    } else {
      log_.format = "blkparse";
      while (take_blkparse() && lines_.next()) {
      }
    }
    if (log_.requests.empty()) {
      throw UserError(lines_.place(), "no read or write until here",
                      log_.format == "blkparse" ? "events Q of blkparse"
                      : log_.format == "fio iolog 3"
                          ? "lines `MICROSECONDS FILE read OFFSET LENGTH`"
                          : "lines `FILE read OFFSET LENGTH`");
    }
    const std::int64_t first = log_.requests.front().time_ns;
    for (LoggedRequest& request : log_.requests) request.time_ns -= first;
    return std::move(log_);
  }

 private:
  /// [MICROSECONDS] FILE ACTION [OFFSET LENGTH]
  void take_fio(bool timed) {
    const std::string allowed =
        std::string(timed ? "`MICROSECONDS FILE" : "`FILE") +
        " ACTION [OFFSET LENGTH]`, actions add, open, close, read, write, sync, datasync, trim" +
        (timed ? "" : ", wait") + "; LENGTH up to 1 GiB";
    if (timed)
      time_ns_ = 1000 * lines_.number<std::int64_t>(0, 1'000'000 * kMaxLogSeconds, allowed);
    const std::string_view file = lines_.word();
    const std::string_view action = lines_.word();
    if (action == "add" || action == "open" || action == "close") {
      lines_.end_of_line(allowed);
    } else if (action == "wait" && !timed) {
      time_ns_ += 1000 * lines_.number<std::int64_t>(0, 1'000'000 * kMaxLogSeconds, allowed);
    } else if (action == "read" || action == "write") {
      one_target(file);
      const auto offset = lines_.number<std::uint64_t>(0, kMaxLogOffset, allowed);
      const auto bytes = lines_.number<std::uint64_t>(1, kMaxBytes, allowed);
      lines_.end_of_line(allowed);
      add({offset, bytes}, action == "write");
    } else if (action == "sync" || action == "datasync" || action == "trim") {
      ++log_.left_out;
    } else {
      throw lines_.wrong(allowed);
    }
  }

  /// MAJOR,MINOR CPU SEQUENCE SECONDS PROCESS ACTION RWBS SECTOR + SECTORS [NAME] (blkparse(1),
  /// default output). Returns false at the summary that ends the log.
  bool take_blkparse() {
    constexpr std::string_view kAllowed =
        "`MAJOR,MINOR CPU SEQUENCE SECONDS.NANOSECONDS PROCESS ACTION RWBS SECTOR + SECTORS ...`, "
        "as blkparse prints by default";
    const std::string_view device = lines_.word();
    if (device.empty()) return true;
    if (device.starts_with("CPU") || device == "Total") return false;
    if (!is_device_number(device)) throw lines_.wrong(kAllowed);
    (void)lines_.number<std::uint64_t>(0, 1 << 20, kAllowed);
    (void)lines_.number<std::uint64_t>(0, ~std::uint64_t{0}, kAllowed);
    const std::string_view time = lines_.word();
    (void)lines_.number<std::uint64_t>(0, ~std::uint64_t{0}, kAllowed);
    if (lines_.word() != "Q") return true;
    const std::string_view what = lines_.word();
    const bool read = what.find('R') != std::string_view::npos;
    const bool write = what.find('W') != std::string_view::npos;
    if (what.find('D') != std::string_view::npos || read == write) {
      ++log_.left_out;
      return true;
    }
    if (lines_.rest_begins_with('[')) {  // a flush without data
      ++log_.left_out;
      return true;
    }
    constexpr std::uint64_t kSectorBytes = 512;
    const auto sector = lines_.number<std::uint64_t>(0, kMaxLogOffset / kSectorBytes, kAllowed);
    if (lines_.word() != "+") throw lines_.wrong(kAllowed);
    const auto sectors = lines_.number<std::uint64_t>(1, kMaxBytes / kSectorBytes, kAllowed);
    one_target(device);
    time_ns_ = nanoseconds(time, kAllowed);
    add({sector * kSectorBytes, sectors * kSectorBytes}, write);
    return true;
  }

  /// Parses "12.345678901".
  [[nodiscard]] std::int64_t nanoseconds(std::string_view text, std::string_view allowed) const {
    const std::size_t point = text.find('.');
    std::int64_t whole = 0;
    std::int64_t fraction = 0;
    if (point == std::string_view::npos || text.size() - point != 10 ||
        !read_number(text.substr(0, point), whole) || whole < 0 || whole > kMaxLogSeconds ||
        !read_number(text.substr(point + 1), fraction) || fraction < 0) {
      throw lines_.wrong(allowed);
    }
    return whole * 1'000'000'000 + fraction;
  }

  void one_target(std::string_view name) {
    if (target_.empty()) target_ = name;
    if (target_ != name) {
      throw UserError(lines_.place(),
                      "a second target, " + std::string(name) + ", after " + target_,
                      "the log of one file or device");
    }
  }

  void add(const Extent& extent, bool write) {
    if (!log_.requests.empty() && time_ns_ < log_.requests.back().time_ns) {
      throw UserError(lines_.place(), "its time is before that of the request above it",
                      "times that ascend");
    }
    log_.requests.push_back({time_ns_, extent, write});
  }

  LineReader lines_;
  IoLog log_;
  std::string target_;
  std::int64_t time_ns_ = 0;
};

}  // namespace

bool is_io_log(const std::string& file) {
  check_regular_file(file);
  if (is_blktrace(file)) return true;
  std::ifstream stream(file);
  std::string line;
  if (!stream || !std::getline(stream, line)) return false;
  if (line.starts_with(kFio)) return true;
  line = line.substr(std::min(line.find_first_not_of(' '), line.size()));
  return is_device_number(std::string_view(line).substr(0, line.find(' ')));
}

IoLog read_io_log(const std::string& file) {
  check_regular_file(file);
  if (is_blktrace(file)) return read_blktrace(file);
  std::ifstream stream(file);
  if (!stream) throw UserError({file, ""}, "cannot be read", "an I/O log");
  IoLog log = LogReader(stream, file).read();
  log.files = {file};
  return log;
}

Schedule to_schedule(const IoLog& log, const DeviceLimits& limits, const std::string& made_from) {
  Schedule schedule(limits, made_from);
  std::vector<IoCommand> commands;
  std::vector<std::int64_t> batches;
  std::int64_t now = 0;
  std::int64_t step_end = 0;
  for (auto request = log.requests.begin(); request != log.requests.end();) {
    const std::int64_t time = request->time_ns;
    while (time >= step_end) {
      if (step_end > now) schedule.compute(step_end - now);
      now = step_end;
      schedule.begin_step();
      step_end += kStepNs;
    }
    if (time > now) schedule.compute(time - now);
    now = time;
    commands.clear();
    for (; request != log.requests.end() && request->time_ns == time; ++request) {
      to_commands({&request->extent, 1}, request->write, limits, commands);
    }
    batches.push_back(schedule.submit(commands));
  }
  for (const std::int64_t batch : batches) schedule.wait(batch);
  return schedule;
}

std::string fio_log(const Schedule& schedule, const ScheduleMeasurement& times,
                    const std::string& target) {
  if (!target.starts_with('/') || target.find_first_of(" \t\n") != std::string::npos) {
    throw UserError({target, ""}, "fio's log cannot name it", "an absolute path without spaces");
  }
  const auto start = [&target](std::int64_t time_ns) {
    return std::to_string(time_ns / 1000) + " " + target + " ";
  };
  std::string text = std::string(kFio3) + "\n" + start(0) + "add\n" + start(0) + "open\n";
  for (std::size_t i = 0; i < schedule.commands().size(); ++i) {
    const auto& [offset, bytes, write] = schedule.commands()[i];
    text += start(times.requests[i].requested_ns) + (write ? "write " : "read ") +
            std::to_string(offset) + " " + std::to_string(bytes) + "\n";
  }
  const std::int64_t end = times.requests.empty() ? 0 : times.requests.back().requested_ns;
  return text + start(end) + "close\n";
}

}  // namespace kvreplay
