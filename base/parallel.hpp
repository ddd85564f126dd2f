#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvreplay {

/// The number of threads of the machine; at least 1.
[[nodiscard]] int processor_count();

/// Threads that run one parallel loop after another. They stay between the loops: a decode step has
/// a hundred loops of some ten microseconds, for which new threads would cost more than the work.
/// A thread that has nothing to do watches for the next loop for a moment before it sleeps, where
/// each thread has a processor, because to wake one takes longer than such a loop.
/// One loop at a time; a loop inside another needs a pool of its own.
class WorkerPool {
 public:
  /// `threads` in all, the caller's among them; fewer than 1 are 1.
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Runs work(0) ... work(count - 1), each once. Indices are taken in order; results must depend
  /// on the index alone. The exception of the lowest index that failed is rethrown once all threads
  /// have stopped; the pool can be used again.
  void run(std::int64_t count, const std::function<void(std::int64_t)>& work);

 private:
  WorkerPool() = default;
  void serve();
  void take_indices();
  /// Returns when `reached()` or after the moment for which a thread watches.
  template <typename Reached>
  void watch(const Reached& reached) const;

  std::mutex mutex_;
  std::condition_variable started_;
  std::condition_variable finished_;
  bool watches_ = false;
  // Of the latest loop. Helpers join while it is open, and read the rest once they have joined.
  std::atomic<std::uint64_t> generation_{0};  // loops begun
  bool open_ = false;
  const std::function<void(std::int64_t)>* work_ = nullptr;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::atomic<int> busy_{0};  // helpers that have joined and not left
  std::atomic<bool> stop_{false};
  std::exception_ptr failure_;
  std::int64_t failed_index_ = 0;
  std::vector<std::thread> helpers_;
};

/// WorkerPool::run for one loop whose work outweighs the start of up to `threads` threads.
void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work);

}  // namespace kvreplay
