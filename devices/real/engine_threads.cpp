// A thread for each outstanding request, in pread or pwrite; and the one-thread case without
// threads.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#include "devices/real/queue_loop.hpp"

namespace kvreplay {
namespace {

/// Takes requests, one after another, until the source ends or `ended` is set; sets it then.
void work(const IoEngine::Context& context, const IoSource& source,
          std::atomic<std::uint64_t>& next, std::atomic<bool>& ended, IoReport& report) {
  while (!ended) {
    const std::uint64_t index = next++;
    const std::optional<IoRequest> request = source(index);
    if (!request) break;
    const auto [offset, bytes, write] = request->command;
    std::byte* memory = context.memory.data() + request->memory_offset;
    const int descriptor = context.target.descriptor();
    IoCompletion completion{index, monotonic_ns(), 0, write};
    ssize_t result = 0;
    do {
      result = write ? ::pwrite(descriptor, memory, bytes, static_cast<off_t>(offset))
                     : ::pread(descriptor, memory, bytes, static_cast<off_t>(offset));
    } while (result < 0 && errno == EINTR);
    if (result < 0) result = -errno;
    completion.completed_ns = monotonic_ns();
    record(report, request->command, completion, result);
    if (report.failure) break;
  }
  ended = true;
}

class Threads final : public IoEngine {
 public:
  explicit Threads(const Context& context) : context_(context) {}

  [[nodiscard]] IoReport run(const IoSource& source, std::uint32_t depth) override {
    std::vector<IoReport> reports(depth);
    std::atomic<std::uint64_t> next{0};
    std::atomic<bool> ended{false};
    {
      std::vector<std::jthread> threads;
      try {
        for (IoReport& report : reports) {
          threads.emplace_back([&, this] { work(context_, source, next, ended, report); });
        }
      } catch (const std::system_error& error) {
        ended = true;
        throw UserError({},
                        "cannot start " + std::to_string(depth) + " threads (" + error.what() + ")",
                        "a smaller depth");
      }
    }
    IoReport all;
    for (IoReport& report : reports) {
      all.completions.insert(all.completions.end(), report.completions.begin(),
                             report.completions.end());
      if (!all.failure) all.failure = report.failure;
    }
    std::sort(all.completions.begin(), all.completions.end(),
              [](const IoCompletion& a, const IoCompletion& b) {
                return std::tie(a.completed_ns, a.index) < std::tie(b.completed_ns, b.index);
              });
    return all;
  }

 private:
  const Context context_;
};

class Sync final : public IoEngine {
 public:
  explicit Sync(const Context& context) : context_(context) {
    if (context.depth > 1) {
      throw UserError(
          {}, "engine sync keeps one request outstanding, not " + std::to_string(context.depth),
          "depth 1");
    }
  }

  [[nodiscard]] IoReport run(const IoSource& source, std::uint32_t /*depth*/) override {
    IoReport report;
    std::atomic<std::uint64_t> next{0};
    std::atomic<bool> ended{false};
    work(context_, source, next, ended, report);
    return report;
  }

 private:
  const Context context_;
};

const Registered<IoEngine> kThreads{{
    .name = "threads",
    .help = "a thread for each outstanding request, in pread or pwrite",
    .source = "ours",
    .parameters = {},
    .make = [](const Arguments& /*arguments*/, const IoEngine::Context& context)
        -> std::unique_ptr<IoEngine> { return std::make_unique<Threads>(context); },
}};

const Registered<IoEngine> kSync{{
    .name = "sync",
    .help = "pread or pwrite, one request at a time",
    .source = "ours",
    .parameters = {},
    .make = [](const Arguments& /*arguments*/, const IoEngine::Context& context)
        -> std::unique_ptr<IoEngine> { return std::make_unique<Sync>(context); },
}};

}  // namespace
}  // namespace kvreplay
