#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "traces/trace.hpp"

namespace kvreplay {

/// Rotary position embedding: pair i of a vector rotates by position * theta^(-2i / head_dim). (Su
/// et al. 2021)
class RotaryEmbedding {
 public:
  /// Of a trace's keys and queries. Throws UserError, which names `file`, for a scaled embedding
  /// (rope_scaling other than "none"), because a trace does not state its frequencies.
  RotaryEmbedding(const TraceInfo& info, const std::string& file);
  /// Of the layer at `index` in recorded_layers, which may have a base of its own or no RoPE.
  RotaryEmbedding(const TraceInfo& info, std::int64_t index, const std::string& file);
  /// `theta` 0 rotates nothing. `factors`: [head_dim / 2], divisors of the frequencies; empty
  /// without scaling.
  RotaryEmbedding(double theta, bool interleaved, std::int64_t head_dim,
                  std::span<const float> factors = {});

  /// Rotates a row to `position`; the negative position rotates it back. In double precision.
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

/// The same for a running model, in single precision as models compute it. A decode step rotates
/// thousands of vectors, so sines and cosines of all positions are kept.
class RotaryTable {
 public:
  /// For positions up to `positions` - 1.
  RotaryTable(RotaryEmbedding embedding, std::int64_t positions);

  void rotate(std::span<float> row, std::int64_t position) const;

 private:
  RotaryEmbedding embedding_;
  std::vector<float> cosines_;  // [positions, head_dim / 2]
  std::vector<float> sines_;    // [positions, head_dim / 2]
};

}  // namespace kvreplay
