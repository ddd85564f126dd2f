#pragma once

#include <cstdint>

#include "devices/flash/divisor.hpp"
#include "devices/flash/parameters.hpp"

namespace kvreplay::flash {

/// Where a byte lies. Consecutive pages fill a die's planes (a plane group: sensed together), then
/// the further pages that one program operation writes (a stripe: what the controller gathers
/// before it programs). Consecutive stripes go to the channels in turn, then to the dies of each.
struct Geometry {
  Divisor page_bytes;
  Divisor planes;
  Divisor program_pages;
  Divisor channels;
  std::uint64_t dies_per_channel;
  Divisor all_dies;

  explicit Geometry(const Arguments& arguments)
      : page_bytes(unsigned_of(arguments, "page_bytes")),
        planes(unsigned_of(arguments, "planes")),
        program_pages(unsigned_of(arguments, "program_pages")),
        channels(unsigned_of(arguments, "channels")),
        dies_per_channel(unsigned_of(arguments, "dies_per_channel")),
        all_dies(channels * dies_per_channel) {}

  [[nodiscard]] std::uint64_t group_of_page(std::uint64_t page) const { return page / planes; }
  [[nodiscard]] std::uint64_t stripe_of_group(std::uint64_t group) const {
    return group / program_pages;
  }
  [[nodiscard]] std::uint64_t dies() const { return all_dies; }
  [[nodiscard]] std::uint64_t die_of_stripe(std::uint64_t stripe) const {
    return stripe % all_dies;
  }
  [[nodiscard]] std::uint64_t channel_of_die(std::uint64_t die) const { return die % channels; }
  [[nodiscard]] std::uint64_t die_of_byte(std::uint64_t offset) const {
    return die_of_stripe(offset / stripe_bytes());
  }
  [[nodiscard]] std::uint64_t stripe_bytes() const { return page_bytes * planes * program_pages; }
};

}  // namespace kvreplay::flash
