#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/extent.hpp"
#include "devices/device.hpp"
#include "devices/device_config.hpp"

namespace kvreplay {

/// How closely a RealTimeDevice followed its model.
struct ServiceReport {
  double seconds = 0;  ///< since construction
  std::uint64_t read_requests = 0;
  std::uint64_t write_requests = 0;
  std::uint64_t read_bytes = 0;  ///< requested
  std::uint64_t write_bytes = 0;
  double read_mean_us = 0;  ///< modelled latency
  double write_mean_us = 0;
  DeviceCounters counters;

  /// Timer error: from the modelled completion to the return of the request to the caller.
  /// Percentiles are rounded up to whole microseconds.
  double error_mean_us = 0;
  double error_p50_us = 0;
  double error_p90_us = 0;
  double error_p99_us = 0;
  double error_p999_us = 0;
  double error_max_us = 0;
  std::uint64_t late_requests = 0;  ///< with an error above RealTimeDevice::kLate: an overload
};

/// A modelled device on the wall clock. Any number of threads start requests and wait for their
/// completion. Virtual time follows the monotonic clock: an event runs once its time has come, so a
/// completion takes later arrivals into account exactly as the model does.
///
/// It has no thread of its own: one of the waiting threads runs the simulation, wakes the others,
/// and hands the task on when its own request is done. So a single outstanding request costs no
/// thread switch. The leader sleeps until shortly before the next event and spins from there.
class RealTimeDevice {
 public:
  using Clock = std::chrono::steady_clock;
  /// A reply later than this is counted as late.
  static constexpr std::chrono::nanoseconds kLate = std::chrono::microseconds(200);

  /// One read or write; it must outlive its finish().
  class Request final : private EventHandler {
   public:
    Request() = default;
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;

   private:
    friend class RealTimeDevice;
    void on_event(std::uint64_t argument) override;

    RealTimeDevice* owner_ = nullptr;
    std::uint64_t bytes_ = 0;
    bool write_ = false;
    std::uint64_t commands_left_ = 0;
    SimTime submitted_ = 0;
    SimTime completed_ = 0;
    std::condition_variable wake_;
  };

  /// `spin`: how long before an event the leader stops sleeping. Sets the timer slack of the
  /// calling thread to the minimum; threads that it creates inherit that.
  RealTimeDevice(const DeviceSpec& spec, std::chrono::nanoseconds spin);
  RealTimeDevice(const RealTimeDevice&) = delete;
  RealTimeDevice& operator=(const RealTimeDevice&) = delete;

  /// Submits the commands that a host would send for the range (devices/commands.hpp).
  void start(Request& request, const Extent& range, bool write);
  /// Returns once the model has completed the request, at that time or as soon after as the machine
  /// permits. Call once per start().
  void finish(Request& request);

  [[nodiscard]] DeviceLimits limits() const { return device_->limits(); }
  [[nodiscard]] ServiceReport report() const;

 private:
  [[nodiscard]] SimTime wall_time() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - epoch_).count();
  }
  void lead(Request& request, std::unique_lock<std::mutex>& lock);
  void hand_over();
  void account(const Request& request, SimTime error);

  const Clock::time_point epoch_ = Clock::now();
  const SimTime spin_;
  mutable std::mutex mutex_;  ///< guards all members below
  Simulation simulation_;
  std::unique_ptr<Device> device_;
  std::vector<IoCommand> commands_;  ///< of one request; kept to reuse its storage

  Request* leader_ = nullptr;            ///< the request whose thread runs the simulation
  std::vector<Request*> followers_;      ///< they wait for a leader to wake them, oldest first
  SimTime leader_sleeps_to_ = 0;         ///< time of the event until which it sleeps
  std::atomic<bool> look_again_{false};  ///< ends the leader's spin: there may be an earlier event

  ServiceReport report_;                  ///< holds sums in place of means until report()
  std::vector<std::uint64_t> errors_us_;  ///< requests by timer error, rounded up; the last: beyond
};

}  // namespace kvreplay
