#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "base/engine/simulation.hpp"
#include "base/parameters.hpp"
#include "base/random.hpp"
#include "base/registry.hpp"

namespace kvreplay {

/// One command to a block device. Offset and size are multiples of logical_block_bytes, the size at
/// most max_transfer_bytes.
struct IoCommand {
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
  bool write = false;
};

/// What a host must know about a device to send it commands.
struct DeviceLimits {
  std::uint32_t logical_block_bytes = 4096;
  std::uint32_t max_transfer_bytes = 512 * 1024;
  std::uint32_t queue_depth = 32;
};

/// Throws std::logic_error for a command that breaks them: hosts build commands within them.
inline void check_command(const IoCommand& command, const DeviceLimits& limits) {
  if (command.bytes == 0 || command.bytes > limits.max_transfer_bytes ||
      command.bytes % limits.logical_block_bytes != 0 ||
      command.offset % limits.logical_block_bytes != 0) {
    throw std::logic_error("a command breaks the limits of the device");
  }
}

/// What the device has done since it was constructed.
struct DeviceCounters {
  std::uint64_t read_commands = 0;
  std::uint64_t write_commands = 0;
  std::uint64_t host_read_bytes = 0;  ///< bytes that crossed the link
  std::uint64_t host_write_bytes = 0;
  std::uint64_t flash_read_bytes = 0;   ///< bytes sensed in NAND for the host: whole pages, or
                                        ///< sub-pages where the device has them
  std::uint64_t map_read_bytes = 0;     ///< bytes of the address map sensed in NAND
  std::uint64_t sensed_pages = 0;       ///< pages sensed in NAND, for the host or by itself
  std::uint64_t flash_write_bytes = 0;  ///< bytes programmed, including those that the device moved
  std::uint64_t erases = 0;             ///< erases of one erase block on one die
  /// Of the bytes programmed, those in single-bit blocks, which will be programmed once more when
  /// they are folded into denser ones.
  std::uint64_t unfolded_bytes = 0;
  /// Bytes written beyond the modelled space, which wrapped round onto other ones: their cost is
  /// that of another workload.
  std::uint64_t wrapped_write_bytes = 0;

  /// Bytes programmed per byte that the host wrote; 0 before the first write.
  [[nodiscard]] double write_amplification() const {
    if (host_write_bytes == 0) return 0;
    return static_cast<double>(flash_write_bytes) / static_cast<double>(host_write_bytes);
  }
};

/// A modelled block device. Commands beyond the queue depth wait in the host in the order of
/// submission.
class Device {
 public:
  static constexpr std::string_view kRole = "device";
  static constexpr Stage kStage = Stage::kTime;
  struct Context {
    Simulation& simulation;
  };

  virtual ~Device() = default;
  /// Starts a command. `done.on_event(argument)` is called at the virtual time of its completion.
  virtual void submit(const IoCommand& command, EventHandler& done, std::uint64_t argument) = 0;
  /// Starts in the state after long random use of the first `range_bytes`: with the map entries
  /// that the device would then hold. Call before the first command.
  virtual void settle(std::uint64_t /*range_bytes*/, Random& /*random*/) {}
  /// Starts in the state in which writes arrive faster than they are stored: with a full write
  /// buffer. Call after settle() and before the first command.
  virtual void fill_write_buffer() {}
  /// Starts in the state after long use at the limits on its rates, with nothing left that it lets
  /// pass at once after a rest. Call before the first command, at virtual time 0.
  virtual void use_up_burst() {}
  [[nodiscard]] virtual DeviceLimits limits() const = 0;
  [[nodiscard]] virtual DeviceCounters counters() const = 0;
  /// Energy in nanojoules of everything that the device has done, after being on for this long; NaN
  /// where its parameters do not give the energy of its work.
  [[nodiscard]] virtual double energy_nj(SimTime /*on_ns*/) const {
    return std::numeric_limits<double>::quiet_NaN();
  }
  /// In degrees Celsius, after its last command; NaN where it has no thermal model.
  [[nodiscard]] virtual double temperature_c() const {
    return std::numeric_limits<double>::quiet_NaN();
  }
};

}  // namespace kvreplay
