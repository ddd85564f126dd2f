#include "policies/kernels/coded_rows.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

#include "policies/kernels/dispatch.hpp"

namespace kvreplay::kernels {
namespace {

constexpr std::int64_t kPanelRows = 16;
constexpr std::int64_t kStepBytes = 64;

float largest_magnitude(const float* row, std::int64_t n) {
  float largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(row[i]));
  assert(std::isfinite(largest));
  return largest;
}

/// Rounds row[i] / scale to codes within +-most; returns their sum.
std::int32_t encode(const float* row, std::int64_t n, float scale, float most, std::int8_t* codes) {
  const float inverse = scale > 0 ? 1.0F / scale : 0.0F;
  std::int32_t sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const float level = std::clamp(row[i] * inverse, -most, most);
    // Adding 1.5 * 2^23 rounds to an integer, which stands in the sum's low bits.
    const auto code = std::bit_cast<std::int32_t>(level + 0x1.8p23F) - 0x4b400000;
    codes[i] = static_cast<std::int8_t>(code);
    sum += code;
  }
  return sum;
}

}  // namespace

CodedRows::CodedRows(std::int64_t dim, int bits)
    : dim_(dim),
      bits_(bits),
      steps_((dim * bits + 31) / 32),
      row_(static_cast<std::size_t>(steps_ * 32 / bits)) {
  assert(dim > 0 && (bits == 8 || bits == 4));
}

void CodedRows::resize(std::int64_t count) {
  const std::int64_t panels = (count + kPanelRows - 1) / kPanelRows;
  codes_.resize(static_cast<std::size_t>(panels * steps_ * kStepBytes));
  scales_.resize(static_cast<std::size_t>(panels * kPanelRows));
  count_ = count;
}

void CodedRows::set(std::int64_t n, const float* row) {
  assert(n >= 0 && n < count_);
  const float most = bits_ == 8 ? 127.0F : 7.0F;
  const Half scale = kvreplay::to_half(largest_magnitude(row, dim_) / most);
  scales_[static_cast<std::size_t>(n)] = scale;
  encode(row, dim_, kvreplay::to_float(scale), most, row_.data());
  std::uint8_t* to = codes_.data() + n / kPanelRows * steps_ * kStepBytes +
                     n % kPanelRows * kStepBytes / kPanelRows;
  const std::int8_t* from = row_.data();
  for (std::int64_t step = 0; step < steps_; ++step, to += kStepBytes) {
    for (int b = 0; b < 4; ++b) {
      to[b] = static_cast<std::uint8_t>(bits_ == 8 ? from[b] + 128
                                                   : (from[b] + 8) | (from[4 + b] + 8) << 4);
    }
    from += 32 / bits_;
  }
}

void CodedRows::score(const float* queries, std::int64_t query_count, const float* offsets,
                      float* scores, std::int64_t score_stride) {
  const std::int64_t padded = std::ssize(row_);
  queries_.assign(static_cast<std::size_t>(query_count * padded), 0);
  query_scales_.clear();
  query_sums_.clear();
  for (std::int64_t q = 0; q < query_count; ++q) {
    const float* const query = queries + q * dim_;
    // A scale of its own below the smallest normal float has no reciprocal.
    const float largest = largest_magnitude(query, dim_);
    query_scales_.push_back(largest < 1e-30F ? 0.0F : largest / 127.0F);
    query_sums_.push_back(
        encode(query, dim_, query_scales_.back(), 127.0F, queries_.data() + q * padded));
  }
  const CodedQueries coded{queries_.data(), query_scales_.data(), query_sums_.data(), offsets,
                           query_count};
  const CodedPanels panels{codes_.data(), scales_.data(), count_, steps_};
  (bits_ == 8 ? integer_table().score8 : integer_table().score4)(coded, panels, scores,
                                                                 score_stride);
}

}  // namespace kvreplay::kernels
