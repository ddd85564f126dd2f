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

/// Threads that stay alive between parallel loops: a decode step has about a hundred loops of some
/// ten microseconds each, for which the new threads of parallel_for would cost more than the work.
class WorkerPool {
 public:
  /// `threads` in total, including the caller's; at least 1.
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Runs work(0) ... work(count - 1), each once. Results must depend only on the index. The
  /// exception of the lowest index that failed is rethrown once all threads have stopped.
  void run(std::int64_t count, const std::function<void(std::int64_t)>& work);

 private:
  void serve();
  void take_indices();

  std::mutex mutex_;
  std::condition_variable started_;
  std::condition_variable finished_;
  const std::function<void(std::int64_t)>* work_ = nullptr;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::uint64_t generation_ = 0;  // number of loops begun
  int busy_ = 0;                  // helpers that have not left the latest loop
  bool stop_ = false;
  std::exception_ptr failure_;
  std::int64_t failed_index_ = 0;
  std::vector<std::thread> helpers_;
};

}  // namespace kvreplay
