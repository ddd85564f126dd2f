// I/O logs of other programs: fio's, the text of blkparse, the binary records of blktrace.

#include "devices/logs/io_log.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/fuzz_targets.hpp"

int kvreplay::fuzz::io_log_target(const std::uint8_t* data, std::size_t size) {
  return kvreplay::fuzz::expect_user_error([&] {
    const kvreplay::fuzz::InputFile file(data, size);
    const kvreplay::IoLog log = kvreplay::read_io_log(file.path());
    std::uint64_t bytes = 0;
    for (const kvreplay::LoggedRequest& request : log.requests) bytes += request.extent.bytes;
    // Steps of a second each: a log of years is millions of them.
    if (bytes > (1u << 30) || log.requests.back().time_ns > 3'600'000'000'000) return;
    (void)kvreplay::to_schedule(log, {}, log.format).text();
  });
}
