#include "devices/flash/garbage_collector.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace kvreplay::flash {
namespace {

/// Erased blocks held in reserve: collection needs one to append to while it empties another.
constexpr std::uint64_t kReserve = 2;

}  // namespace

std::vector<Parameter> GarbageCollector::parameters() {
  return {
      integer_parameter("gc_capacity_bytes", "bytes", 0, {0, 1024 * 1024 * kMiB},
                        "logical space, in which writes leave stale copies that garbage collection "
                        "reclaims; 0: no collection, every program finds an erased page"),
      real_parameter("gc_spare_percent", "%", 7, {0.1, 1000},
                     "physical space beyond the logical, in percent of the logical"),
      integer_parameter("gc_block_stripes", "stripes", 64, {1, 1e6},
                        "program operations that fill an erase block of a die"),
      real_parameter(
          "gc_prefilled_percent", "%", 100, {0, 100},
          "share of the logical space that is written, in order, before the first command"),
      real_parameter("erase_us", "us", 3500, {0, 1e6}, "array time per erase of a new device"),
      real_parameter("erase_aged_us", "us", 10000, {0, 1e6},
                     "array time per erase at the end of its life"),
      real_parameter("wear_percent", "%", 0, {0, 100},
                     "share of its life that the device has behind it"),
  };
}

GarbageCollector::GarbageCollector(const Arguments& arguments, const Geometry& geometry)
    : unit_bytes_(unsigned_of(arguments, "map_unit_bytes")),
      units_(unsigned_of(arguments, "gc_capacity_bytes") / unit_bytes_),
      stripe_units_(geometry.stripe_bytes() / unit_bytes_),
      block_units_(unsigned_of(arguments, "gc_block_stripes") * geometry.dies() * stripe_units_),
      dies_(geometry.dies()) {
  const double young = arguments.real("erase_us");
  const double aged = arguments.real("erase_aged_us");
  erase_time_ = from_us(young + (aged - young) * arguments.real("wear_percent") / 100);
  if (!enabled()) return;

  if (geometry.stripe_bytes() % unit_bytes_ != 0) {
    throw bad_value(arguments, "map_unit_bytes",
                    "with garbage collection, a divisor of page_bytes x planes x program_pages = " +
                        std::to_string(geometry.stripe_bytes()));
  }
  const double spare = arguments.real("gc_spare_percent") / 100;
  const auto blocks = static_cast<std::uint64_t>(
      std::floor(static_cast<double>(units_) * (1 + spare) / static_cast<double>(block_units_)));
  if (blocks * block_units_ < units_ + (kReserve + 2) * block_units_) {
    throw bad_value(arguments, "gc_spare_percent",
                    "enough for " + std::to_string(kReserve + 2) + " blocks of " +
                        std::to_string(block_units_ * unit_bytes_) +
                        " bytes beyond gc_capacity_bytes (gc_block_stripes on each die)");
  }
  if (blocks * block_units_ >= kNowhere) {
    throw bad_value(arguments, "gc_capacity_bytes",
                    "less than 2^32 units of map_unit_bytes with the spare space");
  }

  place_of_.assign(units_, kNowhere);
  unit_at_.assign(blocks * block_units_, 0);
  valid_.assign(blocks, 0);
  closed_.assign(blocks, false);
  for (std::uint64_t block = blocks; block > 1; --block) {
    free_.push_back(static_cast<std::uint32_t>(block - 1));
  }
  const auto prefilled = static_cast<std::uint64_t>(static_cast<double>(units_) *
                                                    arguments.real("gc_prefilled_percent") / 100);
  for (std::uint64_t unit = 0; unit < prefilled; ++unit) append(static_cast<std::uint32_t>(unit));
}

void GarbageCollector::host_writes(std::uint64_t first, std::uint64_t count) {
  const std::uint64_t room = units_ - std::min(first, units_);
  wrapped_units_ += count - std::min(count, room);
  for (std::uint64_t i = 0; i < count; ++i) {
    written_.push(static_cast<std::uint32_t>((first + i) % units_));
  }
}

void GarbageCollector::place_stripe() {
  for (std::uint64_t i = 0; i < stripe_units_; ++i) {
    if (written_.empty()) throw std::logic_error("a stripe of units that nobody wrote");
    append(written_.front());
    written_.pop();
    while (free_.size() < kReserve) collect();
  }
}

void GarbageCollector::append(std::uint32_t unit) {
  if (open_used_ == block_units_) open_block();
  if (place_of_[unit] != kNowhere) --valid_[place_of_[unit] / block_units_];
  const auto place = static_cast<std::uint32_t>(open_ * block_units_ + open_used_++);
  place_of_[unit] = place;
  unit_at_[place] = unit;
  ++valid_[open_];
}

void GarbageCollector::open_block() {
  closed_[open_] = true;
  open_ = free_.back();
  free_.pop_back();
  open_used_ = 0;
}

void GarbageCollector::collect() {
  std::uint32_t victim = open_;
  for (std::uint32_t block = 0; block < valid_.size(); ++block) {
    if (closed_[block] && (victim == open_ || valid_[block] < valid_[victim])) victim = block;
  }
  const std::uint64_t moved = valid_[victim];
  const std::uint64_t first = std::uint64_t{victim} * block_units_;
  for (std::uint64_t place = first; place < first + block_units_; ++place) {
    if (place_of_[unit_at_[place]] == place) append(unit_at_[place]);
  }
  closed_[victim] = false;
  free_.push_back(victim);

  moved_units_ += moved;
  erases_ += dies_;
  host_stripes_ += std::max<std::uint64_t>(1, (block_units_ - moved) / stripe_units_);
}

GarbageCollector::Work GarbageCollector::take_work() {
  const std::uint64_t stripes = moved_units_ / stripe_units_;
  const std::uint64_t left = std::max<std::uint64_t>(1, host_stripes_);
  const Work work{(stripes + left - 1) / left, (erases_ + left - 1) / left};
  moved_units_ -= work.stripes * stripe_units_;
  erases_ -= work.erases;
  host_stripes_ = left - 1;
  return work;
}

}  // namespace kvreplay::flash
