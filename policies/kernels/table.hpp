#pragma once

#include <cstdint>

#include "base/half.hpp"

namespace kvreplay::kernels {

/// Largest element and sum of exp(value - largest).
struct SoftmaxTotals {
  float max;
  float sum;
};

/// Centroids laid out for the nearest-centroid search (clustering.cpp packs them): `panels` of
/// [dim, 16], where lane l of panel p is centroid 16 p + l. A row's label is the centroid with the
/// largest row . centroid + bias; lanes beyond the last centroid have a bias of -inf.
struct PackedCentroids {
  const float* panels;
  const float* bias;  ///< [16 * panel_count]
  std::int64_t panel_count;
  std::int64_t dim;
  /// [16 * panel_count]: each lane's centroid, where the panels hold them in another order.
  const std::int32_t* numbers = nullptr;
};

/// The best centroid so far of each of some rows: its score, and its number. `highest`: the best
/// score of the last panel that the row was compared with.
struct NearestSoFar {
  float* score;
  std::int32_t* centroid;
  float* highest;
};

/// The upper half of a float's bits: a storage type of weights.
struct BFloat {
  std::uint16_t bits = 0;
};

/// A product with a matrix [16 * panel_count outputs, depth inputs] that is stored in panels of 16
/// outputs, [depth, 16]: products[r, 16 p + l] = sum_k rows[r, k] panels[p, k, l]. Each sum is one
/// chain of fused multiply-adds in the order of k, whatever the number of rows.
struct PanelProduct {
  const float* rows = nullptr;  ///< [row_count, depth]
  std::int64_t row_count = 0;
  std::int64_t row_stride = 0;
  std::int64_t depth = 0;
  std::int64_t panel_count = 0;
  std::int64_t panel_stride = 0;  ///< elements from one panel to the next: 16 * depth if contiguous
  float* products = nullptr;      ///< [row_count, 16 * panel_count]
  std::int64_t product_stride = 0;
};

/// The kernels of one instruction set. The public functions of kernels.hpp call the table in use.
struct KernelTable {
  void (*half_to_float)(const Half* from, float* to, std::int64_t n);
  void (*float_to_half)(const float* from, Half* to, std::int64_t n);
  float (*dot)(const float* a, const float* b, std::int64_t dim);
  void (*score_half)(const float* queries, std::int64_t query_count, const Half* rows,
                     std::int64_t row_count, std::int64_t dim, float* scores,
                     std::int64_t score_stride);
  void (*score_float)(const float* queries, std::int64_t query_count, const float* rows,
                      std::int64_t row_count, std::int64_t dim, float* scores,
                      std::int64_t score_stride);
  void (*score_bounds)(const float* queries, std::int64_t query_count, const float* minima,
                       const float* maxima, std::int64_t row_count, std::int64_t dim, float* scores,
                       std::int64_t score_stride);
  /// Scores of the rows with these numbers: scores[q * score_stride + i] =
  /// queries[q] . rows[tokens[i]].
  void (*score_gathered)(const float* queries, std::int64_t query_count, const Half* rows,
                         const std::int32_t* tokens, std::int64_t count, std::int64_t dim,
                         float* scores, std::int64_t score_stride);
  bool (*all_finite)(const float* values, std::int64_t n);
  SoftmaxTotals (*softmax)(const float* from, float* values, std::int64_t n, float scale);
  /// sums[q * dim + d] = sum_i weights[q * weight_stride + i] rows[tokens[i]][d], in the order of
  /// i.
  void (*weighted_sum)(const float* weights, std::int64_t query_count, std::int64_t weight_stride,
                       const Half* rows, const std::int32_t* tokens, std::int64_t count,
                       std::int64_t dim, float* sums);
  /// The indices with scores[i] >= threshold, ascending; needs room for n. Returns how many.
  std::int64_t (*find_at_least)(const float* scores, std::int64_t n, float threshold,
                                std::int32_t* indices);
  /// scratch: [kScratchRows, dim].
  void (*nearest)(const Half* rows, std::int64_t row_count, const PackedCentroids& centroids,
                  float* scratch, std::int32_t* labels);
  /// Compares rows[list[i]], i < count, of `rows` [*, dim] with one panel. The scores are those of
  /// nearest(), bit for bit; a tie goes to the centroid with the lower number.
  void (*compare_panel)(const float* rows, const std::int32_t* list, std::int64_t count,
                        const PackedCentroids& centroids, std::int64_t panel,
                        const NearestSoFar& nearest);
  /// bounds[i] += offset + slope * radii[i]. Lists the i with bounds[i] >= least[i], ascending;
  /// returns how many; needs room for n. n is a multiple of 16.
  std::int64_t (*widen_bounds)(float* bounds, const float* radii, const float* least,
                               std::int64_t n, float offset, float slope, std::int32_t* list);
  /// sum[d] += row[d].
  void (*add_row)(const Half* row, std::int64_t dim, float* sum);
  void (*panel_product_float)(const PanelProduct& product, const float* panels);
  void (*panel_product_bfloat)(const PanelProduct& product, const BFloat* panels);
  /// gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i].
  void (*silu_multiply)(float* gate, const float* up, std::int64_t n);
  void (*gelu_multiply)(float* gate, const float* up, std::int64_t n);
};

inline constexpr std::int64_t kScratchRows = 16;

extern const KernelTable kScalarKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
#endif

}  // namespace kvreplay::kernels
