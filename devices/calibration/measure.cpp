#include "devices/calibration/measure.hpp"

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/statistics.hpp"
#include "devices/commands.hpp"

namespace kvreplay {
namespace {

class ClosedLoop final : public EventHandler {
 public:
  ClosedLoop(const DeviceSpec& spec, const Workload& workload)
      : workload_(workload),
        device_(spec.make(simulation_)),
        limits_(device_->limits()),
        path_(std::llround(workload.path_us * 1e3)),
        random_(workload.seed),
        outstanding_(workload.depth),
        to_complete_(workload.depth + workload.requests) {
    latencies_.reserve(workload.requests);
  }

  Measurement run() {
    Random places(Random::derive(workload_.seed, 1));
    device_->settle(workload_.range_bytes, places);
    if (workload_.write_buffer_full) device_->fill_write_buffer();
    if (workload_.burst_used_up) device_->use_up_burst();
    for (std::uint32_t i = 0; i < workload_.depth; ++i) submit(i);
    simulation_.run();
    return summary();
  }

  /// A command of request `argument` has completed; for a request without commands, the request has
  /// arrived.
  void on_event(std::uint64_t argument) override {
    Request& request = outstanding_[argument];
    if (request.commands_left == 0) {
      arrive(argument);
      return;
    }
    if (--request.commands_left > 0) return;
    ++completed_;
    if (completed_ == workload_.depth) {
      measured_from_ = simulation_.now();
    } else if (completed_ > workload_.depth && completed_ <= to_complete_) {
      latencies_.push_back(simulation_.now() - request.submitted);
      (request.write ? writes_ : reads_).add(latencies_.back());
      measured_to_ = simulation_.now();
    }
    if (completed_ < to_complete_) submit(argument);
  }

 private:
  struct Request {
    SimTime submitted = 0;
    std::uint64_t commands_left = 0;
    bool write = false;
  };
  struct Latencies {
    std::uint64_t count = 0;
    SimTime sum = 0;

    void add(SimTime latency) {
      ++count;
      sum += latency;
    }
    [[nodiscard]] double mean_us() const {
      return count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count) * 1e-3;
    }
  };

  void submit(std::uint64_t index) {
    outstanding_[index] = {simulation_.now()};
    if (path_ == 0) {
      arrive(index);
    } else {
      simulation_.schedule(simulation_.now() + path_, *this, index);
    }
  }

  void arrive(std::uint64_t index) {
    const std::uint64_t places = workload_.range_bytes / workload_.bytes;
    const std::uint64_t place =
        workload_.sequential ? next_place_++ % places : random_.below(places);
    const Extent extent{place * workload_.bytes, workload_.bytes};
    const bool write = random_.uniform() < workload_.write_share;
    commands_.clear();
    to_commands({&extent, 1}, write, limits_, commands_);
    outstanding_[index].commands_left = commands_.size();
    outstanding_[index].write = write;
    for (const IoCommand& command : commands_) device_->submit(command, *this, index);
  }

  Measurement summary() {
    Measurement result;
    result.requests = latencies_.size();
    const auto count = static_cast<double>(result.requests);
    result.seconds = static_cast<double>(measured_to_ - measured_from_) * 1e-9;
    result.iops = count / result.seconds;
    result.mb_s = result.iops * static_cast<double>(workload_.bytes) * 1e-6;
    double sum = 0;
    for (const SimTime latency : latencies_) sum += static_cast<double>(latency);
    result.mean_us = sum / count * 1e-3;
    result.read_mean_us = reads_.mean_us();
    result.write_mean_us = writes_.mean_us();
    AscendingPercentiles percentile(latencies_);
    const auto percentile_us = [&](double share) {
      return static_cast<double>(percentile(share)) * 1e-3;
    };
    result.p50_us = percentile_us(0.5);
    result.p90_us = percentile_us(0.9);
    result.p99_us = percentile_us(0.99);
    result.p999_us = percentile_us(0.999);
    result.max_us = percentile_us(1);
    result.counters = device_->counters();
    result.run_seconds = static_cast<double>(simulation_.now()) * 1e-9;
    result.events = simulation_.events_run();
    return result;
  }

  const Workload workload_;
  Simulation simulation_;
  std::unique_ptr<Device> device_;
  const DeviceLimits limits_;
  const SimTime path_;
  Random random_;
  std::uint64_t next_place_ = 0;  ///< next offset of a sequential workload
  std::vector<Request> outstanding_;
  std::vector<IoCommand> commands_;  ///< of one request; kept to reuse its storage
  const std::uint64_t to_complete_;
  std::uint64_t completed_ = 0;
  SimTime measured_from_ = 0;
  SimTime measured_to_ = 0;
  std::vector<SimTime> latencies_;
  Latencies reads_;
  Latencies writes_;
};

void require(bool holds, const char* name, const std::string& found, const char* allowed) {
  if (!holds) throw UserError({"", std::string("workload/") + name}, "found " + found, allowed);
}

}  // namespace

Measurement measure(const DeviceSpec& spec, const Workload& workload) {
  require(workload.bytes > 0, "bytes", "0", "at least 1");
  require(workload.depth > 0, "depth", "0", "at least 1");
  // Fewer requests could all complete at one instant, which gives no rate.
  require(workload.requests >= workload.depth, "requests", std::to_string(workload.requests),
          "at least the depth");
  require(workload.write_share >= 0 && workload.write_share <= 1, "write_share",
          std::to_string(workload.write_share), "0 to 1");
  require(workload.path_us >= 0 && workload.path_us <= 1e9, "path_us",
          std::to_string(workload.path_us), "0 to 1e9");
  require(workload.range_bytes >= workload.bytes, "range_bytes",
          std::to_string(workload.range_bytes), "at least the bytes of a request");
  return ClosedLoop(spec, workload).run();
}

}  // namespace kvreplay
