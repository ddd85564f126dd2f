#pragma once

#include <string>

#include "devices/logs/io_log.hpp"

namespace kvreplay {

/// Whether `file` is binary output of blktrace, even if it has errors: a file that begins with the
/// magic number, the file of one processor (`sda.blktrace.0`), or the name that these files share
/// (`sda`).
[[nodiscard]] bool is_blktrace(const std::string& file);

/// The requests in blktrace's records (struct blk_io_trace of Linux's blktrace_api.h, version 7, in
/// either byte order): the events Q (queued), ordered by time, then by processor and sequence. The
/// files of all processors are read, whichever one is named; a file with any other name is read
/// alone, and may hold the records of several processors (`blktrace -o -`, `blkparse -d`). Throws
/// UserError with the file and the byte at which the invalid record begins.
[[nodiscard]] IoLog read_blktrace(const std::string& file);

}  // namespace kvreplay
