#include "devices/real/measuring_thread.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <thread>
#include <utility>

namespace kvreplay {

void Measuring::tell(std::function<void()> news) {
  const std::lock_guard lock(mutex_);
  news_.push_back(std::move(news));
}

void Measuring::deliver() {
  std::vector<std::function<void()>> news;
  {
    const std::lock_guard lock(mutex_);
    news.swap(news_);
  }
  for (const std::function<void()>& one : news) one();
}

std::optional<IoFailure> measure_in_thread(std::uint32_t depth, std::int64_t patience_ns,
                                           const std::atomic<bool>& stop,
                                           std::function<void(Measuring&)> measure,
                                           const std::function<void()>& now_and_then) {
  const auto measuring = std::make_shared<Measuring>(depth);
  measuring->stop = stop.load();
  std::packaged_task<void()> task(
      [measuring, measure = std::move(measure)] { measure(*measuring); });
  std::future<void> end = task.get_future();
  std::thread thread([task = std::move(task), measuring]() mutable {
    task();
    measuring->watch.go_on();
  });

  constexpr std::int64_t kPauseNs = 100'000'000;
  const std::chrono::nanoseconds pause(std::min(patience_ns / 8, kPauseNs));
  std::exception_ptr refused;  // thrown by a callback: the thread must still end
  for (;;) {
    const bool ended = end.wait_for(pause) == std::future_status::ready;
    try {
      if (!refused) measuring->deliver();
      if (!refused && now_and_then) now_and_then();
    } catch (...) {
      refused = std::current_exception();
    }
    measuring->stop = stop || refused;
    if (ended) break;
    if (const auto unanswered = measuring->watch.unanswered(monotonic_ns(), patience_ns)) {
      measuring->watch.abandon();
      thread.detach();
      if (refused) std::rethrow_exception(refused);
      return IoFailure{unanswered->command, 0, 0, unanswered->for_ns};
    }
  }
  thread.join();
  if (refused) std::rethrow_exception(refused);
  end.get();
  return std::nullopt;
}

}  // namespace kvreplay
