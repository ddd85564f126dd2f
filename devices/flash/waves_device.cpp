// A disk that serves what waits for it in waves, as virtual and cached disks do: their host is
// woken once, takes all requests that are there, moves them one after the other, and reports them.
//
//   a wave of n commands takes   wave_us + sum(request_us + bytes / transfer_mb_s)
//
// What arrives within wave_us, until the host takes the requests, is part of the wave. In a closed
// loop of depth d, a request then takes wave_us + d (request_us + bytes / transfer_mb_s). Where
// guest and host share a ring of descriptors, a wave has no more commands than the ring takes. A
// limit on requests or bytes, as hosts put on their guests' disks, is a bucket of tokens that holds
// what limit_burst_s bring. Reads and writes take from one bucket, unless writes have a limit of
// their own: then neither waits for the tokens of the other.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "devices/device.hpp"
#include "devices/flash/fifo.hpp"
#include "devices/flash/parameters.hpp"
#include "devices/ring.hpp"

namespace kvreplay::flash {
namespace {

/// A bucket of tokens, each of which takes some time to come; 0 ns: no limit. (GCRA: the time at
/// which the bucket would be full again.)
class Bucket {
 public:
  explicit Bucket(SimTime burst) : burst_(burst) {}

  /// When so much may be taken.
  [[nodiscard]] SimTime allowed_at(SimTime now) const { return std::max(now, full_at_ - burst_); }
  void take(SimTime tokens_ns, SimTime now) { full_at_ = std::max(full_at_, now) + tokens_ns; }
  /// At time 0.
  void empty() { full_at_ = burst_; }

 private:
  SimTime burst_;
  SimTime full_at_ = 0;
};

/// Of a limit that is there: a command waits for its tokens for some minutes at most.
constexpr double kLeastLimit = 0.001;

/// A limit on requests and one on bytes; 0: none.
class RateLimits {
 public:
  RateLimits(double iops, double mb_s, SimTime burst)
      : iops_(iops), mb_s_(mb_s), requests_(burst), bytes_(burst) {}

  [[nodiscard]] SimTime allowed_at(SimTime now) const {
    SimTime at = now;
    if (iops_ > 0) at = std::max(at, requests_.allowed_at(now));
    if (mb_s_ > 0) at = std::max(at, bytes_.allowed_at(now));
    return at;
  }
  void take(std::uint64_t bytes, SimTime now) {
    if (iops_ > 0) requests_.take(from_us(1e6 / iops_), now);
    if (mb_s_ > 0) bytes_.take(transfer_time(bytes, mb_s_), now);
  }
  void empty() {
    requests_.empty();
    bytes_.empty();
  }

 private:
  double iops_;
  double mb_s_;
  Bucket requests_;
  Bucket bytes_;
};

class WavesDevice final : public Device, private EventHandler {
 public:
  WavesDevice(const Arguments& arguments, const Context& context)
      : simulation_(context.simulation),
        limits_{static_cast<std::uint32_t>(arguments.integer("logical_block_bytes")),
                static_cast<std::uint32_t>(arguments.integer("max_transfer_bytes")),
                static_cast<std::uint32_t>(arguments.integer("queue_depth"))},
        reads_{from_us(arguments.real("wave_us")), from_us(arguments.real("request_us")),
               arguments.real("transfer_mb_s")},
        writes_{from_us(of_write(arguments, "write_wave_us", "wave_us")),
                from_us(of_write(arguments, "write_request_us", "request_us")),
                of_write(arguments, "write_transfer_mb_s", "transfer_mb_s")},
        ring_entries_(static_cast<std::uint64_t>(arguments.integer("ring_entries"))),
        together_(arguments.text("completion") == "together") {
    check_multiple(arguments, "max_transfer_bytes", "logical_block_bytes");
    for (const char* limit : {"limit_iops", "limit_mb_s", "write_limit_iops", "write_limit_mb_s"}) {
      const double value = arguments.real(limit);
      if (value > 0 && value < kLeastLimit) {
        throw bad_value(arguments, limit, "0, or 0.001 or more");
      }
    }
    const SimTime burst = from_us(arguments.real("limit_burst_s") * 1e6);
    queues_.push_back(
        {RateLimits(arguments.real("limit_iops"), arguments.real("limit_mb_s"), burst)});
    const double write_iops = arguments.real("write_limit_iops");
    const double write_mb_s = arguments.real("write_limit_mb_s");
    if (write_iops > 0 || write_mb_s > 0) {
      queues_.push_back({RateLimits(write_iops, write_mb_s, burst)});
    }
  }

  void submit(const IoCommand& command, EventHandler& done, std::uint64_t argument) override {
    check_command(command, limits_);
    (command.write ? counters_.write_commands : counters_.read_commands) += 1;
    (command.write ? counters_.host_write_bytes : counters_.host_read_bytes) += command.bytes;
    (command.write ? counters_.flash_write_bytes : counters_.flash_read_bytes) += command.bytes;
    Queue& queue = queues_[command.write ? queues_.size() - 1 : 0];
    const bool first = queue.waiting.empty();
    queue.waiting.push({command, &done, argument, submitted_++});
    // What waits for tokens of reads does not keep a write waiting, nor the reverse.
    if (state_ == State::kIdle || (state_ == State::kWaitsForTokens && first)) begin();
  }
  void use_up_burst() override {
    for (Queue& queue : queues_) queue.limits.empty();
  }
  [[nodiscard]] DeviceLimits limits() const override { return limits_; }
  [[nodiscard]] DeviceCounters counters() const override { return counters_; }

 private:
  enum class State {
    kIdle,
    kWaitsForTokens,  ///< as every queue does that is not empty
    kWakes,           ///< a wave has begun and has taken nothing yet
    kMoves,           ///< it takes no more
  };
  struct Submission {
    IoCommand command;
    EventHandler* done = nullptr;
    std::uint64_t argument = 0;
    std::uint64_t number = 0;  ///< in the order of arrival
  };
  /// Commands that share limits.
  struct Queue {
    RateLimits limits;
    Fifo<Submission> waiting = {};
  };
  struct Costs {
    SimTime wave = 0;
    SimTime request = 0;
    double mb_s = 0;
  };

  /// The queue whose first command may be taken now and came first; nullptr where there is none.
  [[nodiscard]] Queue* next(SimTime now) {
    Queue* found = nullptr;
    for (Queue& queue : queues_) {
      if (queue.waiting.empty() || queue.limits.allowed_at(now) > now) continue;
      if (found == nullptr || queue.waiting.front().number < found->waiting.front().number) {
        found = &queue;
      }
    }
    return found;
  }

  /// The host takes what waits, a wave has ended, or one may begin; since then, another may have
  /// begun.
  void on_event(std::uint64_t argument) override {
    if (argument != awaited_) return;
    if (state_ == State::kWakes) {
      serve();
    } else {
      begin();
    }
  }
  void await(SimTime at) { simulation_.schedule(at, *this, ++awaited_); }

  void begin() {
    const SimTime now = simulation_.now();
    state_ = State::kIdle;
    SimTime allowed_at = std::numeric_limits<SimTime>::max();
    for (const Queue& queue : queues_) {
      if (queue.waiting.empty()) continue;
      allowed_at = std::min(allowed_at, queue.limits.allowed_at(now));
    }
    if (allowed_at == std::numeric_limits<SimTime>::max()) return;
    if (allowed_at > now) {
      state_ = State::kWaitsForTokens;
      await(allowed_at);
      return;
    }
    state_ = State::kWakes;
    begun_ = now;
    await(now + costs_of(next(now)->waiting.front()).wave);
  }

  /// Moves a wave of what waits now.
  void serve() {
    const SimTime now = simulation_.now();
    state_ = State::kMoves;
    std::vector<Submission> wave;
    std::uint64_t descriptors = 0;
    SimTime end = now;
    while (wave.size() < limits_.queue_depth) {
      Queue* const queue = next(now);
      if (queue == nullptr) break;
      const Submission& first = queue->waiting.front();
      descriptors += ring_descriptors(first.command.bytes);
      if (ring_entries_ > 0 && descriptors > ring_entries_ && !wave.empty()) break;
      end = std::max(end, begun_ + costs_of(first).wave);
      queue->limits.take(first.command.bytes, now);
      wave.push_back(first);
      queue->waiting.pop();
    }
    std::vector<SimTime> ends;
    for (const Submission& submission : wave) {
      const Costs& cost = costs_of(submission);
      end += cost.request + transfer_time(submission.command.bytes, cost.mb_s);
      ends.push_back(end);
    }
    for (std::size_t i = 0; i < wave.size(); ++i) {
      simulation_.schedule(together_ ? end : ends[i], *wave[i].done, wave[i].argument);
    }
    await(end);
  }

  [[nodiscard]] const Costs& costs_of(const Submission& submission) const {
    return submission.command.write ? writes_ : reads_;
  }

  Simulation& simulation_;
  DeviceLimits limits_;
  const Costs reads_;
  const Costs writes_;
  const std::uint64_t ring_entries_;
  const bool together_;
  std::vector<Queue> queues_;  ///< of all commands, or of reads and of writes
  std::uint64_t submitted_ = 0;
  std::uint64_t awaited_ = 0;  ///< number of the event that counts
  SimTime begun_ = 0;          ///< of the latest wave
  State state_ = State::kIdle;
  DeviceCounters counters_;
};

std::vector<Parameter> wave_parameters() {
  return {
      integer_parameter("queue_depth", "commands", 64, {1, 65535},
                        "commands that one wave takes; the others wait in the host"),
      integer_parameter("logical_block_bytes", "bytes", 4096, {512, 65536},
                        "offsets and sizes of commands are multiples of it"),
      integer_parameter("max_transfer_bytes", "bytes", 524288, {512, 1 << 30},
                        "size of the largest command"),
      real_parameter("wave_us", "us", std::nullopt, {0, 1e6}, "time per wave that has a read"),
      real_parameter("request_us", "us", std::nullopt, {0, 1e6}, "time per read"),
      real_parameter("transfer_mb_s", "MB/s", std::nullopt, {0.001, 1e6},
                     "rate at which the bytes of reads are moved"),
      real_parameter("write_wave_us", "us", 0, {0, 1e6},
                     "time per wave that has a write; 0: as of reads"),
      real_parameter("write_request_us", "us", 0, {0, 1e6}, "time per write; 0: as of reads"),
      real_parameter("write_transfer_mb_s", "MB/s", 0, {0, 1e6},
                     "rate at which the bytes of writes are moved; 0: as of reads"),
      integer_parameter("ring_entries", "descriptors", 0, {0, 65536},
                        "descriptors that the commands of a wave have: two each and one per 4 KiB; "
                        "0: no limit"),
      choice_parameter("completion", {"one_by_one", "together"}, "one_by_one",
                       "whether a command completes when it has been moved, or with its wave"),
      real_parameter("limit_iops", "1/s", 0, {0, 1e9}, "limit on commands per second; 0: none"),
      real_parameter("limit_mb_s", "MB/s", 0, {0, 1e6}, "limit on bytes per second; 0: none"),
      real_parameter(
          "write_limit_iops", "1/s", 0, {0, 1e9},
          "limit on writes per second; with it or write_limit_mb_s, the limits above are "
          "of reads alone; both 0: reads and writes share those"),
      real_parameter("write_limit_mb_s", "MB/s", 0, {0, 1e6}, "limit on bytes written per second"),
      real_parameter("limit_burst_s", "s", 0.1, {0, 1e4},
                     "what the limits bring in this time may be taken at once"),
  };
}

const Registered<Device> kWaves{{
    .name = "waves",
    .help = "a virtual or cached disk: all that waits is served together, with limits per second",
    .source = "ours; the bucket is that of QEMU's and of cloud hosts' limits on disks",
    .parameters = wave_parameters(),
    .make = [](const Arguments& arguments, const Device::Context& context)
        -> std::unique_ptr<Device> { return std::make_unique<WavesDevice>(arguments, context); },
}};

}  // namespace
}  // namespace kvreplay::flash
