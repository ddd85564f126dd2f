// One thread per outstanding request, in pread or pwrite; and the one-thread case without extra
// threads.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "devices/real/io_engine.hpp"

namespace kvreplay {
namespace {

/// Performs one request. Returns the bytes transferred, or a negative errno.
std::int64_t transfer(const IoEngine::Context& context, const IoRequest& request) {
  const auto [offset, bytes, write] = request.command;
  std::byte* memory = context.memory.data() + request.memory_offset;
  const int descriptor = context.target.descriptor();
  ssize_t result = 0;
  do {
    result = write ? ::pwrite(descriptor, memory, bytes, static_cast<off_t>(offset))
                   : ::pread(descriptor, memory, bytes, static_cast<off_t>(offset));
  } while (result < 0 && errno == EINTR);
  return result < 0 ? -errno : result;
}

/// Takes requests for the slot, one after another, until the source ends or `ended` is set; then
/// sets it.
void work(const IoEngine::Context& context, const IoSource& source,
          std::atomic<std::uint64_t>& next, std::atomic<bool>& ended, IoReport& report,
          std::uint32_t slot) {
  while (!ended) {
    const std::uint64_t index = next++;
    const std::optional<IoRequest> request = source(index);
    if (!request) break;
    if (context.watch != nullptr) context.watch->notify_start(slot, request->command);
    IoCompletion completion{index, monotonic_ns(), 0, false};
    const std::int64_t result = transfer(context, *request);
    completion.completed_ns = monotonic_ns();
    if (context.watch != nullptr) context.watch->notify_end(slot);
    report.add(request->command, completion, result);
    if (report.failure) break;
  }
  ended = true;
}

UserError no_threads(std::uint32_t depth, const std::system_error& error) {
  return {{},
          "cannot start " + std::to_string(depth) + " threads (" + error.what() + ")",
          "a smaller depth"};
}

class Threads final : public IoEngine {
 public:
  explicit Threads(const Context& context) : IoEngine(context.watch), context_(context) {}
  ~Threads() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    work_.notify_all();
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  [[nodiscard]] IoReport run(const IoSource& source, std::uint32_t depth) override {
    std::vector<IoReport> reports(depth);
    std::atomic<std::uint64_t> next{0};
    std::atomic<bool> ended{false};
    {
      std::vector<std::jthread> threads;
      try {
        for (std::uint32_t slot = 0; slot < depth; ++slot) {
          threads.emplace_back(
              [&, this, slot] { work(context_, source, next, ended, reports[slot], slot); });
        }
      } catch (const std::system_error& error) {
        ended = true;
        throw no_threads(depth, error);
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
  void begin(std::uint32_t slot, const IoRequest& request) override {
    while (threads_.size() < context_.depth) {
      try {
        threads_.emplace_back([this] { serve(); });
      } catch (const std::system_error& error) {
        throw no_threads(context_.depth, error);
      }
    }
    {
      const std::lock_guard lock(mutex_);
      started_.emplace_back(slot, request);
    }
    work_.notify_one();
  }

  void await(std::int64_t until_ns, std::vector<IoResult>& results) override {
    // steady_clock is CLOCK_MONOTONIC. Wakes now and then, so that a signal is noticed.
    constexpr std::int64_t kPatienceNs = 100'000'000;
    const std::int64_t until = std::min(until_ns, monotonic_ns() + kPatienceNs);
    std::unique_lock lock(mutex_);
    completion_.wait_until(lock,
                           std::chrono::steady_clock::time_point(std::chrono::nanoseconds(until)),
                           [this] { return !results_.empty(); });
    results.insert(results.end(), results_.begin(), results_.end());
    results_.clear();
  }

  /// The body of each thread: performs what was started, until the end.
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_.wait(lock, [this] { return ended_ || !started_.empty(); });
      if (started_.empty()) return;
      const auto [slot, request] = started_.front();
      started_.pop_front();
      lock.unlock();
      const std::int64_t result = transfer(context_, request);
      const std::int64_t now = monotonic_ns();
      lock.lock();
      results_.push_back({slot, result, now});
      completion_.notify_one();
    }
  }

  const Context context_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable completion_;
  std::deque<std::pair<std::uint32_t, IoRequest>> started_;
  std::vector<IoResult> results_;
  bool ended_ = false;
  std::vector<std::jthread> threads_;  // last, because they use the other members
};

class Sync final : public IoEngine {
 public:
  explicit Sync(const Context& context) : IoEngine(context.watch), context_(context) {
    if (context.depth > 1) {
      throw UserError(
          {}, "engine sync keeps one request outstanding, not " + std::to_string(context.depth),
          "depth 1");
    }
  }

 private:
  void begin(std::uint32_t slot, const IoRequest& request) override {
    const std::int64_t result = transfer(context_, request);
    results_.push_back({slot, result, monotonic_ns()});
  }
  void await(std::int64_t /*until_ns*/, std::vector<IoResult>& results) override {
    results.insert(results.end(), results_.begin(), results_.end());
    results_.clear();
  }

  const Context context_;
  std::vector<IoResult> results_;
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
