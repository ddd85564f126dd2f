#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "traces/trace.hpp"

namespace kvreplay {

/// The rotary embedding of a trace's keys and queries: pair i of a vector rotates by position *
/// theta^(-2i / head_dim).
class RotaryEmbedding {
 public:
  /// A scaled embedding (rope_scaling other than "none") has frequencies that a trace does not
  /// contain: throws UserError, which names `file`.
  RotaryEmbedding(const TraceInfo& info, const std::string& file);
  RotaryEmbedding(double theta, bool interleaved, std::int64_t head_dim);

  /// Rotates a row to `position`; the negative position rotates it back.
  void rotate(std::span<float> row, std::int64_t position) const;

  /// Radians per position of each pair, falling.
  [[nodiscard]] std::span<const double> frequencies() const { return frequencies_; }
  /// The places in a row of the two members of pair i.
  [[nodiscard]] std::size_t first(std::size_t pair) const { return interleaved_ ? 2 * pair : pair; }
  [[nodiscard]] std::size_t second(std::size_t pair) const {
    return interleaved_ ? 2 * pair + 1 : pair + frequencies_.size();
  }

 private:
  bool interleaved_;
  std::vector<double> frequencies_;
};

}  // namespace kvreplay
