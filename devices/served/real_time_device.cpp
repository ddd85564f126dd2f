#include "devices/served/real_time_device.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "base/statistics.hpp"
#include "devices/commands.hpp"

namespace kvreplay {
namespace {

constexpr std::size_t kErrorBuckets = 100'001;  ///< to 0.1 s

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

RealTimeDevice::RealTimeDevice(const DeviceSpec& spec, std::chrono::nanoseconds spin)
    : spin_(spin.count()), device_(spec.make(simulation_)), errors_us_(kErrorBuckets + 1) {
  // The kernel lets an ordinary sleep end 50 us late. Where it refuses a change, the spin covers
  // that.
  prctl(PR_SET_TIMERSLACK, 1ul);
}

void RealTimeDevice::Request::on_event(std::uint64_t /*argument*/) {
  if (--commands_left_ > 0) return;
  completed_ = owner_->simulation_.now();
  std::erase(owner_->followers_, this);
  wake_.notify_one();
}

void RealTimeDevice::start(Request& request, const Extent& range, bool write) {
  const std::lock_guard lock(mutex_);
  simulation_.run_until(wall_time());
  commands_.clear();
  to_commands({&range, 1}, write, device_->limits(), commands_);
  request.owner_ = this;
  request.bytes_ = range.bytes;
  request.write_ = write;
  request.commands_left_ = commands_.size();
  request.submitted_ = request.completed_ = simulation_.now();
  for (const IoCommand& command : commands_) device_->submit(command, request, 0);

  look_again_.store(true, std::memory_order_relaxed);
  const std::optional<SimTime> next = simulation_.next_at();
  if (leader_ != nullptr && next && *next < leader_sleeps_to_) leader_->wake_.notify_one();
}

void RealTimeDevice::finish(Request& request) {
  std::unique_lock lock(mutex_);
  bool follows = false;
  while (request.commands_left_ > 0) {
    if (leader_ == nullptr) {
      std::erase(followers_, &request);
      lead(request, lock);
      hand_over();
    } else {
      if (!follows) followers_.push_back(&request);
      follows = true;
      request.wake_.wait(lock);
    }
  }
  // Woken to lead, but already done: another thread must lead.
  if (leader_ == nullptr) hand_over();
  account(request, wall_time() - request.completed_);
}

/// Runs the simulation in step with the wall clock until the request is done.
void RealTimeDevice::lead(Request& request, std::unique_lock<std::mutex>& lock) {
  leader_ = &request;
  while (true) {
    simulation_.run_until(wall_time());
    if (request.commands_left_ == 0) break;
    const std::optional<SimTime> next = simulation_.next_at();
    if (!next) throw std::logic_error("a command is outstanding, and the device is idle");
    if (*next - wall_time() > spin_) {
      leader_sleeps_to_ = *next;
      request.wake_.wait_until(lock, epoch_ + std::chrono::nanoseconds(*next - spin_));
      leader_sleeps_to_ = 0;
    } else {
      look_again_.store(false, std::memory_order_relaxed);
      lock.unlock();
      while (wall_time() < *next && !look_again_.load(std::memory_order_relaxed)) relax();
      lock.lock();
    }
  }
  leader_ = nullptr;
}

void RealTimeDevice::hand_over() {
  if (!followers_.empty()) followers_.front()->wake_.notify_one();
}

void RealTimeDevice::account(const Request& request, SimTime error) {
  const auto latency_us = static_cast<double>(request.completed_ - request.submitted_) * 1e-3;
  if (request.write_) {
    ++report_.write_requests;
    report_.write_bytes += request.bytes_;
    report_.write_mean_us += latency_us;
  } else {
    ++report_.read_requests;
    report_.read_bytes += request.bytes_;
    report_.read_mean_us += latency_us;
  }
  const auto error_us = static_cast<double>(error) * 1e-3;
  report_.error_mean_us += error_us;
  report_.error_max_us = std::max(report_.error_max_us, error_us);
  if (error > kLate.count()) ++report_.late_requests;
  ++errors_us_[std::min(static_cast<std::size_t>(std::ceil(error_us)), kErrorBuckets)];
}

ServiceReport RealTimeDevice::report() const {
  const std::lock_guard lock(mutex_);
  ServiceReport result = report_;
  result.seconds = static_cast<double>(wall_time()) * 1e-9;
  result.counters = device_->counters();
  const std::uint64_t requests = result.read_requests + result.write_requests;
  const auto divide = [](double& sum, std::uint64_t count) {
    if (count > 0) sum /= static_cast<double>(count);
  };
  divide(result.read_mean_us, result.read_requests);
  divide(result.write_mean_us, result.write_requests);
  divide(result.error_mean_us, requests);
  const auto error_us = [&](double share) {
    const std::uint64_t rank = percentile_rank(requests, share);
    std::uint64_t below = 0;
    for (std::size_t us = 0; us < kErrorBuckets; ++us) {
      below += errors_us_[us];
      if (below >= rank) return std::min(static_cast<double>(us), result.error_max_us);
    }
    return result.error_max_us;
  };
  result.error_p50_us = error_us(0.5);
  result.error_p90_us = error_us(0.9);
  result.error_p99_us = error_us(0.99);
  result.error_p999_us = error_us(0.999);
  return result;
}

}  // namespace kvreplay
