#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/half.hpp"

namespace kvreplay::kernels {

struct BFloat;
struct IntegerPanels;
struct IntegerProduct;
struct PanelProduct;

/// Instruction sets, lowest first. Every kernel gives the same bits on each (except for NaN): fused
/// multiply-adds in one fixed order of partial sums, and our own exponential and logarithm. A dot
/// product has 16 lanes. Lane j takes elements j, j+16, ..., with zeros beyond the end, and the
/// lanes are added in a fixed tree: j and j+8, then j+4, j+2, j+1.
enum class Isa { kScalar, kAvx2, kAvx512 };

/// The best instruction set of this machine, which the kernels use by default.
[[nodiscard]] Isa best_isa();
[[nodiscard]] Isa current_isa();
/// Not thread-safe. Throws std::invalid_argument above best_isa().
void use_isa(Isa isa);
[[nodiscard]] std::string_view isa_name(Isa isa);
/// Those of this machine, lowest first.
[[nodiscard]] std::span<const Isa> available_isas();

/// Converts a row (or any contiguous run) of n elements. Exact.
void to_float(const Half* from, float* to, std::int64_t n);
/// Rounds to nearest even.
void to_half(const float* from, Half* to, std::int64_t n);

/// sum_i a[i] b[i].
[[nodiscard]] float dot(const float* a, const float* b, std::int64_t dim);

/// scores[q * score_stride + n] = queries[q] . rows[n] for `queries` row-major [query_count, dim]
/// and `rows` [row_count, dim]. Each row is read from memory once for all queries of its KV head.
void score(const float* queries, std::int64_t query_count, const Half* rows, std::int64_t row_count,
           std::int64_t dim, float* scores, std::int64_t score_stride);
void score(const float* queries, std::int64_t query_count, const float* rows,
           std::int64_t row_count, std::int64_t dim, float* scores, std::int64_t score_stride);

/// Quest's bound: scores[q * score_stride + n] = sum_d max(q_d M_nd, q_d m_nd), for `minima` and
/// `maxima` row-major [row_count, dim]. (Quest, Algorithm 1)
void score_bounds(const float* queries, std::int64_t query_count, const float* minima,
                  const float* maxima, std::int64_t row_count, std::int64_t dim, float* scores,
                  std::int64_t score_stride);

/// The indices of the k largest of scores[0, n), ascending by index; ties go to the lower index; k
/// is limited to n. Uses partition, not sort. NaN is not allowed.
void top_k(const float* scores, std::int64_t n, std::int64_t k, std::span<std::int32_t> indices);

/// The indices of all n scores in descending order, ties by ascending index.
void order_descending(const float* scores, std::int64_t n, std::span<std::int32_t> indices);

/// Whether no value is NaN or infinite.
[[nodiscard]] bool all_finite(const float* values, std::int64_t n);

/// values[i] = exp(values[i] * scale - max) / sum, in place; returns ln(sum_i exp(values[i] *
/// scale)). n >= 1; -inf is allowed, not everywhere. A weight below e^-87 of the largest is 0.
float softmax(float* values, std::int64_t n, float scale);
/// The same of logits [n] that stay as they are.
float softmax(const float* logits, float* weights, std::int64_t n, float scale);

/// Scaled dot-product attention of one query head over a subset of tokens:
/// weights = softmax(scale * q . keys[tokens]), output = sum_i weights[i] values[tokens[i]].
/// keys, values: one head's rows [*, dim]; weights: [tokens.size()], output: [dim].
/// Returns the log-sum-exp of the scaled logits.
float attend(const float* query, const Half* keys, const Half* values,
             std::span<const std::int32_t> tokens, std::int64_t dim, float scale, float* weights,
             float* output);

/// The same for `query_count` query heads of one KV head, each with the bits of a call of its own;
/// keys and values are read from memory once. queries: [query_count, dim], weights: [query_count,
/// tokens.size()], outputs: [query_count, dim].
void attend(const float* queries, std::int64_t query_count, const Half* keys, const Half* values,
            std::span<const std::int32_t> tokens, std::int64_t dim, float scale, float* weights,
            float* outputs);
/// Its last part: outputs[q] = sum_i weights[q, i] values[tokens[i]], in the order of i.
void weighted_sum(const float* weights, std::int64_t query_count, const Half* values,
                  std::span<const std::int32_t> tokens, std::int64_t dim, float* outputs);

/// The product of rows with a matrix in panels (table.hpp).
void multiply(const PanelProduct& product, const float* panels);
void multiply(const PanelProduct& product, const BFloat* panels);
/// The product of rows of integers with a matrix of integers of `bits` = 8 or 4, each with scales
/// (integer_products.hpp).
void multiply(const IntegerProduct& product, const IntegerPanels& panels, int bits);
/// A row [n] as integers with a scale per 32 elements. values: [32 * groups], scales, sums:
/// [groups], groups = n / 32, rounded up.
void quantise_row(const float* row, std::int64_t n, std::int8_t* values, float* scales,
                  std::int32_t* sums);

/// SwiGLU's gate: gate[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + e^-x). (Shazeer 2020)
void silu_multiply(float* gate, const float* up, std::int64_t n);
/// GeGLU's, by tanh's approximation of the normal distribution: gelu(x) =
/// x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))). (Hendrycks and Gimpel 2016, Shazeer 2020)
void gelu_multiply(float* gate, const float* up, std::int64_t n);

/// Nearest centroid of each row. Cosine: argmax of row . c / |c| (the row's own norm does not
/// change the argmax), 0 where |c| = 0. Euclidean: argmin |row - c|^2, as argmax row . c - |c|^2 /
/// 2. Inner product: argmax row . c. Ties go to the lower centroid. Here row . c is one chain of
/// fused multiply-adds in the order of the dimensions, not dot(): the lanes hold 16 centroids.
enum class Metric { kCosine, kEuclidean, kInnerProduct };

struct KMeansOptions {
  Metric metric = Metric::kCosine;
  std::int64_t clusters = 1;
  std::int64_t max_iterations = 20;
  bool stop_when_stable = true;  ///< stop when no row changes its cluster
  std::uint64_t seed = 0;
};

/// Lloyd's algorithm over rows [row_count, dim]. It starts with `clusters` distinct rows drawn at
/// random, and their labels. An iteration moves each centroid to the plain mean of its rows, summed
/// in the rows' order (an empty cluster keeps its old centroid), and relabels the rows. `clusters`
/// is limited to row_count. centroids: [clusters, dim], labels: [row_count]. Returns the number of
/// iterations. Labels are exact: where there are many centroids, bounds rule out those that cannot
/// be the nearest (4 bytes per row and 16 centroids, 256 MiB at most).
std::int64_t k_means(const Half* rows, std::int64_t row_count, std::int64_t dim,
                     const KMeansOptions& options, std::span<float> centroids,
                     std::span<std::int32_t> labels);

/// labels[n] = nearest centroid of rows[n].
void assign(const Half* rows, std::int64_t row_count, const float* centroids,
            std::int64_t centroid_count, std::int64_t dim, Metric metric,
            std::span<std::int32_t> labels);

}  // namespace kvreplay::kernels
