#pragma once

#include <cstdint>
#include <map>

#include "base/extent.hpp"

namespace kvreplay {

/// Free and taken ranges of a region that grows at its end. Space is taken first fit, from the
/// lowest offset up. Neighbouring free ranges merge.
class Space {
 public:
  [[nodiscard]] Extent take(std::uint64_t bytes);
  void give_back(Extent extent);
  /// The end of the highest range ever taken.
  [[nodiscard]] std::uint64_t region_bytes() const { return end_; }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  // bytes by offset
  std::uint64_t end_ = 0;
};

}  // namespace kvreplay
