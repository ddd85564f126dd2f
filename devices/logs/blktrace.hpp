#pragma once

#include <string>

#include "devices/logs/io_log.hpp"

namespace kvreplay {

/// Whether `file` is binary output of blktrace, whatever errors it may have: a file that begins
/// with its magic number, one of a processor's own (`sda.blktrace.0`), or the name that those have
/// in common (`sda`).
[[nodiscard]] bool is_blktrace(const std::string& file);

/// The requests of blktrace's records (struct blk_io_trace of Linux's blktrace_api.h, version 7, of
/// either byte order): its events Q (queued), by time, then by processor and sequence. The files of
/// all processors are read, whichever is named; a file of any other name is read alone, and may
/// hold the records of several (`blktrace -o -`, `blkparse -d`). UserError with the file and the
/// byte at which the record begins that is wrong.
[[nodiscard]] IoLog read_blktrace(const std::string& file);

}  // namespace kvreplay
