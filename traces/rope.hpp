#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "traces/trace.hpp"

namespace kvreplay {

/// The rotary embedding of a trace's keys and queries: pair i of a vector turns by
/// position * theta^(-2i / head_dim).
class RotaryEmbedding {
 public:
  /// A scaled embedding (rope_scaling other than "none") has frequencies that a trace does not say:
  /// UserError, which names `file`.
  RotaryEmbedding(const TraceInfo& info, const std::string& file);
  /// Of the layer at `index` in recorded_layers, which may have a base of its own or no RoPE.
  RotaryEmbedding(const TraceInfo& info, std::int64_t index, const std::string& file);
  /// `theta` 0 turns nothing.
  RotaryEmbedding(double theta, bool interleaved, std::int64_t head_dim);

  /// Turns a row to `position`; by the negative position it turns back.
  void rotate(std::span<float> row, std::int64_t position) const;

  /// Radians a position of each pair, falling.
  [[nodiscard]] std::span<const double> frequencies() const { return frequencies_; }
  /// Where in a row the two members of pair i lie.
  [[nodiscard]] std::size_t first(std::size_t pair) const { return interleaved_ ? 2 * pair : pair; }
  [[nodiscard]] std::size_t second(std::size_t pair) const {
    return interleaved_ ? 2 * pair + 1 : pair + frequencies_.size();
  }

 private:
  bool interleaved_;
  std::vector<double> frequencies_;
};

}  // namespace kvreplay
