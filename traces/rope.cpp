#include "traces/rope.hpp"

#include <cmath>
#include <utility>

#include "base/error.hpp"

namespace kvreplay {
namespace {

/// The pair as a point of the plane, rotated in the precision of `Real`.
template <typename Real>
void turn(float& first, float& second, Real cosine, Real sine) {
  const auto x = static_cast<Real>(first);
  const auto y = static_cast<Real>(second);
  first = static_cast<float>(x * cosine - y * sine);
  second = static_cast<float>(x * sine + y * cosine);
}

UserError refuse_scaling(const TraceInfo& info, const std::string& file,
                         const std::string& allowed) {
  return {{file, "/"}, "attribute 'rope_scaling' is '" + info.rope_scaling + "'", allowed};
}

void check_head_dim(const TraceInfo& info, const std::string& file) {
  if (info.head_dim % 2 == 0) return;
  throw UserError({file, "/"}, "attribute 'head_dim' is " + std::to_string(info.head_dim),
                  "an even number: pairs of dimensions rotate");
}

}  // namespace

RotaryEmbedding::RotaryEmbedding(const TraceInfo& info, const std::string& file)
    : RotaryEmbedding(info.rope_theta, info.rope_pairs == "interleaved", info.head_dim) {
  if (info.rope_scaling != "none") {
    throw refuse_scaling(info, file, "none: one plain embedding for all layers");
  }
  check_head_dim(info, file);
}

RotaryEmbedding::RotaryEmbedding(const TraceInfo& info, std::int64_t index, const std::string& file)
    : RotaryEmbedding(info.rope_theta_at(index), info.rope_pairs == "interleaved", info.head_dim) {
  if (!info.rope_known()) {
    throw refuse_scaling(info, file,
                         "none, by layer: the frequencies of a scaled embedding are not in the "
                         "trace");
  }
  check_head_dim(info, file);
}

RotaryEmbedding::RotaryEmbedding(double theta, bool interleaved, std::int64_t head_dim,
                                 std::span<const float> factors)
    : interleaved_(interleaved) {
  for (std::int64_t pair = 0; pair < head_dim / 2; ++pair) {
    const double exponent = -2 * static_cast<double>(pair) / static_cast<double>(head_dim);
    frequencies_.push_back(theta > 0 ? std::pow(theta, exponent) : 0);
  }
  for (std::size_t pair = 0; pair < factors.size(); ++pair) {
    frequencies_[pair] /= static_cast<double>(factors[pair]);
  }
}

void RotaryEmbedding::rotate(std::span<float> row, std::int64_t position) const {
  for (std::size_t pair = 0; pair < frequencies_.size(); ++pair) {
    const double angle = static_cast<double>(position) * frequencies_[pair];
    turn(row[first(pair)], row[second(pair)], std::cos(angle), std::sin(angle));
  }
}

RotaryTable::RotaryTable(RotaryEmbedding embedding, std::int64_t positions)
    : embedding_(std::move(embedding)) {
  for (std::int64_t position = 0; position < positions; ++position) {
    for (const double frequency : embedding_.frequencies()) {
      const double angle = static_cast<double>(position) * frequency;
      cosines_.push_back(static_cast<float>(std::cos(angle)));
      sines_.push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

void RotaryTable::rotate(std::span<float> row, std::int64_t position) const {
  const std::size_t pairs = embedding_.frequencies().size();
  const std::size_t begin = static_cast<std::size_t>(position) * pairs;
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    turn(row[embedding_.first(pair)], row[embedding_.second(pair)], cosines_[begin + pair],
         sines_[begin + pair]);
  }
}

}  // namespace kvreplay
