#pragma once

#include <cstdint>
#include <vector>

#include "devices/flash/fifo.hpp"
#include "devices/flash/geometry.hpp"
#include "devices/flash/parameters.hpp"

namespace kvreplay::flash {

/// Where each mapping unit lies on flash, which is only ever appended to. When free blocks run out,
/// the block with the fewest valid units is collected: these are appended again, and the block is
/// erased (greedy victim selection). This class keeps the books and hands out the resulting work in
/// portions, one per host stripe, so that collection and host writes progress together.
///
/// A block is an erase block of every plane of every die, written stripe by stripe. Logical bytes
/// beyond the capacity wrap round: a small device collects as a large one does, with the same spare
/// share and blocks.
class GarbageCollector {
 public:
  GarbageCollector(const Arguments& arguments, const Geometry& geometry);

  [[nodiscard]] static std::vector<Parameter> parameters();

  [[nodiscard]] bool enabled() const { return units_ > 0; }

  /// The host writes `count` units from `first`. Call before any stripe that holds them is placed.
  void host_writes(std::uint64_t first, std::uint64_t count);
  /// Programs the oldest units written by the host: as many as a stripe holds.
  void place_stripe();

  /// Work that is due before the next host stripe.
  struct Work {
    std::uint64_t stripes = 0;  ///< to sense, move over the channel and program again
    std::uint64_t erases = 0;   ///< each on one die
  };
  [[nodiscard]] Work take_work();

  /// Of what the host wrote, bytes beyond the capacity.
  [[nodiscard]] std::uint64_t wrapped_bytes() const { return wrapped_units_ * unit_bytes_; }

  /// Time of an erase on a die, at the device's age.
  [[nodiscard]] SimTime erase_time() const { return erase_time_; }

 private:
  static constexpr std::uint32_t kNowhere = 0xffffffffu;

  void append(std::uint32_t unit);
  void open_block();
  void collect();

  std::uint64_t unit_bytes_;
  std::uint64_t units_;         ///< logical; 0: switched off
  std::uint64_t stripe_units_;  ///< mapping units per stripe
  std::uint64_t block_units_;
  std::uint64_t dies_;
  SimTime erase_time_;

  Fifo<std::uint32_t> written_;  ///< written by the host, not yet in a stripe
  std::vector<std::uint32_t>
      place_of_;                        ///< by logical unit: where its valid copy lies, or kNowhere
  std::vector<std::uint32_t> unit_at_;  ///< by place: the logical unit that was written there
  std::vector<std::uint32_t> valid_;    ///< by block: units that are valid
  std::vector<bool> closed_;            ///< by block: written to its end, not erased
  std::vector<std::uint32_t> free_;     ///< erased blocks
  std::uint32_t open_ = 0;              ///< the block that takes units
  std::uint64_t open_used_ = 0;         ///< units in it

  std::uint64_t wrapped_units_ = 0;
  std::uint64_t moved_units_ = 0;   ///< not yet in a portion; less than a stripe may stay
  std::uint64_t erases_ = 0;        ///< not yet in a portion; counted per die
  std::uint64_t host_stripes_ = 0;  ///< host stripes over which the work above should be spread
};

}  // namespace kvreplay::flash
