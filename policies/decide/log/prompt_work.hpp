#pragma once

#include <cstdint>

namespace kvreplay {

/// What it costs to make the index of a prompt, beyond the model's own work. A cost that grows with
/// the prompt's length is told apart from one that grows with its square, so that it can be
/// projected to a longer prompt.
struct PromptWork {
  std::int64_t flops = 0;         ///< that grow with the length
  std::int64_t square_flops = 0;  ///< that grow with its square
  std::int64_t bytes = 0;         ///< read from DRAM
  /// Of `flops`, those of a factorisation, which few processors do at the rate of products.
  std::int64_t factorise_flops = 0;
  /// Of keys with centroids, over all iterations: what a clustering stores where it does not look
  /// for the nearest centroid while it multiplies. They grow with the square of the length where
  /// there are square_flops, else with the length.
  std::int64_t similarities = 0;
  /// No group is known before the whole prompt is: its entries wait in memory until then.
  bool whole_prompt = false;

  PromptWork& operator+=(const PromptWork& other) {
    flops += other.flops;
    square_flops += other.square_flops;
    bytes += other.bytes;
    factorise_flops += other.factorise_flops;
    similarities += other.similarities;
    whole_prompt = whole_prompt || other.whole_prompt;
    return *this;
  }
};

}  // namespace kvreplay
