// A disk that serves what waits for it in waves, as virtual and cached disks do: their host is
// woken once, takes all requests that are there, moves them one after the other, and reports them.
//
//   a wave of n commands takes   wave_us + sum(request_us + bytes / transfer_mb_s)
//
// In a closed loop of depth d, a request then takes wave_us + d (request_us + bytes /
// transfer_mb_s). Where guest and host share a ring of descriptors, a wave has no more commands
// than the ring takes. A limit on requests or bytes, as hosts put on their guests' disks, is a
// bucket of tokens that holds what limit_burst_s bring.

#include <algorithm>
#include <cstdint>
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

 private:
  SimTime burst_;
  SimTime full_at_ = 0;
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
        together_(arguments.text("completion") == "together"),
        limit_iops_(arguments.real("limit_iops")),
        limit_mb_s_(arguments.real("limit_mb_s")),
        requests_(from_us(arguments.real("limit_burst_s") * 1e6)),
        bytes_(from_us(arguments.real("limit_burst_s") * 1e6)) {
    check_multiple(arguments, "max_transfer_bytes", "logical_block_bytes");
  }

  void submit(const IoCommand& command, EventHandler& done, std::uint64_t argument) override {
    check_command(command, limits_);
    (command.write ? counters_.write_commands : counters_.read_commands) += 1;
    (command.write ? counters_.host_write_bytes : counters_.host_read_bytes) += command.bytes;
    (command.write ? counters_.flash_write_bytes : counters_.flash_read_bytes) += command.bytes;
    waiting_.push({command, &done, argument});
    if (!serving_) begin();
  }
  [[nodiscard]] DeviceLimits limits() const override { return limits_; }
  [[nodiscard]] DeviceCounters counters() const override { return counters_; }

 private:
  struct Submission {
    IoCommand command;
    EventHandler* done = nullptr;
    std::uint64_t argument = 0;
  };
  struct Costs {
    SimTime wave = 0;
    SimTime request = 0;
    double mb_s = 0;
  };

  [[nodiscard]] SimTime allowed_at(SimTime now) const {
    SimTime at = now;
    if (limit_iops_ > 0) at = std::max(at, requests_.allowed_at(now));
    if (limit_mb_s_ > 0) at = std::max(at, bytes_.allowed_at(now));
    return at;
  }

  /// The end of a wave, or the time at which one may begin.
  void on_event(std::uint64_t /*argument*/) override { begin(); }

  void begin() {
    serving_ = !waiting_.empty();
    if (!serving_) return;
    const SimTime now = simulation_.now();
    if (const SimTime at = allowed_at(now); at > now) {
      simulation_.schedule(at, *this, 0);
      return;
    }
    std::vector<Submission> wave;
    std::uint64_t descriptors = 0;
    SimTime end = now;
    while (!waiting_.empty() && wave.size() < limits_.queue_depth && allowed_at(now) == now) {
      const Submission& next = waiting_.front();
      descriptors += ring_descriptors(next.command.bytes);
      if (ring_entries_ > 0 && descriptors > ring_entries_ && !wave.empty()) break;
      end = std::max(end, now + (next.command.write ? writes_ : reads_).wave);
      if (limit_iops_ > 0) requests_.take(from_us(1e6 / limit_iops_), now);
      if (limit_mb_s_ > 0) bytes_.take(transfer_time(next.command.bytes, limit_mb_s_), now);
      wave.push_back(next);
      waiting_.pop();
    }
    std::vector<SimTime> ends;
    for (const Submission& submission : wave) {
      const Costs& cost = submission.command.write ? writes_ : reads_;
      end += cost.request + transfer_time(submission.command.bytes, cost.mb_s);
      ends.push_back(end);
    }
    for (std::size_t i = 0; i < wave.size(); ++i) {
      simulation_.schedule(together_ ? end : ends[i], *wave[i].done, wave[i].argument);
    }
    simulation_.schedule(end, *this, 0);
  }

  Simulation& simulation_;
  DeviceLimits limits_;
  const Costs reads_;
  const Costs writes_;
  const std::uint64_t ring_entries_;
  const bool together_;
  const double limit_iops_;
  const double limit_mb_s_;
  Bucket requests_;
  Bucket bytes_;
  Fifo<Submission> waiting_;
  bool serving_ = false;  ///< a wave is under way, or waits for tokens
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
