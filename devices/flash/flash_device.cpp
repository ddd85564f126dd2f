// The model of a flash device: a queue in the host, then servers that a command and its pages pass,
// first come first served unless configured otherwise. docs/device-model.md gives its equations.
//
//   read:   latency -> controller -> [map] -> die (sense) -> channel -> link
//   write:  latency -> controller -> [rest of its units] -> link -> buffer, then done; the buffer
//           drains by channel -> die (program)
//
// The structure (firmware, die, channel and link time, page by page; writes acknowledged from a
// buffer) is that of NVMeVirt (Kim et al., FAST '23) and ConZone. What happens inside a mechanism
// is in devices/flash, one header each, in the order in which a command meets them: service_order,
// map_cache, partial_writes, die (with page registers and suspension), read_retry, write_booster,
// garbage_collector, thermal. Each is off by default, and then costs no event and no time.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/engine/server.hpp"
#include "devices/device.hpp"
#include "devices/endurance.hpp"
#include "devices/flash/die.hpp"
#include "devices/flash/energy.hpp"
#include "devices/flash/fifo.hpp"
#include "devices/flash/garbage_collector.hpp"
#include "devices/flash/geometry.hpp"
#include "devices/flash/map_cache.hpp"
#include "devices/flash/parameters.hpp"
#include "devices/flash/partial_writes.hpp"
#include "devices/flash/read_retry.hpp"
#include "devices/flash/service_order.hpp"
#include "devices/flash/thermal.hpp"
#include "devices/flash/write_booster.hpp"

namespace kvreplay::flash {
namespace {

class FlashDevice final : public Device, private EventHandler {
 public:
  FlashDevice(const Arguments& arguments, const Context& context);

  void submit(const IoCommand& command, EventHandler& done, std::uint64_t argument) override;
  void settle(std::uint64_t range_bytes, Random& random) override {
    if (map_cache_.enabled()) map_cache_.settle(range_bytes, random);
  }
  void fill_write_buffer() override;
  [[nodiscard]] DeviceLimits limits() const override { return limits_; }
  [[nodiscard]] DeviceCounters counters() const override {
    DeviceCounters counters = counters_;
    counters.wrapped_write_bytes = collector_.wrapped_bytes();
    counters.unfolded_bytes = booster_.used_bytes();
    return counters;
  }
  [[nodiscard]] double energy_nj(SimTime on_ns) const override {
    return energy_.nj(counters_, on_ns);
  }
  [[nodiscard]] double temperature_c() const override {
    return thermal_.enabled() ? thermal_.temperature_c() : Device::temperature_c();
  }

 private:
  struct Submission {
    IoCommand command;
    EventHandler* done = nullptr;
    std::uint64_t argument = 0;
  };

  /// A command inside the device.
  struct Slot {
    Submission submission;
    std::uint64_t rewritten = 0;  ///< write: bytes read from flash, without room in the buffer yet
    std::uint32_t to_buffer = 0;  ///< write: bytes of the host without room in the buffer yet
    std::uint32_t left = 0;       ///< read: pages, write: bytes, that have not yet crossed the link
    std::uint32_t lookups = 0;    ///< reads that must be done first: of the map, or of units
  };

  /// Says what has just happened; passed as the argument of an event.
  enum class Stage : std::uint16_t {
    kArrived,     ///< a command at the controller
    kDecoded,     ///< a command, by the controller
    kMapSensed,   ///< a line of the map, in the page registers of its die
    kMapRead,     ///< a line of the map, in the controller
    kUnitSensed,  ///< a unit that a write covers in part, in the page registers
    kUnitRead,    ///< a unit that a write covers in part, in the controller
    kSensed,      ///< a read's plane group, in the page registers of its die
    kOffChannel,  ///< a read's page, in the controller
    kDelivered,   ///< a read's page, in the host
    kBuffered,    ///< a write's bytes, in the buffer
    kAtDie,       ///< a stripe to program, in the page registers of its die
    kProgrammed,  ///< a stripe
    kMoveSensed,  ///< a stripe of valid units in a block to be erased
    kErased,      ///< the blocks of a die
  };
  /// Kind of stripe to program; its events carry it in place of the slot.
  enum StripeKind : std::uint16_t { kDense, kBoosted, kMoved };
  struct Event {
    std::uint32_t value;  ///< group, page or line (counted from the command's first), bytes, or die
    std::uint16_t slot;
    Stage stage;
  };
  static_assert(sizeof(Event) == sizeof(std::uint64_t));
  [[nodiscard]] static std::uint64_t pack(Stage stage, std::uint16_t slot, std::uint32_t value) {
    return std::bit_cast<std::uint64_t>(Event{value, slot, stage});
  }

  void on_event(std::uint64_t argument) override;

  void admit();
  void look_up(std::uint16_t slot);
  void move_line(std::uint16_t slot, std::uint32_t line);
  void take_line(std::uint16_t slot, std::uint32_t line);
  void sense(std::uint16_t slot);
  void send_off_channel(std::uint16_t slot, std::uint32_t group);
  void deliver(std::uint16_t slot, std::uint32_t page);
  void start_write(std::uint16_t slot);
  void queue_write(std::uint16_t slot);
  void fill_buffer();
  void buffered(std::uint16_t slot, std::uint32_t bytes);
  void drain_buffer();
  void collect_garbage();
  void to_die(std::uint64_t die, StripeKind kind, std::uint64_t transfers);
  void program(std::uint64_t die, StripeKind kind);
  void programmed(StripeKind kind);
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
  /// Those of the command's pages that lie in one plane group.
  [[nodiscard]] PageRange pages_in_group(const IoCommand& command, std::uint64_t group) const {
    return {std::max(first_page(command), group * geometry_.planes),
            std::min(last_page(command) + 1, (group + 1) * geometry_.planes)};
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
  /// The read units that the given part of a page touches.
  [[nodiscard]] std::uint64_t channel_bytes(const Part& part) const {
    return (part.end + read_unit_bytes_ - 1) / read_unit_bytes_ * read_unit_bytes_ -
           part.begin / read_unit_bytes_ * read_unit_bytes_;
  }
  [[nodiscard]] SimTime on_channel(std::uint64_t bytes) {
    return channel_time_.of(bytes, thermal_.rate(channel_mb_s_));
  }
  [[nodiscard]] OrderedServer& channel_of_die(std::uint64_t die) {
    return channels_[geometry_.channel_of_die(die)];
  }
  [[nodiscard]] bool idle() const { return free_slots_.size() == slots_.size() && programs_ == 0; }
  [[nodiscard]] OrderedServer& link_to_device() { return links_.front(); }
  [[nodiscard]] OrderedServer& link_to_host() { return links_.back(); }

  Simulation& simulation_;
  const Geometry geometry_;
  DeviceLimits limits_;
  const Divisor read_unit_bytes_;
  const SimTime command_latency_;
  const SimTime command_overhead_;
  const SimTime write_latency_;
  const SimTime write_overhead_;
  const SimTime read_time_;
  const SimTime program_time_;
  const double channel_mb_s_;
  const double link_mb_s_;
  const double write_link_mb_s_;
  TransferTime channel_time_;
  TransferTime read_time_on_link_;
  TransferTime write_time_on_link_;

  ServiceOrder order_;
  Server controller_;
  std::vector<OrderedServer> channels_;
  std::vector<Die> dies_;
  std::vector<OrderedServer> links_;  ///< one for both directions where the link is half duplex

  Fifo<Submission> host_queue_;
  std::vector<Slot> slots_;  ///< queue_depth of them
  std::vector<std::uint16_t> free_slots_;

  Fifo<std::uint16_t> writes_;       ///< waiting for room in the buffer
  std::uint64_t buffer_free_ = 0;    ///< bytes
  std::uint64_t buffer_filled_ = 0;  ///< bytes that no program operation has taken yet
  std::uint64_t next_stripe_ = 0;    ///< target of the next program operation
  std::uint64_t next_move_ = 0;      ///< where garbage collection works next
  std::uint64_t next_erase_ = 0;
  std::uint64_t programs_ = 0;  ///< begun and not ended, for the host's stripes
  SimTime idle_since_ = 0;
  DeviceCounters counters_;

  MapCache map_cache_;
  PartialWrites partial_writes_;
  ReadRetry retry_;
  WriteBooster booster_;
  GarbageCollector collector_;
  Thermal thermal_;
  Energy energy_;
};

/// Rejects sizes that do not divide, before anything is computed from them.
const Arguments& checked(const Arguments& arguments) {
  check_multiple(arguments, "page_bytes", "logical_block_bytes");
  check_multiple(arguments, "page_bytes", "read_unit_bytes");
  check_multiple(arguments, "max_transfer_bytes", "logical_block_bytes");
  return arguments;
}

FlashDevice::FlashDevice(const Arguments& arguments, const Context& context)
    : simulation_(context.simulation),
      geometry_(checked(arguments)),
      limits_{static_cast<std::uint32_t>(arguments.integer("logical_block_bytes")),
              static_cast<std::uint32_t>(arguments.integer("max_transfer_bytes")),
              static_cast<std::uint32_t>(
                  arguments.flag("command_queue") ? arguments.integer("queue_depth") : 1)},
      read_unit_bytes_(static_cast<std::uint64_t>(arguments.integer("read_unit_bytes"))),
      command_latency_(from_us(arguments.real("command_latency_us"))),
      command_overhead_(from_us(arguments.real("command_overhead_us"))),
      write_latency_(from_us(of_write(arguments, "write_latency_us", "command_latency_us"))),
      write_overhead_(from_us(of_write(arguments, "write_overhead_us", "command_overhead_us"))),
      read_time_(from_us(arguments.real("read_us"))),
      program_time_(from_us(arguments.real("program_us"))),
      channel_mb_s_(arguments.real("channel_mb_s")),
      link_mb_s_(arguments.real("link_mb_s")),
      write_link_mb_s_(of_write(arguments, "write_link_mb_s", "link_mb_s")),
      order_(arguments),
      controller_(simulation_),
      channels_(geometry_.channels, OrderedServer(simulation_, order_)),
      dies_(geometry_.dies(),
            Die(simulation_, Suspension(arguments), PageRegister(arguments), order_)),
      links_(arguments.text("link_duplex") == "full" ? 2 : 1, OrderedServer(simulation_, order_)),
      slots_(limits_.queue_depth),
      buffer_free_(unsigned_of(arguments, "write_buffer_bytes")),
      map_cache_(arguments),
      partial_writes_(arguments),
      retry_(arguments),
      booster_(arguments, geometry_),
      collector_(arguments, geometry_),
      thermal_(arguments),
      energy_(arguments, geometry_) {
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
  check_command(command, limits_);
  host_queue_.push({command, &done, argument});
  admit();
}

void FlashDevice::admit() {
  if (booster_.enabled() && !host_queue_.empty() && idle()) {
    const std::uint64_t folded = booster_.fold(simulation_.now() - idle_since_);
    counters_.flash_write_bytes += folded;
    counters_.sensed_pages += folded / geometry_.page_bytes;
  }
  if (thermal_.enabled()) thermal_.heat(0, simulation_.now());
  while (!host_queue_.empty() && !free_slots_.empty()) {
    const std::uint16_t slot = free_slots_.back();
    free_slots_.pop_back();
    slots_[slot].submission = host_queue_.front();
    host_queue_.pop();
    const SimTime latency = command(slot).write ? write_latency_ : command_latency_;
    simulation_.schedule(simulation_.now() + latency, *this, pack(Stage::kArrived, slot, 0));
  }
}

void FlashDevice::on_event(std::uint64_t argument) {
  const auto event = std::bit_cast<Event>(argument);
  switch (event.stage) {
    case Stage::kArrived:
      controller_.use(command(event.slot).write ? write_overhead_ : command_overhead_, *this,
                      pack(Stage::kDecoded, event.slot, 0));
      break;
    case Stage::kDecoded:
      if (command(event.slot).write) {
        start_write(event.slot);
      } else if (map_cache_.enabled()) {
        look_up(event.slot);
      } else {
        sense(event.slot);
      }
      break;
    case Stage::kMapSensed:
      move_line(event.slot, event.value);
      break;
    case Stage::kMapRead:
      take_line(event.slot, event.value);
      break;
    case Stage::kUnitSensed:
      channel_of_die(event.value)
          .use(on_channel(partial_writes_.unit_bytes()), *this,
               pack(Stage::kUnitRead, event.slot, 0));
      break;
    case Stage::kUnitRead:
      if (--slots_[event.slot].lookups == 0) queue_write(event.slot);
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
      program(event.value, static_cast<StripeKind>(event.slot));
      break;
    case Stage::kProgrammed:
      programmed(static_cast<StripeKind>(event.slot));
      break;
    case Stage::kMoveSensed:
      to_die(event.value, kMoved, 2);  // to the controller, which corrects errors, and back
      break;
    case Stage::kErased:
      break;
  }
}

// First the map lines that the command needs and the cache does not hold, then the command's data.
void FlashDevice::look_up(std::uint16_t slot) {
  const IoCommand& read = command(slot);
  const std::uint64_t first = map_cache_.line_of_byte(read.offset);
  const std::uint64_t last = map_cache_.line_of_byte(read.offset + read.bytes - 1);
  slots_[slot].lookups = 0;
  for (std::uint64_t line = first; line <= last; ++line) {
    if (map_cache_.touch(line)) continue;
    ++slots_[slot].lookups;
    ++counters_.sensed_pages;
    dies_[geometry_.die_of_stripe(line)].sense(
        read_time_ + retry_.extra(), *this,
        pack(Stage::kMapSensed, slot, static_cast<std::uint32_t>(line - first)));
  }
  if (slots_[slot].lookups == 0) sense(slot);
}

void FlashDevice::move_line(std::uint16_t slot, std::uint32_t line_in_command) {
  const std::uint64_t line = map_cache_.line_of_byte(command(slot).offset) + line_in_command;
  const std::uint64_t bytes = channel_bytes({0, map_cache_.line_bytes()});
  counters_.map_read_bytes += bytes;
  channel_of_die(geometry_.die_of_stripe(line))
      .use(on_channel(bytes), *this, pack(Stage::kMapRead, slot, line_in_command));
}

void FlashDevice::take_line(std::uint16_t slot, std::uint32_t line_in_command) {
  map_cache_.insert(map_cache_.line_of_byte(command(slot).offset) + line_in_command);
  if (--slots_[slot].lookups == 0) sense(slot);
}

void FlashDevice::sense(std::uint16_t slot) {
  const IoCommand& read = command(slot);
  const std::uint64_t first = geometry_.group_of_page(first_page(read));
  const std::uint64_t last = geometry_.group_of_page(last_page(read));
  slots_[slot].left = static_cast<std::uint32_t>(last_page(read) - first_page(read) + 1);
  for (std::uint64_t group = first; group <= last; ++group) {
    Die& die = dies_[geometry_.die_of_stripe(geometry_.stripe_of_group(group))];
    const std::uint64_t event =
        pack(Stage::kSensed, slot, static_cast<std::uint32_t>(group - first));
    const PageRange pages = pages_in_group(read, group);
    if (die.will_hold(pages)) {
      die.reuse(*this, event);
      continue;
    }
    counters_.sensed_pages += pages.end - pages.begin;
    die.sense(pages, read_time_ + retry_.extra(), *this, event);
  }
}

void FlashDevice::send_off_channel(std::uint16_t slot, std::uint32_t group_in_command) {
  const IoCommand& read = command(slot);
  const std::uint64_t first = first_page(read);
  const std::uint64_t group = geometry_.group_of_page(first) + group_in_command;
  OrderedServer& channel =
      channel_of_die(geometry_.die_of_stripe(geometry_.stripe_of_group(group)));
  const PageRange pages = pages_in_group(read, group);
  for (std::uint64_t page = pages.begin; page < pages.end; ++page) {
    const std::uint64_t bytes = channel_bytes(part_in_page(read, page));
    counters_.flash_read_bytes += bytes;
    channel.use(on_channel(bytes), *this,
                pack(Stage::kOffChannel, slot, static_cast<std::uint32_t>(page - first)));
  }
}

void FlashDevice::deliver(std::uint16_t slot, std::uint32_t page_in_command) {
  const IoCommand& read = command(slot);
  const Part part = part_in_page(read, first_page(read) + page_in_command);
  link_to_host().use(read_time_on_link_.of(part.end - part.begin, thermal_.rate(link_mb_s_)), *this,
                     pack(Stage::kDelivered, slot, 0));
}

void FlashDevice::start_write(std::uint16_t slot) {
  const IoCommand& write = command(slot);
  const PartialWrites::Extra extra = partial_writes_.add(write.offset, write.bytes);
  if (collector_.enabled()) collector_.host_writes(extra.first_unit, extra.new_units);
  // A unit is assumed to lie on one die, whatever its size.
  const auto unit_groups = static_cast<SimTime>(std::max<std::uint64_t>(
      1, partial_writes_.unit_bytes() / (geometry_.planes * geometry_.page_bytes)));
  slots_[slot].rewritten = extra.rewritten_bytes;
  slots_[slot].lookups = extra.reads;
  for (std::uint32_t i = 0; i < extra.reads; ++i) {
    const std::uint64_t die = geometry_.die_of_byte(extra.units[i] * partial_writes_.unit_bytes());
    counters_.flash_read_bytes += partial_writes_.unit_bytes();
    counters_.sensed_pages +=
        std::max<std::uint64_t>(1, partial_writes_.unit_bytes() / geometry_.page_bytes);
    dies_[die].sense(unit_groups * read_time_ + retry_.extra(), *this,
                     pack(Stage::kUnitSensed, slot, static_cast<std::uint32_t>(die)));
  }
  if (extra.reads == 0) queue_write(slot);
}

void FlashDevice::queue_write(std::uint16_t slot) {
  slots_[slot].to_buffer = slots_[slot].left = command(slot).bytes;
  writes_.push(slot);
  fill_buffer();
}

// As if this many bytes had been written sequentially.
void FlashDevice::fill_write_buffer() {
  const std::uint64_t unit = partial_writes_.unit_bytes();
  if (collector_.enabled()) collector_.host_writes(0, (buffer_free_ + unit - 1) / unit);
  buffer_filled_ += buffer_free_;
  buffer_free_ = 0;
  drain_buffer();
}

// A write takes room page by page and crosses the link as it gets it, so that a write larger than
// the buffer also passes. Data read from flash for it is already in the controller.
void FlashDevice::fill_buffer() {
  while (!writes_.empty() && buffer_free_ > 0) {
    const std::uint16_t slot = writes_.front();
    if (slots_[slot].rewritten > 0) {
      const std::uint64_t bytes = std::min(slots_[slot].rewritten, buffer_free_);
      buffer_free_ -= bytes;
      slots_[slot].rewritten -= bytes;
      buffer_filled_ += bytes;
      drain_buffer();
      continue;
    }
    const std::uint64_t bytes =
        std::min<std::uint64_t>({slots_[slot].to_buffer, buffer_free_, geometry_.page_bytes});
    buffer_free_ -= bytes;
    slots_[slot].to_buffer -= static_cast<std::uint32_t>(bytes);
    if (slots_[slot].to_buffer == 0) writes_.pop();
    link_to_device().use(write_time_on_link_.of(bytes, thermal_.rate(write_link_mb_s_)), *this,
                         pack(Stage::kBuffered, slot, static_cast<std::uint32_t>(bytes)));
  }
}

void FlashDevice::buffered(std::uint16_t slot, std::uint32_t bytes) {
  buffer_filled_ += bytes;
  drain_buffer();
  slots_[slot].left -= bytes;
  if (slots_[slot].left == 0) complete(slot);
}

// Less than a stripe stays in the buffer: nothing flushes it.
void FlashDevice::drain_buffer() {
  while (buffer_filled_ >= geometry_.stripe_bytes()) {
    buffer_filled_ -= geometry_.stripe_bytes();
    ++programs_;
    if (collector_.enabled()) collect_garbage();
    const StripeKind kind = booster_.enabled() && booster_.take_stripe() ? kBoosted : kDense;
    to_die(geometry_.die_of_stripe(next_stripe_++), kind, 1);
  }
}

void FlashDevice::collect_garbage() {
  collector_.place_stripe();
  const GarbageCollector::Work work = collector_.take_work();
  counters_.sensed_pages += work.stripes * geometry_.stripe_bytes() / geometry_.page_bytes;
  for (std::uint64_t i = 0; i < work.stripes; ++i) {
    const std::uint64_t die = geometry_.die_of_stripe(next_move_++);
    dies_[die].sense(static_cast<SimTime>(geometry_.program_pages) * read_time_, *this,
                     pack(Stage::kMoveSensed, 0, static_cast<std::uint32_t>(die)));
  }
  for (std::uint64_t i = 0; i < work.erases; ++i) {
    ++counters_.erases;
    dies_[geometry_.die_of_stripe(next_erase_++)].modify(collector_.erase_time(), *this,
                                                         pack(Stage::kErased, 0, 0));
  }
}

/// A stripe crosses the channel `transfers` times, and is then programmed.
void FlashDevice::to_die(std::uint64_t die, StripeKind kind, std::uint64_t transfers) {
  channel_of_die(die).use(on_channel(transfers * geometry_.stripe_bytes()), *this,
                          pack(Stage::kAtDie, kind, static_cast<std::uint32_t>(die)));
}

void FlashDevice::program(std::uint64_t die, StripeKind kind) {
  dies_[die].modify(kind == kBoosted ? booster_.program_time() : program_time_, *this,
                    pack(Stage::kProgrammed, kind, 0));
}

void FlashDevice::programmed(StripeKind kind) {
  counters_.flash_write_bytes += geometry_.stripe_bytes();
  if (kind == kMoved) return;
  --programs_;
  buffer_free_ += geometry_.stripe_bytes();
  fill_buffer();
  if (idle()) idle_since_ = simulation_.now();
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
  if (thermal_.enabled()) thermal_.heat(finished.command.bytes, simulation_.now());
  if (idle()) idle_since_ = simulation_.now();
  admit();
  finished.done->on_event(finished.argument);  // last, because it may submit or throw
}

std::vector<Parameter> parameters() {
  std::vector<Parameter> all{
      integer_parameter("queue_depth", "commands", std::nullopt, {1, 65535},
                        "commands inside the device; further ones wait in the host"),
      integer_parameter("logical_block_bytes", "bytes", std::nullopt, {512, 65536},
                        "offsets and sizes of commands are multiples of this"),
      integer_parameter("max_transfer_bytes", "bytes", std::nullopt, {512, 64 * kMiB},
                        "upper limit of a command's size"),
      real_parameter("command_latency_us", "us", std::nullopt, {0, 1e6},
                     "host and firmware time per command, during which no resource is busy"),
      real_parameter("command_overhead_us", "us", std::nullopt, {0, 1e6},
                     "controller time per command, one at a time: limits IOPS"),
      real_parameter("write_latency_us", "us", 0, {0, 1e6},
                     "command_latency_us for writes; 0: the same"),
      real_parameter("write_overhead_us", "us", 0, {0, 1e6},
                     "command_overhead_us for writes; 0: the same"),
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
                        "smallest transfer over a channel (an ECC codeword); page_bytes for a "
                        "device without sub-page reads"),
      real_parameter("read_us", "us", std::nullopt, {0, 1e6}, "array time to sense a page"),
      real_parameter("program_us", "us", std::nullopt, {0, 1e6},
                     "array time per program operation"),
      real_parameter("channel_mb_s", "MB/s", std::nullopt, {0.001, 1e6}, "rate of one channel"),
      real_parameter("link_mb_s", "MB/s", std::nullopt, {0.001, 1e6},
                     "rate of the host link, after protocol overheads"),
      real_parameter("write_link_mb_s", "MB/s", 0, {0, 1e6}, "link_mb_s for writes; 0: the same"),
      choice_parameter("link_duplex", {"full", "half"}, std::nullopt,
                       "full: reads and writes each have the link's rate; half: they share "
                       "it"),
      integer_parameter("write_buffer_bytes", "bytes", std::nullopt, {512, 1024 * kMiB},
                        "writes are acknowledged once they are in this buffer"),
      flag_parameter("command_queue", true,
                     "false: one command at a time, whatever the queue_depth (an eMMC or SD "
                     "host without command queueing)"),
  };
  for (const std::vector<Parameter>& mechanism :
       {ServiceOrder::parameters(), MapCache::parameters(), PartialWrites::parameters(),
        PageRegister::parameters(), Suspension::parameters(), ReadRetry::parameters(),
        WriteBooster::parameters(), GarbageCollector::parameters(), Thermal::parameters(),
        Energy::parameters(), endurance_parameters()}) {
    all.insert(all.end(), mechanism.begin(), mechanism.end());
  }
  return all;
}

const Registered<Device> kFlash{{
    .name = "flash",
    .help = "flash device: host queue, controller, dies, channels, link and write buffer",
    .source = "structure of NVMeVirt (FAST '23) and ConZone; equations in docs/device-model.md",
    .parameters = parameters(),
    .make = [](const Arguments& arguments, const Device::Context& context)
        -> std::unique_ptr<Device> { return std::make_unique<FlashDevice>(arguments, context); },
}};

}  // namespace
}  // namespace kvreplay::flash
