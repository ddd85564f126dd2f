#include "traces/rope.hpp"

#include <cmath>

#include "base/error.hpp"

namespace kvreplay {
namespace {

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

RotaryEmbedding::RotaryEmbedding(double theta, bool interleaved, std::int64_t head_dim)
    : interleaved_(interleaved) {
  for (std::int64_t pair = 0; pair < head_dim / 2; ++pair) {
    const double exponent = -2 * static_cast<double>(pair) / static_cast<double>(head_dim);
    frequencies_.push_back(theta > 0 ? std::pow(theta, exponent) : 0);
  }
}

void RotaryEmbedding::rotate(std::span<float> row, std::int64_t position) const {
  for (std::size_t pair = 0; pair < frequencies_.size(); ++pair) {
    const double angle = static_cast<double>(position) * frequencies_[pair];
    const double cosine = std::cos(angle);
    const double sine = std::sin(angle);
    float& a = row[first(pair)];
    float& b = row[second(pair)];
    const double x = a;
    const double y = b;
    a = static_cast<float>(x * cosine - y * sine);
    b = static_cast<float>(x * sine + y * cosine);
  }
}

}  // namespace kvreplay
