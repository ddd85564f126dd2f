#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/extent.hpp"
#include "devices/device.hpp"
#include "devices/schedule/schedule.hpp"
#include "devices/schedule/schedule_measurement.hpp"

namespace kvreplay {

/// One request of a recorded workload.
struct LoggedRequest {
  std::int64_t time_ns = 0;  ///< since the first request of the log
  Extent extent;
  bool write = false;
};

/// Recorded reads and writes of a program.
struct IoLog {
  std::string format;                   ///< "fio iolog 3", "fio iolog 2", "blkparse", "blktrace"
  std::vector<LoggedRequest> requests;  ///< at least one; times ascending
  std::size_t left_out = 0;             ///< requests of other kinds: trim, sync, flush, discard
  std::vector<std::string> files;       ///< files that were read; for blktrace, one per processor
};

/// Limits of a log: the greatest offset, and the greatest time since its first request (each second
/// becomes a step).
constexpr std::uint64_t kMaxLogOffset = std::uint64_t{1} << 62;
constexpr std::int64_t kMaxLogSeconds = 1'000'000;

/// Whether a file looks like one of the formats of read_io_log(), even if it has errors.
[[nodiscard]] bool is_io_log(const std::string& file);

/// Reads the log of one file or device, in one of these formats:
/// - fio's iolog, version 3 (times in microseconds, as fio 3.33 writes them) or version 2 (the only
///   times are those of its waits, so all requests between two waits are submitted at once);
/// - the text of blkparse in its default format, whose events Q (queued) are the requests;
/// - the binary output of blktrace: read_blktrace().
/// Throws UserError with the invalid line, or the byte of the invalid record.
[[nodiscard]] IoLog read_io_log(const std::string& file);

/// A workload that follows the log's own times: the pauses between requests are computations, and
/// only the end waits for completions. A step is one second of the log. Requests become commands as
/// to_commands() makes them.
[[nodiscard]] Schedule to_schedule(const IoLog& log, const DeviceLimits& limits,
                                   const std::string& made_from);

/// The commands of a schedule as fio's iolog, version 3, on the file or device `target`, which must
/// be an absolute path without spaces (otherwise throws UserError). fio knows times but no
/// dependencies: each command gets the time at which, according to `times`, it was submitted.
[[nodiscard]] std::string fio_log(const Schedule& schedule, const ScheduleMeasurement& times,
                                  const std::string& target);

}  // namespace kvreplay
