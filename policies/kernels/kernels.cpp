#include "policies/kernels/kernels.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <iterator>

#include "policies/kernels/dispatch.hpp"

namespace kvreplay::kernels {
namespace {

/// ln x for a normal x > 0, by basic double operations only: the C library's result differs between
/// machines.
double natural_log(float x) {
  int exponent = 0;
  double mantissa = std::frexp(static_cast<double>(x), &exponent);
  if (mantissa < 0.70710678118654752) {
    mantissa *= 2.0;
    --exponent;
  }
  // ln m = 2 artanh(s) = 2 (s + s^3/3 + s^5/5 + ...) with s = (m - 1) / (m + 1), |s| < 0.172.
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  double series = 0.0;
  for (int k = 15; k >= 1; k -= 2) series = series * s * s + 1.0 / k;
  return exponent * 0.69314718055994531 + 2.0 * s * series;
}

/// The scores of the rows with these numbers, with the bits of score(). Consecutive rows need no
/// list, and the processor fetches them ahead.
void score_tokens(const float* queries, std::int64_t query_count, const Half* rows,
                  std::span<const std::int32_t> tokens, std::int64_t dim, float* scores) {
  const auto count = std::ssize(tokens);
  const auto gap = [](std::int32_t a, std::int32_t b) { return b != a + 1; };
  if (std::adjacent_find(tokens.begin(), tokens.end(), gap) == tokens.end() && count > 0) {
    score(queries, query_count, rows + tokens.front() * dim, count, dim, scores, count);
  } else {
    table().score_gathered(queries, query_count, rows, tokens.data(), count, dim, scores, count);
  }
}

}  // namespace

void to_float(const Half* from, float* to, std::int64_t n) {
  table().half_to_float(from, to, n);
}

void to_half(const float* from, Half* to, std::int64_t n) {
  table().float_to_half(from, to, n);
}

float dot(const float* a, const float* b, std::int64_t dim) {
  return table().dot(a, b, dim);
}

void score(const float* queries, std::int64_t query_count, const Half* rows, std::int64_t row_count,
           std::int64_t dim, float* scores, std::int64_t score_stride) {
  table().score_half(queries, query_count, rows, row_count, dim, scores, score_stride);
}

void score(const float* queries, std::int64_t query_count, const float* rows,
           std::int64_t row_count, std::int64_t dim, float* scores, std::int64_t score_stride) {
  table().score_float(queries, query_count, rows, row_count, dim, scores, score_stride);
}

void score_bounds(const float* queries, std::int64_t query_count, const float* minima,
                  const float* maxima, std::int64_t row_count, std::int64_t dim, float* scores,
                  std::int64_t score_stride) {
  table().score_bounds(queries, query_count, minima, maxima, row_count, dim, scores, score_stride);
}

void multiply(const PanelProduct& product, const float* panels) {
  table().panel_product_float(product, panels);
}

void multiply(const PanelProduct& product, const BFloat* panels) {
  table().panel_product_bfloat(product, panels);
}

void multiply(const IntegerProduct& product, const IntegerPanels& panels, int bits) {
  (bits == 8 ? integer_table().product8 : integer_table().product4)(product, panels);
}

void quantise_row(const float* row, std::int64_t n, std::int8_t* values, float* scales,
                  std::int32_t* sums) {
  integer_table().quantise_row(row, n, values, scales, sums);
}

void silu_multiply(float* gate, const float* up, std::int64_t n) {
  table().silu_multiply(gate, up, n);
}

void gelu_multiply(float* gate, const float* up, std::int64_t n) {
  table().gelu_multiply(gate, up, n);
}

bool all_finite(const float* values, std::int64_t n) {
  return table().all_finite(values, n);
}

float softmax(float* values, std::int64_t n, float scale) {
  return softmax(values, values, n, scale);
}

float softmax(const float* logits, float* weights, std::int64_t n, float scale) {
  assert(n >= 1);
  const SoftmaxTotals totals = table().softmax(logits, weights, n, scale);
  return static_cast<float>(static_cast<double>(totals.max) + natural_log(totals.sum));
}

float attend(const float* query, const Half* keys, const Half* values,
             std::span<const std::int32_t> tokens, std::int64_t dim, float scale, float* weights,
             float* output) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  score_tokens(query, 1, keys, tokens, dim, weights);
  const float log_sum = softmax(weights, count, scale);
  weighted_sum(weights, 1, values, tokens, dim, output);
  return log_sum;
}

void attend(const float* queries, std::int64_t query_count, const Half* keys, const Half* values,
            std::span<const std::int32_t> tokens, std::int64_t dim, float scale, float* weights,
            float* outputs) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  score_tokens(queries, query_count, keys, tokens, dim, weights);
  for (std::int64_t q = 0; q < query_count; ++q) softmax(weights + q * count, count, scale);
  weighted_sum(weights, query_count, values, tokens, dim, outputs);
}

void weighted_sum(const float* weights, std::int64_t query_count, const Half* values,
                  std::span<const std::int32_t> tokens, std::int64_t dim, float* outputs) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  table().weighted_sum(weights, query_count, count, values, tokens.data(), count, dim, outputs);
}

}  // namespace kvreplay::kernels
