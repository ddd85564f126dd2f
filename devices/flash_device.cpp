// The model of a flash device: a queue in the host, then first-come first-served servers that a
// command and its pages pass. docs/device-model.md gives its equations.
//
//   read:   latency -> controller -> die (sense) -> channel -> link
//   write:  latency -> controller -> link -> buffer, then done; the buffer drains by
//           channel -> die (program)
//
// The structure (firmware, die, channel and link time, page by page; writes acknowledged from a
// buffer) is that of NVMeVirt (Kim et al., FAST '23) and ConZone.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include "devices/device.hpp"
#include "devices/fifo.hpp"
#include "sim/engine/server.hpp"

namespace kvreplay {
namespace {

SimTime from_us(double microseconds) {
  return std::llround(microseconds * 1000);
}

/// Rounded up, so that no server ever carries more than its rate. MB/s = 10^6 bytes a second.
SimTime transfer_time(std::uint64_t bytes, double mb_s) {
  return static_cast<SimTime>(std::ceil(static_cast<double>(bytes) * 1000 / mb_s));
}

/// Where a byte lies. Consecutive pages fill a die's planes (a plane group: sensed together), then
/// the further pages that one program operation writes (a stripe: what the controller gathers
/// before it programs); consecutive stripes go to the channels in turn, then to the dies of each.
struct Geometry {
  std::uint64_t page_bytes;
  std::uint64_t planes;
  std::uint64_t program_pages;
  std::uint64_t channels;
  std::uint64_t dies_per_channel;

  explicit Geometry(const Arguments& arguments)
      : page_bytes(static_cast<std::uint64_t>(arguments.integer("page_bytes"))),
        planes(static_cast<std::uint64_t>(arguments.integer("planes"))),
        program_pages(static_cast<std::uint64_t>(arguments.integer("program_pages"))),
        channels(static_cast<std::uint64_t>(arguments.integer("channels"))),
        dies_per_channel(static_cast<std::uint64_t>(arguments.integer("dies_per_channel"))) {}

  [[nodiscard]] std::uint64_t group_of_page(std::uint64_t page) const { return page / planes; }
  [[nodiscard]] std::uint64_t stripe_of_group(std::uint64_t group) const {
    return group / program_pages;
  }
  [[nodiscard]] std::uint64_t channel_of_stripe(std::uint64_t stripe) const {
    return stripe % channels;
  }
  [[nodiscard]] std::uint64_t die_of_stripe(std::uint64_t stripe) const {
    return stripe % (channels * dies_per_channel);
  }
  [[nodiscard]] std::uint64_t stripe_bytes() const { return page_bytes * planes * program_pages; }
};

class FlashDevice final : public Device, private EventHandler {
 public:
  FlashDevice(const Arguments& arguments, const Context& context);

  void submit(const IoCommand& command, EventHandler& done, std::uint64_t argument) override;
  [[nodiscard]] DeviceLimits limits() const override { return limits_; }
  [[nodiscard]] DeviceCounters counters() const override { return counters_; }

 private:
  struct Submission {
    IoCommand command;
    EventHandler* done = nullptr;
    std::uint64_t argument = 0;
  };

  /// A command inside the device.
  struct Slot {
    Submission submission;
    std::uint32_t to_buffer = 0;  ///< write: bytes without room in the buffer yet
    std::uint32_t left = 0;       ///< read: pages, write: bytes, that have not crossed the link
  };

  /// What has just happened, as the argument of an event.
  enum class Stage : std::uint16_t {
    kArrived,     ///< a command at the controller
    kDecoded,     ///< a command, by the controller
    kSensed,      ///< a read's plane group, in the page registers of its die
    kOffChannel,  ///< a read's page, in the controller
    kDelivered,   ///< a read's page, in the host
    kBuffered,    ///< a write's bytes, in the buffer
    kAtDie,       ///< a stripe to program, in the page registers of its die
    kProgrammed,  ///< a stripe
  };
  struct Event {
    std::uint32_t value;  ///< group or page, counted from the command's first; bytes; or die
    std::uint16_t slot;
    Stage stage;
  };
  static_assert(sizeof(Event) == sizeof(std::uint64_t));
  [[nodiscard]] static std::uint64_t pack(Stage stage, std::uint16_t slot, std::uint32_t value) {
    return std::bit_cast<std::uint64_t>(Event{value, slot, stage});
  }

  void on_event(std::uint64_t argument) override;

  void admit();
  void sense(std::uint16_t slot);
  void send_off_channel(std::uint16_t slot, std::uint32_t group);
  void deliver(std::uint16_t slot, std::uint32_t page);
  void fill_buffer();
  void buffered(std::uint16_t slot, std::uint32_t bytes);
  void drain_buffer();
  void complete(std::uint16_t slot);

  [[nodiscard]] const IoCommand& command(std::uint16_t slot) const {
    return slots_[slot].submission.command;
  }
  [[nodiscard]] std::uint64_t first_page(const IoCommand& command) const {
    return command.offset / geometry_.page_bytes;
  }
  [[nodiscard]] std::uint64_t last_page(const IoCommand& command) const {
    return (command.offset + command.bytes - 1) / geometry_.page_bytes;
  }
  struct Part {
    std::uint64_t begin;
    std::uint64_t end;
  };
  /// The part of the command's byte range that lies in a page.
  [[nodiscard]] Part part_in_page(const IoCommand& command, std::uint64_t page) const {
    const std::uint64_t begin = page * geometry_.page_bytes;
    return {std::max(command.offset, begin),
            std::min(command.offset + command.bytes, begin + geometry_.page_bytes)};
  }
  [[nodiscard]] Server& link_to_device() { return links_.front(); }
  [[nodiscard]] Server& link_to_host() { return links_.back(); }

  Simulation& simulation_;
  const Geometry geometry_;
  DeviceLimits limits_;
  const std::uint64_t read_unit_bytes_;
  const SimTime command_latency_;
  const SimTime command_overhead_;
  const SimTime read_time_;
  const SimTime program_time_;
  const double channel_mb_s_;
  const double link_mb_s_;

  Server controller_;
  std::vector<Server> channels_;
  std::vector<Server> dies_;
  std::vector<Server> links_;  ///< one for both directions where the link is half duplex

  Fifo<Submission> host_queue_;
  std::vector<Slot> slots_;  ///< queue_depth of them
  std::vector<std::uint16_t> free_slots_;

  Fifo<std::uint16_t> writes_;       ///< that wait for room in the buffer
  std::uint64_t buffer_free_ = 0;    ///< bytes
  std::uint64_t buffer_filled_ = 0;  ///< bytes that no program operation has taken yet
  std::uint64_t next_stripe_ = 0;    ///< where the next program operation goes
  DeviceCounters counters_;
};

UserError bad_value(const Arguments& arguments, const char* name, const std::string& allowed) {
  return {arguments.place(name), "found " + std::to_string(arguments.integer(name)), allowed};
}

void check_multiple(const Arguments& arguments, const char* name, const char* divisor_name) {
  const std::int64_t divisor = arguments.integer(divisor_name);
  if (arguments.integer(name) % divisor != 0) {
    throw bad_value(arguments, name,
                    std::string("a multiple of ") + divisor_name + " = " + std::to_string(divisor));
  }
}

FlashDevice::FlashDevice(const Arguments& arguments, const Context& context)
    : simulation_(context.simulation),
      geometry_(arguments),
      limits_{static_cast<std::uint32_t>(arguments.integer("logical_block_bytes")),
              static_cast<std::uint32_t>(arguments.integer("max_transfer_bytes")),
              static_cast<std::uint32_t>(arguments.integer("queue_depth"))},
      read_unit_bytes_(static_cast<std::uint64_t>(arguments.integer("read_unit_bytes"))),
      command_latency_(from_us(arguments.real("command_latency_us"))),
      command_overhead_(from_us(arguments.real("command_overhead_us"))),
      read_time_(from_us(arguments.real("read_us"))),
      program_time_(from_us(arguments.real("program_us"))),
      channel_mb_s_(arguments.real("channel_mb_s")),
      link_mb_s_(arguments.real("link_mb_s")),
      controller_(simulation_),
      channels_(geometry_.channels, Server(simulation_)),
      dies_(geometry_.channels * geometry_.dies_per_channel, Server(simulation_)),
      links_(arguments.text("link_duplex") == "full" ? 2 : 1, Server(simulation_)),
      slots_(limits_.queue_depth),
      buffer_free_(static_cast<std::uint64_t>(arguments.integer("write_buffer_bytes"))) {
  check_multiple(arguments, "page_bytes", "logical_block_bytes");
  check_multiple(arguments, "page_bytes", "read_unit_bytes");
  check_multiple(arguments, "max_transfer_bytes", "logical_block_bytes");
  if (buffer_free_ < geometry_.stripe_bytes()) {
    throw bad_value(arguments, "write_buffer_bytes",
                    "at least one program operation, page_bytes x planes x program_pages = " +
                        std::to_string(geometry_.stripe_bytes()));
  }
  for (std::uint32_t slot = limits_.queue_depth; slot > 0; --slot) {
    free_slots_.push_back(static_cast<std::uint16_t>(slot - 1));
  }
}

void FlashDevice::submit(const IoCommand& command, EventHandler& done, std::uint64_t argument) {
  if (command.bytes == 0 || command.bytes > limits_.max_transfer_bytes ||
      command.bytes % limits_.logical_block_bytes != 0 ||
      command.offset % limits_.logical_block_bytes != 0) {
    throw std::logic_error("a command breaks the limits of the device");
  }
  host_queue_.push({command, &done, argument});
  admit();
}

void FlashDevice::admit() {
  while (!host_queue_.empty() && !free_slots_.empty()) {
    const std::uint16_t slot = free_slots_.back();
    free_slots_.pop_back();
    slots_[slot].submission = host_queue_.front();
    host_queue_.pop();
    simulation_.schedule(simulation_.now() + command_latency_, *this,
                         pack(Stage::kArrived, slot, 0));
  }
}

void FlashDevice::on_event(std::uint64_t argument) {
  const auto event = std::bit_cast<Event>(argument);
  switch (event.stage) {
    case Stage::kArrived:
      controller_.use(command_overhead_, *this, pack(Stage::kDecoded, event.slot, 0));
      break;
    case Stage::kDecoded:
      if (command(event.slot).write) {
        slots_[event.slot].to_buffer = slots_[event.slot].left = command(event.slot).bytes;
        writes_.push(event.slot);
        fill_buffer();
      } else {
        sense(event.slot);
      }
      break;
    case Stage::kSensed:
      send_off_channel(event.slot, event.value);
      break;
    case Stage::kOffChannel:
      deliver(event.slot, event.value);
      break;
    case Stage::kDelivered:
      if (--slots_[event.slot].left == 0) complete(event.slot);
      break;
    case Stage::kBuffered:
      buffered(event.slot, event.value);
      break;
    case Stage::kAtDie:
      dies_[event.value].use(program_time_, *this, pack(Stage::kProgrammed, 0, 0));
      break;
    case Stage::kProgrammed:
      buffer_free_ += geometry_.stripe_bytes();
      counters_.flash_write_bytes += geometry_.stripe_bytes();
      fill_buffer();
      break;
  }
}

void FlashDevice::sense(std::uint16_t slot) {
  const IoCommand& read = command(slot);
  const std::uint64_t first = geometry_.group_of_page(first_page(read));
  const std::uint64_t last = geometry_.group_of_page(last_page(read));
  slots_[slot].left = static_cast<std::uint32_t>(last_page(read) - first_page(read) + 1);
  for (std::uint64_t group = first; group <= last; ++group) {
    Server& die = dies_[geometry_.die_of_stripe(geometry_.stripe_of_group(group))];
    die.use(read_time_, *this,
            pack(Stage::kSensed, slot, static_cast<std::uint32_t>(group - first)));
  }
}

void FlashDevice::send_off_channel(std::uint16_t slot, std::uint32_t group_in_command) {
  const IoCommand& read = command(slot);
  const std::uint64_t first = first_page(read);
  const std::uint64_t group = geometry_.group_of_page(first) + group_in_command;
  Server& channel = channels_[geometry_.channel_of_stripe(geometry_.stripe_of_group(group))];
  const std::uint64_t begin = std::max(first, group * geometry_.planes);
  const std::uint64_t end = std::min(last_page(read) + 1, (group + 1) * geometry_.planes);
  for (std::uint64_t page = begin; page < end; ++page) {
    const Part part = part_in_page(read, page);
    const std::uint64_t bytes =
        (part.end + read_unit_bytes_ - 1) / read_unit_bytes_ * read_unit_bytes_ -
        part.begin / read_unit_bytes_ * read_unit_bytes_;
    counters_.flash_read_bytes += bytes;
    channel.use(transfer_time(bytes, channel_mb_s_), *this,
                pack(Stage::kOffChannel, slot, static_cast<std::uint32_t>(page - first)));
  }
}

void FlashDevice::deliver(std::uint16_t slot, std::uint32_t page_in_command) {
  const IoCommand& read = command(slot);
  const Part part = part_in_page(read, first_page(read) + page_in_command);
  link_to_host().use(transfer_time(part.end - part.begin, link_mb_s_), *this,
                     pack(Stage::kDelivered, slot, 0));
}

// A write takes room page by page and crosses the link as it gets it, so that one larger than the
// buffer passes, too.
void FlashDevice::fill_buffer() {
  while (!writes_.empty() && buffer_free_ > 0) {
    const std::uint16_t slot = writes_.front();
    const std::uint64_t bytes =
        std::min({std::uint64_t{slots_[slot].to_buffer}, buffer_free_, geometry_.page_bytes});
    buffer_free_ -= bytes;
    slots_[slot].to_buffer -= static_cast<std::uint32_t>(bytes);
    if (slots_[slot].to_buffer == 0) writes_.pop();
    link_to_device().use(transfer_time(bytes, link_mb_s_), *this,
                         pack(Stage::kBuffered, slot, static_cast<std::uint32_t>(bytes)));
  }
}

void FlashDevice::buffered(std::uint16_t slot, std::uint32_t bytes) {
  buffer_filled_ += bytes;
  drain_buffer();
  slots_[slot].left -= bytes;
  if (slots_[slot].left == 0) complete(slot);
}

// Less than a stripe stays in the buffer: nothing forces it out.
void FlashDevice::drain_buffer() {
  while (buffer_filled_ >= geometry_.stripe_bytes()) {
    buffer_filled_ -= geometry_.stripe_bytes();
    const std::uint64_t stripe = next_stripe_++;
    channels_[geometry_.channel_of_stripe(stripe)].use(
        transfer_time(geometry_.stripe_bytes(), channel_mb_s_), *this,
        pack(Stage::kAtDie, 0, static_cast<std::uint32_t>(geometry_.die_of_stripe(stripe))));
  }
}

void FlashDevice::complete(std::uint16_t slot) {
  const Submission finished = slots_[slot].submission;
  if (finished.command.write) {
    ++counters_.write_commands;
    counters_.host_write_bytes += finished.command.bytes;
  } else {
    ++counters_.read_commands;
    counters_.host_read_bytes += finished.command.bytes;
  }
  free_slots_.push_back(slot);
  admit();
  finished.done->on_event(finished.argument);  // last: it may submit, or throw
}

constexpr double kMiB = 1024 * 1024;

const Registered<Device> kFlash{{
    .name = "flash",
    .help = "flash device: host queue, controller, dies, channels, link and write buffer",
    .source = "structure of NVMeVirt (FAST '23) and ConZone; equations in docs/device-model.md",
    .parameters =
        {
            integer_parameter("queue_depth", "commands", std::nullopt, {1, 65535},
                              "commands inside the device; further ones wait in the host"),
            integer_parameter("logical_block_bytes", "bytes", std::nullopt, {512, 65536},
                              "what offsets and sizes of commands are multiples of"),
            integer_parameter("max_transfer_bytes", "bytes", std::nullopt, {512, 64 * kMiB},
                              "largest command"),
            real_parameter("command_latency_us", "us", std::nullopt, {0, 1e6},
                           "host and firmware time of a command that occupies nothing"),
            real_parameter("command_overhead_us", "us", std::nullopt, {0, 1e6},
                           "controller time of a command, one at a time: caps IOPS"),
            integer_parameter("channels", "", std::nullopt, {1, 256}, "buses to the dies"),
            integer_parameter("dies_per_channel", "", std::nullopt, {1, 256},
                              "NAND dies that share a channel"),
            integer_parameter("planes", "", 1, {1, 64},
                              "pages of a die that are sensed or programmed together"),
            integer_parameter("program_pages", "pages", 1, {1, 64},
                              "pages of a plane in one program operation (3: one-shot TLC); the "
                              "stripe on a die is page_bytes x planes x program_pages"),
            integer_parameter("page_bytes", "bytes", std::nullopt, {512, kMiB}, "NAND page"),
            integer_parameter("read_unit_bytes", "bytes", std::nullopt, {512, kMiB},
                              "least that crosses a channel (an ECC codeword); page_bytes for a "
                              "device without sub-page reads"),
            real_parameter("read_us", "us", std::nullopt, {0, 1e6}, "array time to sense a page"),
            real_parameter("program_us", "us", std::nullopt, {0, 1e6},
                           "array time of a program operation"),
            real_parameter("channel_mb_s", "MB/s", std::nullopt, {0.001, 1e6},
                           "rate of one channel"),
            real_parameter("link_mb_s", "MB/s", std::nullopt, {0.001, 1e6},
                           "rate of the host link, after protocol overheads"),
            choice_parameter("link_duplex", {"full", "half"}, std::nullopt,
                             "full: reads and writes each have the link's rate; half: they share "
                             "it"),
            integer_parameter("write_buffer_bytes", "bytes", std::nullopt, {512, 1024 * kMiB},
                              "writes are acknowledged once they are in this buffer"),
        },
    .make = [](const Arguments& arguments, const Device::Context& context)
        -> std::unique_ptr<Device> { return std::make_unique<FlashDevice>(arguments, context); },
}};

}  // namespace
}  // namespace kvreplay
