// By hand: std::execution gives GCC's library a dependency on TBB, and OpenMP loses exceptions.

#include "base/parallel.hpp"

#include <algorithm>
#include <chrono>

namespace kvreplay {

int processor_count() {
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

// It delegates so that the destructor joins the helpers there are when the system refuses another.
WorkerPool::WorkerPool(int threads) : WorkerPool() {
  watches_ = threads <= processor_count();
  for (int i = 1; i < threads; ++i) helpers_.emplace_back([this] { serve(); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  started_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

template <typename Reached>
void WorkerPool::watch(const Reached& reached) const {
  if (!watches_) return;
  constexpr std::chrono::microseconds kMoment(50);
  const auto end = std::chrono::steady_clock::now() + kMoment;
  while (!reached() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

void WorkerPool::run(std::int64_t count, const std::function<void(std::int64_t)>& work) {
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    count_ = count;
    next_ = 0;
    failure_ = nullptr;
    if (count > 1) {
      open_ = true;
      ++generation_;
    }
  }
  if (count > 1) started_.notify_all();
  take_indices();
  {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  watch([this] { return busy_ == 0; });
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return busy_ == 0; });
  if (failure_) std::rethrow_exception(failure_);
}

void WorkerPool::serve() {
  std::uint64_t seen = 0;
  while (true) {
    const auto called = [&] { return stop_ || generation_ != seen; };
    watch(called);
    {
      std::unique_lock lock(mutex_);
      started_.wait(lock, called);
      if (stop_) return;
      seen = generation_;
      if (!open_) continue;
      ++busy_;
    }
    take_indices();
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0) finished_.notify_one();
  }
}

void WorkerPool::take_indices() {
  for (std::int64_t i = next_++; i < count_; i = next_++) {
    try {
      (*work_)(i);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_ || i < failed_index_) {
        failure_ = std::current_exception();
        failed_index_ = i;
      }
      next_ = count_;
    }
  }
}

void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work) {
  WorkerPool(static_cast<int>(std::min<std::int64_t>(count, threads))).run(count, work);
}

}  // namespace kvreplay
