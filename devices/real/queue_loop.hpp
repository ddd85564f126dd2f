#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "devices/real/io_engine.hpp"

namespace kvreplay {

/// Adds a request's end to the report; `result` is bytes transferred, or a negative errno.
inline void record(IoReport& report, const IoCommand& command, IoCompletion completion,
                   std::int64_t result) {
  if (result == std::int64_t{command.bytes}) {
    completion.write = command.write;
    report.completions.push_back(completion);
  } else if (!report.failure) {
    report.failure = IoFailure{command, result < 0 ? static_cast<int>(-result) : 0,
                               result < 0 ? 0 : static_cast<std::uint32_t>(result)};
  }
}

/// The loop of an engine with a queue in the kernel: fills the queue, waits, refills.
///   start(slot, request)   submits a request under the number `slot` < depth, if the kernel takes
///   it; wait(reap)             submits what is left, waits for at least one completion, and calls
///                          reap(slot, result) for each.
template <typename Start, typename Wait>
[[nodiscard]] IoReport run_queue(const IoSource& source, std::uint32_t depth, Start start,
                                 Wait wait) {
  struct Flight {
    IoCommand command;
    IoCompletion completion;
  };
  IoReport report;
  std::vector<Flight> flights(depth);
  std::vector<std::uint32_t> idle;
  for (std::uint32_t slot = depth; slot > 0; --slot) idle.push_back(slot - 1);

  std::uint64_t next = 0;
  bool more = true;
  const auto reap = [&](std::uint32_t slot, std::int64_t result) {
    Flight& flight = flights[slot];
    flight.completion.completed_ns = monotonic_ns();
    record(report, flight.command, flight.completion, result);
    idle.push_back(slot);
  };
  for (;;) {
    while (more && !report.failure && !idle.empty()) {
      const std::optional<IoRequest> request = source(next);
      more = request.has_value();
      if (!more) break;
      const std::uint32_t slot = idle.back();
      idle.pop_back();
      flights[slot] = {request->command, {next++, monotonic_ns(), 0, false}};
      start(slot, *request);
    }
    if (idle.size() == depth) return report;
    wait(reap);
  }
}

}  // namespace kvreplay
