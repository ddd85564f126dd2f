#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "traces/trace.hpp"

namespace kvreplay {

/// Rotary position embedding: pair i of a vector turns by position * theta^(-2i / head_dim).
/// (Su et al. 2021)
class RotaryEmbedding {
 public:
  /// Of a trace's keys and queries. A scaled embedding (rope_scaling other than "none") has
  /// frequencies that a trace does not say: UserError, which names `file`.
  RotaryEmbedding(const TraceInfo& info, const std::string& file);
  /// Of the layer at `index` in recorded_layers, which may have a base of its own or no RoPE.
  RotaryEmbedding(const TraceInfo& info, std::int64_t index, const std::string& file);
  /// `theta` 0 turns nothing. `factors`: [head_dim / 2] by which the frequencies are divided; empty
  /// without scaling.
  RotaryEmbedding(double theta, bool interleaved, std::int64_t head_dim,
                  std::span<const float> factors = {});

  /// Turns a row to `position`; by the negative position it turns back. In double precision.
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

/// The same for a running model, in single precision as models compute it: a decode step turns
/// thousands of vectors, for which sines and cosines of all positions are kept.
class RotaryTable {
 public:
  /// Of positions up to `positions` - 1.
  RotaryTable(RotaryEmbedding embedding, std::int64_t positions);

  void rotate(std::span<float> row, std::int64_t position) const;

 private:
  RotaryEmbedding embedding_;
  std::vector<float> cosines_;  // [positions, head_dim / 2]
  std::vector<float> sines_;    // [positions, head_dim / 2]
};

}  // namespace kvreplay
