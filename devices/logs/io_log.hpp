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

/// Reads and writes that some program once made.
struct IoLog {
  std::string format;                   ///< "fio iolog 3", "fio iolog 2", "blkparse", "blktrace"
  std::vector<LoggedRequest> requests;  ///< at least one; times ascending
  std::size_t left_out = 0;             ///< requests that are neither: trim, sync, flush, discard
  std::vector<std::string> files;       ///< that were read: of blktrace, one of each processor
};

/// What a log may say: the greatest offset, and the greatest time since its first request, because
/// each second is a step.
constexpr std::uint64_t kGreatestLogOffset = std::uint64_t{1} << 62;
constexpr std::int64_t kGreatestLogSeconds = 1'000'000;

/// Whether a file looks like one of the formats of read_io_log(), whatever errors it may have.
[[nodiscard]] bool is_io_log(const std::string& file);

/// Of one file or device:
/// - fio's iolog, version 3 (times in microseconds, as fio 3.33 writes them) or 2 (no times but
///   those of its waits, so all between two waits are requested at once),
/// - the text of blkparse in its default format; requests are its events Q (queued),
/// - the binary output of blktrace: read_blktrace().
/// UserError with the line, or the byte of the record, that is wrong.
[[nodiscard]] IoLog read_io_log(const std::string& file);

/// A workload of its own times: the pauses between requests are computations, nothing waits for
/// completions but the end. A step is a second of the log. Requests become commands as
/// to_commands() makes them.
[[nodiscard]] Schedule to_schedule(const IoLog& log, const DeviceLimits& limits,
                                   const std::string& made_from);

/// The commands of a schedule as fio's iolog, version 3, on the file or device `target` (an
/// absolute path without spaces: a UserError otherwise). fio knows times, but no dependencies: each
/// command's time is the one at which `times` asked for it.
[[nodiscard]] std::string fio_log(const Schedule& schedule, const ScheduleMeasurement& times,
                                  const std::string& target);

}  // namespace kvreplay
