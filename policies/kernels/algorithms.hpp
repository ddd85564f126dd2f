#pragma once

#include <cstdint>

#include "base/half.hpp"
#include "policies/kernels/table.hpp"

// Unrolls a loop of constant count, so that its arrays become registers.
#if defined(__clang__)
#define KVREPLAY_UNROLL _Pragma("clang loop unroll(full)")
#else
#define KVREPLAY_UNROLL _Pragma("GCC unroll 16")
#endif
#define KVREPLAY_INLINE __attribute__((always_inline))

namespace kvreplay::kernels {

/// Every kernel, written once over a vector of sixteen floats (defined in lanes_scalar.hpp).
///
/// Each instruction set instantiates this in its own source file, compiled for it. Everything here
/// depends on `Lanes`, and nothing from the standard library is called: a function independent of
/// `Lanes` would be emitted by each of those files under one name, and the linker might keep the
/// AVX-512 one for all.
template <typename Lanes>
struct Algorithms {
  static constexpr int kWidth = Lanes::kWidth;
  static constexpr float kInfinity = __builtin_huge_valf();

  static constexpr KernelTable table() {
    return {.half_to_float = convert<Half, float>,
            .float_to_half = convert<float, Half>,
            .dot = dot,
            .score_half = score_rows<Half>,
            .score_float = score_rows<float>,
            .score_bounds = score_bounds,
            .score_gathered = score_gathered,
            .softmax = softmax,
            .weighted_sum = weighted_sum,
            .find_at_least = find_at_least,
            .nearest = nearest,
            .add_row = add_row,
            .panel_product_float = panel_product<float>,
            .panel_product_bfloat = panel_product<BFloat>,
            .silu_multiply = silu_multiply,
            .gelu_multiply = gelu_multiply};
  }

  /// Calls step(position, load, store) for each run of 16 of n elements, and for the remainder,
  /// where `load` and `store` touch only the remaining elements and `load` pads with zeros.
  template <typename Step>
  KVREPLAY_INLINE static void for_each_run(std::int64_t n, Step step) {
    std::int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      step(
          i, [](const auto* from) KVREPLAY_INLINE { return Lanes::load(from); },
          [](const Lanes& lanes, auto* to) KVREPLAY_INLINE { lanes.store(to); });
    }
    if (const int rest = static_cast<int>(n - i); rest > 0) {
      step(
          i, [=](const auto* from) KVREPLAY_INLINE { return Lanes::load_first(from, rest); },
          [=](const Lanes& lanes, auto* to) KVREPLAY_INLINE { lanes.store_first(to, rest); });
    }
  }

  template <typename From, typename To>
  static void convert(const From* from, To* to, std::int64_t n) {
    for_each_run(n, [=](std::int64_t i, auto load, auto store)
                        KVREPLAY_INLINE { store(load(from + i), to + i); });
  }

  static std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

  /// Prefetches n elements into the cache.
  template <typename T>
  KVREPLAY_INLINE static void prefetch(const T* from, std::int64_t n) {
    constexpr std::int64_t kPerLine = 64 / sizeof(T);
    for (std::int64_t i = 0; i < n; i += kPerLine) __builtin_prefetch(from + i);
  }

  // ---- Scores ----
  //
  // A set of rows has a type for one row and defines how a run of 16 of its elements is loaded and
  // multiplied into a running sum. prefetch() fetches rows whose places the hardware cannot
  // foresee; consecutive rows are fetched best without it.

  template <typename T>
  struct PlainRows {
    const T* data;
    std::int64_t dim;

    [[nodiscard]] const T* row(std::int64_t n) const { return data + n * dim; }
    template <typename Load>
    KVREPLAY_INLINE static Lanes load_run(const T* row, std::int64_t i, Load load) {
      return load(row + i);
    }
    void prefetch(std::int64_t, std::int64_t) const {}
    KVREPLAY_INLINE static Lanes accumulate(Lanes query, Lanes run, Lanes sum) {
      return Lanes::fma(query, run, sum);
    }
  };

  struct GatheredRows : PlainRows<Half> {
    const std::int32_t* tokens;

    [[nodiscard]] const Half* row(std::int64_t n) const {
      return this->data + tokens[n] * this->dim;
    }
    void prefetch(std::int64_t begin, std::int64_t end) const {
      for (std::int64_t n = begin; n < end; ++n) Algorithms::prefetch(row(n), this->dim);
    }
  };

  struct BoundRows {
    const float* minima;
    const float* maxima;
    std::int64_t dim;

    struct Row {
      const float* minima;
      const float* maxima;
    };
    struct Run {
      Lanes minima;
      Lanes maxima;
    };
    [[nodiscard]] Row row(std::int64_t n) const { return {minima + n * dim, maxima + n * dim}; }
    template <typename Load>
    KVREPLAY_INLINE static Run load_run(Row row, std::int64_t i, Load load) {
      return {load(row.minima + i), load(row.maxima + i)};
    }
    void prefetch(std::int64_t, std::int64_t) const {}
    /// max(q M, q m) is q M where q is positive and q m where it is negative, because m <= M.
    KVREPLAY_INLINE static Lanes accumulate(Lanes query, Run run, Lanes sum) {
      return Lanes::fma(query, Lanes::by_sign(query, run.maxima, run.minima), sum);
    }
  };

  /// Also how many rows ahead gathered rows are prefetched.
  static constexpr std::int64_t kBlockRows = 16;
  static constexpr int kMaxTileQueries = 4;

  /// The number of rows that gives a tile of kAccumulators sums; at most 4.
  static constexpr int tile_rows(int queries) {
    const int rows = Lanes::kAccumulators / queries;
    return rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
  }

  /// Computes scores[q * stride + n] for kQueries queries and rows [first, first + kRows).
  template <int kQueries, int kRows, typename Rows>
  KVREPLAY_INLINE static void score_tile(const float* queries, const Rows& rows, std::int64_t first,
                                         std::int64_t dim, float* scores, std::int64_t stride) {
    constexpr int kSums = (kQueries * kRows + 3) / 4 * 4;
    Lanes sum[kSums];
    KVREPLAY_UNROLL
    for (int i = 0; i < kSums; ++i) sum[i] = Lanes::all(0.0f);

    decltype(rows.row(0)) row[kRows];
    KVREPLAY_UNROLL
    for (int r = 0; r < kRows; ++r) row[r] = rows.row(first + r);

    for_each_run(dim, [&](std::int64_t i, auto load, auto) KVREPLAY_INLINE {
      decltype(rows.load_run(row[0], i, load)) run[kRows];
      KVREPLAY_UNROLL
      for (int r = 0; r < kRows; ++r) run[r] = rows.load_run(row[r], i, load);
      KVREPLAY_UNROLL
      for (int q = 0; q < kQueries; ++q) {
        const Lanes query = load(queries + q * dim + i);
        KVREPLAY_UNROLL
        for (int r = 0; r < kRows; ++r) {
          Lanes& total = sum[q * kRows + r];
          total = rows.accumulate(query, run[r], total);
        }
      }
    });

    float totals[kSums];
    KVREPLAY_UNROLL
    for (int i = 0; i < kSums; i += 4) {
      Lanes::sum4(sum[i], sum[i + 1], sum[i + 2], sum[i + 3], totals + i);
    }
    KVREPLAY_UNROLL
    for (int q = 0; q < kQueries; ++q) {
      __builtin_memcpy(scores + q * stride + first, totals + q * kRows, sizeof(float) * kRows);
    }
  }

  template <int kQueries, typename Rows>
  static void score_tiles(const float* queries, const Rows& rows, std::int64_t begin,
                          std::int64_t end, std::int64_t dim, float* scores, std::int64_t stride) {
    constexpr int kRows = tile_rows(kQueries);
    std::int64_t n = begin;
    for (; n + kRows <= end; n += kRows) {
      score_tile<kQueries, kRows>(queries, rows, n, dim, scores, stride);
    }
    for (; n < end; ++n) score_tile<kQueries, 1>(queries, rows, n, dim, scores, stride);
  }

  /// Processes rows in blocks that stay in the first-level cache while each tile of queries passes
  /// over them. The next block is prefetched meanwhile.
  template <typename Rows>
  static void score(const float* queries, std::int64_t query_count, const Rows& rows,
                    std::int64_t row_count, std::int64_t dim, float* scores, std::int64_t stride) {
    for (std::int64_t begin = 0, end = 0; begin < row_count; begin = end) {
      end = smaller(begin + kBlockRows, row_count);
      rows.prefetch(end, smaller(end + kBlockRows, row_count));
      for (std::int64_t q = 0; q < query_count; q += kMaxTileQueries) {
        const float* from = queries + q * dim;
        float* to = scores + q * stride;
        switch (query_count - q) {
          case 1:
            score_tiles<1>(from, rows, begin, end, dim, to, stride);
            break;
          case 2:
            score_tiles<2>(from, rows, begin, end, dim, to, stride);
            break;
          case 3:
            score_tiles<3>(from, rows, begin, end, dim, to, stride);
            break;
          default:
            score_tiles<4>(from, rows, begin, end, dim, to, stride);
            break;
        }
      }
    }
  }

  template <typename T>
  static void score_rows(const float* queries, std::int64_t query_count, const T* rows,
                         std::int64_t row_count, std::int64_t dim, float* scores,
                         std::int64_t stride) {
    score(queries, query_count, PlainRows<T>{rows, dim}, row_count, dim, scores, stride);
  }

  static void score_bounds(const float* queries, std::int64_t query_count, const float* minima,
                           const float* maxima, std::int64_t row_count, std::int64_t dim,
                           float* scores, std::int64_t stride) {
    score(queries, query_count, BoundRows{minima, maxima, dim}, row_count, dim, scores, stride);
  }

  static void score_gathered(const float* query, const Half* rows, const std::int32_t* tokens,
                             std::int64_t count, std::int64_t dim, float* scores) {
    score(query, 1, GatheredRows{{rows, dim}, tokens}, count, dim, scores, 0);
  }

  static float dot(const float* a, const float* b, std::int64_t dim) {
    float result = 0.0f;
    score_tile<1, 1>(a, PlainRows<float>{b, dim}, 0, dim, &result, 0);
    return result;
  }

  // ---- Softmax and the weighted sum of values ----

  /// e^x for x in (-inf, 88], within 2 units in the last place; 0 below -87, where e^x leaves the
  /// normal floats.
  KVREPLAY_INLINE static Lanes exp(Lanes x) {
    // x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer, which stands in
    // the sum's low bits. ln 2 is split in two floats.
    const Lanes shift = Lanes::all(0x1.8p23f);
    const Lanes shifted = Lanes::fma(x, Lanes::all(0x1.715476p0f), shift);
    const Lanes n = shifted - shift;
    Lanes r = Lanes::fma(n, Lanes::all(-0x1.62e43p-1f), x);
    r = Lanes::fma(n, Lanes::all(0x1.05c61p-29f), r);
    // The series of e^r up to r^7 / 7!: the rest is below 2^-26.
    Lanes series = Lanes::all(1.0f / 5040.0f);
    series = Lanes::fma(series, r, Lanes::all(1.0f / 720.0f));
    series = Lanes::fma(series, r, Lanes::all(1.0f / 120.0f));
    series = Lanes::fma(series, r, Lanes::all(1.0f / 24.0f));
    series = Lanes::fma(series, r, Lanes::all(1.0f / 6.0f));
    series = Lanes::fma(series, r, Lanes::all(0.5f));
    series = Lanes::fma(series, r, Lanes::all(1.0f));
    series = Lanes::fma(series, r, Lanes::all(1.0f));
    return Lanes::if_greater(Lanes::all(-87.0f), x, Lanes::all(0.0f),
                             Lanes::scale_by_power(series, shifted));
  }

  static SoftmaxTotals softmax(float* values, std::int64_t n, float scale) {
    const Lanes scales = Lanes::all(scale);
    const std::int64_t whole = n / kWidth * kWidth;
    // The remainder as a full vector: exp turns the -inf padding into weights of 0.
    float rest[kWidth];
    for (int i = 0; i < kWidth; ++i) {
      rest[i] = whole + i < n ? values[whole + i] * scale : -kInfinity;
    }

    Lanes max_lanes = Lanes::load(rest);
    for (std::int64_t i = 0; i < whole; i += kWidth) {
      max_lanes = Lanes::max(Lanes::load(values + i) * scales, max_lanes);
    }
    float lanes[kWidth];
    max_lanes.store(lanes);
    float max = lanes[0];
    for (int i = 1; i < kWidth; ++i) max = lanes[i] > max ? lanes[i] : max;

    const Lanes offset = Lanes::all(max);
    const Lanes zero = Lanes::all(0.0f);
    Lanes sums = zero;
    for (std::int64_t i = 0; i < whole; i += kWidth) {
      const Lanes weights = exp(Lanes::load(values + i) * scales - offset);
      weights.store(values + i);
      sums = sums + weights;
    }
    const Lanes rest_weights = exp(Lanes::load(rest) - offset);
    rest_weights.store_first(values + whole, static_cast<int>(n - whole));
    sums = sums + rest_weights;
    float total[4];
    Lanes::sum4(sums, zero, zero, zero, total);

    const Lanes inverse = Lanes::all(1.0f / total[0]);
    for_each_run(n, [=](std::int64_t i, auto load, auto store)
                        KVREPLAY_INLINE { store(load(values + i) * inverse, values + i); });
    return {max, total[0]};
  }

  /// Computes kRuns * 16 elements of weighted_sum from element `first` on.
  template <int kRuns>
  KVREPLAY_INLINE static void weighted_runs(const float* weights, const Half* rows,
                                            const std::int32_t* tokens, std::int64_t count,
                                            std::int64_t dim, std::int64_t first, float* sum) {
    Lanes total[kRuns];
    KVREPLAY_UNROLL
    for (int k = 0; k < kRuns; ++k) total[k] = Lanes::all(0.0f);
    for (std::int64_t i = 0; i < count; ++i) {
      const Half* row = rows + tokens[i] * dim + first;
      if (i + kBlockRows < count) {
        prefetch(rows + tokens[i + kBlockRows] * dim + first, kRuns * kWidth);
      }
      const Lanes weight = Lanes::all(weights[i]);
      KVREPLAY_UNROLL
      for (int k = 0; k < kRuns; ++k) {
        total[k] = Lanes::fma(weight, Lanes::load(row + k * kWidth), total[k]);
      }
    }
    KVREPLAY_UNROLL
    for (int k = 0; k < kRuns; ++k) total[k].store(sum + first + k * kWidth);
  }

  static void weighted_sum(const float* weights, const Half* rows, const std::int32_t* tokens,
                           std::int64_t count, std::int64_t dim, float* sum) {
    constexpr int kRuns = Lanes::kAccumulators >= 8 ? 8 : 4;
    std::int64_t d = 0;
    for (; d + kRuns * kWidth <= dim; d += kRuns * kWidth) {
      weighted_runs<kRuns>(weights, rows, tokens, count, dim, d, sum);
    }
    for (; d + 4 * kWidth <= dim; d += 4 * kWidth) {
      weighted_runs<4>(weights, rows, tokens, count, dim, d, sum);
    }
    for (; d + kWidth <= dim; d += kWidth) {
      weighted_runs<1>(weights, rows, tokens, count, dim, d, sum);
    }
    if (const int rest = static_cast<int>(dim - d); rest > 0) {
      Lanes total = Lanes::all(0.0f);
      for (std::int64_t i = 0; i < count; ++i) {
        const Lanes run = Lanes::load_first(rows + tokens[i] * dim + d, rest);
        total = Lanes::fma(Lanes::all(weights[i]), run, total);
      }
      total.store_first(sum + d, rest);
    }
  }

  // ---- Selection ----

  static std::int64_t find_at_least(const float* scores, std::int64_t n, float threshold,
                                    std::int32_t* indices) {
    const Lanes thresholds = Lanes::all(threshold);
    std::int64_t found = 0;
    std::int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      std::uint32_t bits = Lanes::at_least(Lanes::load(scores + i), thresholds);
      for (; bits != 0; bits &= bits - 1) {
        indices[found++] = static_cast<std::int32_t>(i) + __builtin_ctz(bits);
      }
    }
    for (; i < n; ++i) {
      if (scores[i] >= threshold) indices[found++] = static_cast<std::int32_t>(i);
    }
    return found;
  }

  // ---- Clustering ----

  /// The best centroid so far of one row, for each lane.
  struct Best {
    Lanes score;
    Lanes panel;  ///< the panel's number, as float
  };

  /// Compares kTileRows rows [kTileRows, dim] with kPanels panels of 16 centroids. Each product is
  /// one chain of fused multiply-adds in the order of the dimensions.
  template <int kPanels>
  KVREPLAY_INLINE static void nearest_tile(const float* rows, const PackedCentroids& centroids,
                                           std::int64_t first_panel, Best* best) {
    constexpr int kRows = Lanes::kTileRows;
    const std::int64_t dim = centroids.dim;
    const float* panels = centroids.panels + first_panel * dim * kWidth;
    Lanes sum[kRows][kPanels];
    KVREPLAY_UNROLL
    for (int r = 0; r < kRows; ++r) {
      KVREPLAY_UNROLL
      for (int p = 0; p < kPanels; ++p) sum[r][p] = Lanes::all(0.0f);
    }
    for (std::int64_t d = 0; d < dim; ++d) {
      Lanes panel[kPanels];
      KVREPLAY_UNROLL
      for (int p = 0; p < kPanels; ++p) panel[p] = Lanes::load(panels + (p * dim + d) * kWidth);
      KVREPLAY_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Lanes element = Lanes::all(rows[r * dim + d]);
        KVREPLAY_UNROLL
        for (int p = 0; p < kPanels; ++p) sum[r][p] = Lanes::fma(element, panel[p], sum[r][p]);
      }
    }
    KVREPLAY_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      const Lanes number = Lanes::all(static_cast<float>(first_panel + p));
      const Lanes bias = Lanes::load(centroids.bias + (first_panel + p) * kWidth);
      KVREPLAY_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Lanes score = sum[r][p] + bias;
        // Only a greater score wins, so a tie stays with the lower centroid.
        best[r].panel = Lanes::if_greater(score, best[r].score, number, best[r].panel);
        best[r].score = Lanes::max(score, best[r].score);
      }
    }
  }

  static std::int32_t best_centroid(const Best& best) {
    float scores[kWidth];
    float panels[kWidth];
    best.score.store(scores);
    best.panel.store(panels);
    int lane = 0;
    for (int i = 1; i < kWidth; ++i) {
      const bool better = scores[i] > scores[lane];
      const bool tie = scores[i] == scores[lane] && panels[i] < panels[lane];
      if (better || tie) lane = i;
    }
    return static_cast<std::int32_t>(panels[lane]) * kWidth + lane;
  }

  static void nearest(const Half* rows, std::int64_t row_count, const PackedCentroids& centroids,
                      float* scratch, std::int32_t* labels) {
    constexpr int kRows = Lanes::kTileRows;
    constexpr int kPanels = Lanes::kTileVectors;
    static_assert(kRows <= kScratchRows);
    const std::int64_t dim = centroids.dim;
    for (std::int64_t n = 0; n < row_count; n += kRows) {
      // A shorter last tile computes on what the previous tile left in scratch.
      const std::int64_t count = row_count - n < kRows ? row_count - n : kRows;
      convert<Half, float>(rows + n * dim, scratch, count * dim);
      Best best[kRows];
      for (int r = 0; r < kRows; ++r) {
        best[r] = {Lanes::all(-kInfinity), Lanes::all(0.0f)};
      }
      std::int64_t panel = 0;
      for (; panel + kPanels <= centroids.panel_count; panel += kPanels) {
        nearest_tile<kPanels>(scratch, centroids, panel, best);
      }
      for (; panel < centroids.panel_count; ++panel) {
        nearest_tile<1>(scratch, centroids, panel, best);
      }
      for (std::int64_t r = 0; r < count; ++r) labels[n + r] = best_centroid(best[r]);
    }
  }

  static void add_row(const Half* row, std::int64_t dim, float* sum) {
    for_each_run(dim, [=](std::int64_t i, auto load, auto store)
                          KVREPLAY_INLINE { store(load(sum + i) + load(row + i), sum + i); });
  }

  // ---- Matrix products ----

  /// Inputs whose products are summed before the next panel's turn: a pair of panels stays in the
  /// second-level cache while the rows pass over it.
  static constexpr std::int64_t kDepthBlock = 1024;

  /// Multiplies kRows rows by kPanels panels over `depth` inputs. With `first`, the sums start at
  /// 0, otherwise at the contents of the products.
  template <int kRows, int kPanels, typename T>
  KVREPLAY_INLINE static void product_tile(const float* rows, std::int64_t row_stride,
                                           const T* panels, std::int64_t panel_stride,
                                           std::int64_t depth, bool first, float* products,
                                           std::int64_t product_stride) {
    Lanes sum[kRows][kPanels];
    KVREPLAY_UNROLL
    for (int r = 0; r < kRows; ++r) {
      KVREPLAY_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        sum[r][p] =
            first ? Lanes::all(0.0f) : Lanes::load(products + r * product_stride + p * kWidth);
      }
    }
    for (std::int64_t k = 0; k < depth; ++k) {
      Lanes panel[kPanels];
      KVREPLAY_UNROLL
      for (int p = 0; p < kPanels; ++p)
        panel[p] = Lanes::load(panels + p * panel_stride + k * kWidth);
      KVREPLAY_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Lanes element = Lanes::all(rows[r * row_stride + k]);
        KVREPLAY_UNROLL
        for (int p = 0; p < kPanels; ++p) sum[r][p] = Lanes::fma(element, panel[p], sum[r][p]);
      }
    }
    KVREPLAY_UNROLL
    for (int r = 0; r < kRows; ++r) {
      KVREPLAY_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        sum[r][p].store(products + r * product_stride + p * kWidth);
      }
    }
  }

  /// Computes rows [begin, end) of the product, kRows at a time and kPanels panels at a time.
  /// Returns the first row that remains.
  template <int kRows, int kPanels, typename T>
  static std::int64_t product_rows(const PanelProduct& product, const T* panels,
                                   std::int64_t begin) {
    std::int64_t end = begin;
    while (end + kRows <= product.row_count) end += kRows;
    if (end == begin) return end;
    [[maybe_unused]] alignas(64) float converted[kPanels * kDepthBlock * kWidth];
    for (std::int64_t k = 0; k < product.depth; k += kDepthBlock) {
      const std::int64_t depth = smaller(kDepthBlock, product.depth - k);
      const auto tiles = [&]<int kCount>(std::int64_t panel) {
        const T* from = panels + panel * product.panel_stride + k * kWidth;
        const auto run = [&](const auto* data, std::int64_t stride) {
          for (std::int64_t r = begin; r < end; r += kRows) {
            product_tile<kRows, kCount>(
                product.rows + r * product.row_stride + k, product.row_stride, data, stride, depth,
                k == 0, product.products + r * product.product_stride + panel * kWidth,
                product.product_stride);
          }
        };
        if constexpr (__is_same(T, BFloat) && kRows > 1) {  // converted once for all rows
          for (int p = 0; p < kCount; ++p) {
            for (std::int64_t i = 0; i < depth * kWidth; i += kWidth) {
              Lanes::load(from + p * product.panel_stride + i)
                  .store(converted + p * kDepthBlock * kWidth + i);
            }
          }
          run(converted, kDepthBlock * kWidth);
        } else {
          run(from, product.panel_stride);
        }
      };
      std::int64_t panel = 0;
      for (; panel + kPanels <= product.panel_count; panel += kPanels) {
        tiles.template operator()<kPanels>(panel);
      }
      for (; panel < product.panel_count; ++panel) tiles.template operator()<1>(panel);
    }
    return end;
  }

  template <typename T>
  static void panel_product(const PanelProduct& product, const T* panels) {
    const std::int64_t left =
        product_rows<Lanes::kTileRows, Lanes::kTileVectors>(product, panels, 0);
    product_rows<1, 4>(product, panels, left);
  }

  /// 1 + e^-x, as at -87 below that.
  KVREPLAY_INLINE static Lanes one_plus_exp_negative(Lanes x) {
    const Lanes limit = Lanes::all(87.0f);
    const Lanes negative = Lanes::all(0.0f) - x;
    return Lanes::all(1.0f) + exp(Lanes::if_greater(negative, limit, limit, negative));
  }

  static void silu_multiply(float* gate, const float* up, std::int64_t n) {
    for_each_run(n, [=](std::int64_t i, auto load, auto store) KVREPLAY_INLINE {
      const Lanes x = load(gate + i);
      store(x / one_plus_exp_negative(x) * load(up + i), gate + i);
    });
  }

  static void gelu_multiply(float* gate, const float* up, std::int64_t n) {
    for_each_run(n, [=](std::int64_t i, auto load, auto store) KVREPLAY_INLINE {
      const Lanes x = load(gate + i);
      // (1 + tanh(z)) / 2 = 1 / (1 + e^-2z); the factors are 2 sqrt(2 / pi) and 0.044715 of that.
      const Lanes twice =
          x * Lanes::fma(Lanes::all(0.0713548163f) * x, x, Lanes::all(1.5957691216f));
      store(x / one_plus_exp_negative(twice) * load(up + i), gate + i);
    });
  }
};

}  // namespace kvreplay::kernels
