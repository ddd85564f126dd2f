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
            .all_finite = all_finite,
            .softmax = softmax,
            .weighted_sum = weighted_sum,
            .find_at_least = find_at_least,
            .nearest = nearest,
            .compare_panel = compare_panel,
            .widen_bounds = widen_bounds,
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
  // multiplied into a running sum. fetch() prefetches what is needed soon after rows [begin, end).

  template <typename T>
  struct PlainRows {
    static constexpr bool kForeseen = true;  ///< by the hardware, which prefetches them itself
    const T* data;
    std::int64_t dim;

    [[nodiscard]] const T* row(std::int64_t n) const { return data + n * dim; }
    template <typename Load>
    KVREPLAY_INLINE static Lanes load_run(const T* row, std::int64_t i, Load load) {
      return load(row + i);
    }
    KVREPLAY_INLINE void fetch(std::int64_t begin, std::int64_t end) const {
      constexpr std::int64_t kAhead = 48;
      Algorithms::prefetch(row(begin) + kAhead, (end - begin) * dim);
    }
    KVREPLAY_INLINE static Lanes accumulate(Lanes query, Lanes run, Lanes sum) {
      return Lanes::fma(query, run, sum);
    }
  };

  struct GatheredRows : PlainRows<Half> {
    static constexpr bool kForeseen = false;
    const std::int32_t* tokens;
    std::int64_t count;

    [[nodiscard]] const Half* row(std::int64_t n) const {
      return this->data + tokens[n] * this->dim;
    }
    KVREPLAY_INLINE void fetch(std::int64_t begin, std::int64_t end) const {
      end = smaller(end + kBlockRows, count);
      for (std::int64_t n = begin + kBlockRows; n < end; ++n) {
        Algorithms::prefetch(row(n), this->dim);
      }
    }
  };

  struct BoundRows {
    static constexpr bool kForeseen = true;
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
    KVREPLAY_INLINE void fetch(std::int64_t begin, std::int64_t end) const {
      PlainRows<float>{minima, dim}.fetch(begin, end);
      PlainRows<float>{maxima, dim}.fetch(begin, end);
    }
    /// max(q M, q m) is q M where q is positive and q m where it is negative, because m <= M.
    KVREPLAY_INLINE static Lanes accumulate(Lanes query, Run run, Lanes sum) {
      return Lanes::fma(query, Lanes::by_sign(query, run.maxima, run.minima), sum);
    }
  };

  /// Rows whose scores are stored together; also how many rows ahead gathered rows are prefetched.
  static constexpr std::int64_t kBlockRows = kWidth;
  /// How far ahead consecutive rows are prefetched.
  static constexpr std::int64_t kFetchBytes = 4096;
  /// Queries that pass over a row together, so that it is converted once.
  static constexpr int kMaxTileQueries = Lanes::kTileQueries;
  static_assert(kMaxTileQueries == 4 || kMaxTileQueries == 6);

  /// Calls tile.operator()<count>(first) for tiles of queries, which are about equally large.
  template <typename Tile>
  KVREPLAY_INLINE static void for_each_query_tile(std::int64_t query_count, Tile tile) {
    std::int64_t tiles = (query_count + kMaxTileQueries - 1) / kMaxTileQueries;
    for (std::int64_t first = 0; tiles > 0; --tiles) {
      const std::int64_t count = (query_count - first + tiles - 1) / tiles;
      switch (count) {
        case 1:
          tile.template operator()<1>(first);
          break;
        case 2:
          tile.template operator()<2>(first);
          break;
        case 3:
          tile.template operator()<3>(first);
          break;
        case 4:
          tile.template operator()<4>(first);
          break;
        default:
          if constexpr (kMaxTileQueries == 6) {
            if (count == 5) {
              tile.template operator()<5>(first);
            } else {
              tile.template operator()<6>(first);
            }
          }
          break;
      }
      first += count;
    }
  }

  /// The number of rows that gives a tile of kAccumulators sums; at most 4.
  static constexpr int tile_rows(int queries) {
    const int rows = Lanes::kAccumulators / queries;
    return rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
  }

  /// The lanes' sums of kQueries queries and kRows rows, in columns from `column` on. kDim: the
  /// dimension, or 0 for `dim`.
  template <int kQueries, int kRows, int kDim, typename Rows, typename Row>
  KVREPLAY_INLINE static void score_tile(const float* queries, const Rows& rows, const Row* row,
                                         std::int64_t dim, int column, Lanes (*sum)[4]) {
    Lanes total[kQueries][kRows];
    KVREPLAY_UNROLL
    for (int q = 0; q < kQueries; ++q) {
      KVREPLAY_UNROLL
      for (int r = 0; r < kRows; ++r) total[q][r] = Lanes::all(0.0f);
    }
    const auto step = [&](std::int64_t i, auto load, auto) KVREPLAY_INLINE {
      decltype(rows.load_run(row[0], i, load)) run[kRows];
      KVREPLAY_UNROLL
      for (int r = 0; r < kRows; ++r) run[r] = rows.load_run(row[r], i, load);
      KVREPLAY_UNROLL
      for (int q = 0; q < kQueries; ++q) {
        const Lanes query = load(queries + q * dim + i);
        KVREPLAY_UNROLL
        for (int r = 0; r < kRows; ++r) total[q][r] = rows.accumulate(query, run[r], total[q][r]);
      }
    };
    if constexpr (kDim > 0) {
      const auto load = [](const auto* from) KVREPLAY_INLINE { return Lanes::load(from); };
      KVREPLAY_UNROLL
      for (int i = 0; i < kDim; i += kWidth) step(i, load, 0);
    } else {
      for_each_run(dim, step);
    }
    KVREPLAY_UNROLL
    for (int q = 0; q < kQueries; ++q) {
      KVREPLAY_UNROLL
      for (int r = 0; r < kRows; ++r) sum[q][column + r] = total[q][r];
    }
  }

  /// Computes scores[q * stride + first + n] for kQueries queries and n < count <= kBlockRows rows.
  template <int kQueries, int kDim, typename Rows>
  static void score_block(const float* queries, const Rows& rows, std::int64_t first,
                          std::int64_t count, std::int64_t dim, bool fetches, float* scores,
                          std::int64_t stride) {
    constexpr int kRows = tile_rows(kQueries);
    Lanes part[kQueries][kBlockRows / 4];
    for (std::int64_t n = 0; n < count; n += 4) {
      if (fetches) rows.fetch(first + n, first + n + 4);
      Lanes sum[kQueries][4];
      KVREPLAY_UNROLL
      for (int tile = 0; tile < 4; tile += kRows) {
        decltype(rows.row(0)) row[kRows];
        KVREPLAY_UNROLL
        for (int r = 0; r < kRows; ++r) {
          // The last block's last row stands for those beyond it, whose scores are not stored.
          row[r] = rows.row(first + smaller(n + tile + r, count - 1));
        }
        score_tile<kQueries, kRows, kDim>(queries, rows, row, dim, tile, sum);
      }
      KVREPLAY_UNROLL
      for (int q = 0; q < kQueries; ++q) {
        part[q][n / 4] = Lanes::quarter4(sum[q][0], sum[q][1], sum[q][2], sum[q][3]);
      }
    }
    for (std::int64_t n = (count + 3) / 4; n < kBlockRows / 4; ++n) {
      for (int q = 0; q < kQueries; ++q) part[q][n] = Lanes::all(0.0f);
    }
    KVREPLAY_UNROLL
    for (int q = 0; q < kQueries; ++q) {
      const Lanes totals = Lanes::finish4(part[q][0], part[q][1], part[q][2], part[q][3]);
      float* const to = scores + q * stride + first;
      if (count == kBlockRows) {
        totals.store(to);
      } else {
        totals.store_first(to, static_cast<int>(count));
      }
    }
  }

  /// Processes rows in blocks that stay in the first-level cache while each tile of queries passes
  /// over them. The hardware fetches consecutive rows while a second tile is busy with the block,
  /// and keeps up with one query; a single larger tile would wait for it.
  template <typename Rows>
  static void score(const float* queries, std::int64_t query_count, const Rows& rows,
                    std::int64_t row_count, std::int64_t dim, float* scores, std::int64_t stride) {
    const bool fetches = !Rows::kForeseen || query_count <= kMaxTileQueries;
    for (std::int64_t begin = 0; begin < row_count; begin += kBlockRows) {
      const std::int64_t count = smaller(kBlockRows, row_count - begin);
      for_each_query_tile(query_count, [&]<int kQueries>(std::int64_t q) KVREPLAY_INLINE {
        score_block<kQueries, 0>(queries + q * dim, rows, begin, count, dim, fetches && q == 0,
                                 scores + q * stride, stride);
      });
    }
  }

  template <typename Rows>
  static void score_one(const float* query, const Rows& rows, std::int64_t row_count,
                        std::int64_t dim, float* scores) {
    for (std::int64_t begin = 0; begin < row_count; begin += kBlockRows) {
      const std::int64_t count = smaller(kBlockRows, row_count - begin);
      if (dim == 128) {
        score_block<1, 128>(query, rows, begin, count, dim, false, scores, 0);
      } else if (dim == 64) {
        score_block<1, 64>(query, rows, begin, count, dim, false, scores, 0);
      } else {
        score_block<1, 0>(query, rows, begin, count, dim, false, scores, 0);
      }
    }
  }

  template <typename T>
  static void score_rows(const float* queries, std::int64_t query_count, const T* rows,
                         std::int64_t row_count, std::int64_t dim, float* scores,
                         std::int64_t stride) {
    if (query_count == 1) {
      using One = Algorithms<typename Lanes::OneQuery>;
      One::score_one(queries, typename One::template PlainRows<T>{rows, dim}, row_count, dim,
                     scores);
    } else {
      score(queries, query_count, PlainRows<T>{rows, dim}, row_count, dim, scores, stride);
    }
  }

  static void score_bounds(const float* queries, std::int64_t query_count, const float* minima,
                           const float* maxima, std::int64_t row_count, std::int64_t dim,
                           float* scores, std::int64_t stride) {
    score(queries, query_count, BoundRows{minima, maxima, dim}, row_count, dim, scores, stride);
  }

  static void score_gathered(const float* queries, std::int64_t query_count, const Half* rows,
                             const std::int32_t* tokens, std::int64_t count, std::int64_t dim,
                             float* scores, std::int64_t stride) {
    score(queries, query_count, GatheredRows{{rows, dim}, tokens, count}, count, dim, scores,
          stride);
  }

  static float dot(const float* a, const float* b, std::int64_t dim) {
    Lanes sum = Lanes::all(0.0f);
    for_each_run(dim, [&](std::int64_t i, auto load, auto)
                          KVREPLAY_INLINE { sum = Lanes::fma(load(a + i), load(b + i), sum); });
    return total(sum);
  }

  /// The sum of the lanes, in the order that every score keeps.
  KVREPLAY_INLINE static float total(Lanes lanes) {
    const Lanes part = Lanes::quarter4(lanes, lanes, lanes, lanes);
    float totals[kWidth];
    Lanes::finish4(part, part, part, part).store(totals);
    return totals[0];
  }

  static bool all_finite(const float* values, std::int64_t n) {
    // 0 times infinity or NaN is NaN, and no sum with NaN is 0.
    Lanes sum = Lanes::all(0.0f);
    for_each_run(n, [&](std::int64_t i, auto load, auto) KVREPLAY_INLINE {
      sum = Lanes::fma(load(values + i), Lanes::all(0.0f), sum);
    });
    return total(sum) == 0.0f;
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

  static SoftmaxTotals softmax(const float* from, float* values, std::int64_t n, float scale) {
    const Lanes scales = Lanes::all(scale);
    const std::int64_t whole = n / kWidth * kWidth;
    // The remainder as a full vector: exp turns the -inf padding into weights of 0.
    float rest[kWidth];
    for (int i = 0; i < kWidth; ++i) {
      rest[i] = whole + i < n ? from[whole + i] * scale : -kInfinity;
    }

    Lanes max_lanes = Lanes::load(rest);
    for (std::int64_t i = 0; i < whole; i += kWidth) {
      max_lanes = Lanes::max(Lanes::load(from + i) * scales, max_lanes);
    }
    const float max = Lanes::largest(max_lanes);

    const Lanes offset = Lanes::all(max);
    Lanes sums = Lanes::all(0.0f);
    for (std::int64_t i = 0; i < whole; i += kWidth) {
      const Lanes weights = exp(Lanes::load(from + i) * scales - offset);
      weights.store(values + i);
      sums = sums + weights;
    }
    const Lanes rest_weights = exp(Lanes::load(rest) - offset);
    rest_weights.store_first(values + whole, static_cast<int>(n - whole));
    const float sum = total(sums + rest_weights);

    const Lanes inverse = Lanes::all(1.0f / sum);
    for_each_run(n, [=](std::int64_t i, auto load, auto store)
                        KVREPLAY_INLINE { store(load(values + i) * inverse, values + i); });
    return {max, sum};
  }

  /// Rows of one head and the tokens among them that are weighted.
  struct WeightedRows {
    const Half* data;
    const std::int32_t* tokens;
    std::int64_t count;
    std::int64_t dim;

    [[nodiscard]] const Half* row(std::int64_t i) const { return data + tokens[i] * dim; }
  };

  /// Adds tokens [begin, end) to kRuns * 16 elements, from element `first` on, of kQueries sums.
  /// Fetches the rows ahead of each one where `fetches`: a block's first tile does.
  template <int kQueries, int kRuns>
  KVREPLAY_INLINE static void weighted_tile(const float* weights, std::int64_t stride,
                                            const WeightedRows& rows, std::int64_t begin,
                                            std::int64_t end, std::int64_t first, bool fetches,
                                            float* sums) {
    Lanes total[kQueries * kRuns];
    KVREPLAY_UNROLL
    for (int q = 0; q < kQueries; ++q) {
      KVREPLAY_UNROLL
      for (int k = 0; k < kRuns; ++k) {
        total[q * kRuns + k] = Lanes::load(sums + q * rows.dim + first + k * kWidth);
      }
    }
    const std::int64_t fetch_end = fetches ? rows.count - kBlockRows : 0;
    for (std::int64_t i = begin; i < end; ++i) {
      if (i < fetch_end) prefetch(rows.row(i + kBlockRows), rows.dim);
      const Half* row = rows.row(i) + first;
      Lanes weight[kQueries];
      KVREPLAY_UNROLL
      for (int q = 0; q < kQueries; ++q) weight[q] = Lanes::all(weights[q * stride + i]);
      KVREPLAY_UNROLL
      for (int k = 0; k < kRuns; ++k) {
        const Lanes run = Lanes::load(row + k * kWidth);
        KVREPLAY_UNROLL
        for (int q = 0; q < kQueries; ++q) {
          total[q * kRuns + k] = Lanes::fma(weight[q], run, total[q * kRuns + k]);
        }
      }
    }
    KVREPLAY_UNROLL
    for (int q = 0; q < kQueries; ++q) {
      KVREPLAY_UNROLL
      for (int k = 0; k < kRuns; ++k) {
        total[q * kRuns + k].store(sums + q * rows.dim + first + k * kWidth);
      }
    }
  }

  template <int kQueries>
  static void weighted_tiles(const float* weights, std::int64_t stride, const WeightedRows& rows,
                             std::int64_t begin, std::int64_t end, bool fetches, float* sums) {
    constexpr int kFit = Lanes::kAccumulators / kQueries;
    constexpr int kRuns = kFit >= 8 ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
    std::int64_t d = 0;
    for (; d + kRuns * kWidth <= rows.dim; d += kRuns * kWidth) {
      weighted_tile<kQueries, kRuns>(weights, stride, rows, begin, end, d, fetches && d == 0, sums);
    }
    for (; d + kWidth <= rows.dim; d += kWidth) {
      weighted_tile<kQueries, 1>(weights, stride, rows, begin, end, d, fetches && d == 0, sums);
    }
    const int rest = static_cast<int>(rows.dim - d);
    for (int q = 0; q < kQueries && rest > 0; ++q) {
      float* sum = sums + q * rows.dim + d;
      Lanes total = Lanes::load_first(sum, rest);
      for (std::int64_t i = begin; i < end; ++i) {
        const Lanes run = Lanes::load_first(rows.row(i) + d, rest);
        total = Lanes::fma(Lanes::all(weights[q * stride + i]), run, total);
      }
      total.store_first(sum, rest);
    }
  }

  /// In blocks of rows that stay in the cache while each tile of queries passes over them. A sum is
  /// one chain in the order of the tokens, whatever the tiles.
  static void weighted_sum(const float* weights, std::int64_t query_count, std::int64_t stride,
                           const Half* data, const std::int32_t* tokens, std::int64_t count,
                           std::int64_t dim, float* sums) {
    constexpr std::int64_t kBlock = 128;
    const WeightedRows rows{data, tokens, count, dim};
    for (std::int64_t i = 0; i < query_count * dim; ++i) sums[i] = 0.0f;
    for (std::int64_t begin = 0, end = 0; begin < count; begin = end) {
      end = smaller(begin + kBlock, count);
      for_each_query_tile(query_count, [&]<int kQueries>(std::int64_t q) KVREPLAY_INLINE {
        weighted_tiles<kQueries>(weights + q * stride, stride, rows, begin, end, q == 0,
                                 sums + q * dim);
      });
    }
  }

  // ---- Selection ----

  static std::int64_t find_at_least(const float* scores, std::int64_t n, float threshold,
                                    std::int32_t* indices) {
    const Lanes thresholds = Lanes::all(threshold);
    std::int64_t found = 0;
    std::int64_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      const std::uint32_t bits = Lanes::at_least(Lanes::load(scores + i), thresholds);
      found += Lanes::list(bits, static_cast<std::int32_t>(i), indices + found);
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

  /// Compares kRows rows, of which the first `count` are meant, with one panel.
  template <int kRows>
  KVREPLAY_INLINE static void panel_tile(const float* const* row, const std::int32_t* list,
                                         std::int64_t count, const PackedCentroids& centroids,
                                         std::int64_t panel, const NearestSoFar& nearest) {
    const float* elements = centroids.panels + panel * centroids.dim * kWidth;
    Lanes sum[kRows];
    KVREPLAY_UNROLL
    for (int r = 0; r < kRows; ++r) sum[r] = Lanes::all(0.0f);
    for (std::int64_t d = 0; d < centroids.dim; ++d) {
      const Lanes element = Lanes::load(elements + d * kWidth);
      KVREPLAY_UNROLL
      for (int r = 0; r < kRows; ++r) sum[r] = Lanes::fma(Lanes::all(row[r][d]), element, sum[r]);
    }
    const Lanes bias = Lanes::load(centroids.bias + panel * kWidth);
    const std::int32_t* const numbers = centroids.numbers + panel * kWidth;
    KVREPLAY_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (r >= count) break;
      const Lanes score = sum[r] + bias;
      const float highest = Lanes::largest(score);
      const std::int32_t n = list[r];
      nearest.highest[n] = highest;
      if (!(highest >= nearest.score[n])) continue;
      // A tie goes to the lower centroid, wherever its panel stands.
      std::uint32_t lanes = Lanes::at_least(score, Lanes::all(highest));
      std::int32_t number = highest > nearest.score[n] ? 0x7fffffff : nearest.centroid[n];
      for (; lanes != 0; lanes &= lanes - 1) {
        const std::int32_t other = numbers[__builtin_ctz(lanes)];
        number = other < number ? other : number;
      }
      nearest.score[n] = highest;
      nearest.centroid[n] = number;
    }
  }

  static void compare_panel(const float* rows, const std::int32_t* list, std::int64_t count,
                            const PackedCentroids& centroids, std::int64_t panel,
                            const NearestSoFar& nearest) {
    constexpr int kRows = Lanes::kTileRows;
    constexpr int kFewRows = (kRows + 1) / 2;
    for (std::int64_t i = 0; i < count; i += kRows) {
      const std::int64_t left = smaller(count - i, kRows);
      const float* row[kRows];
      for (int r = 0; r < kRows; ++r) {
        row[r] = rows + list[i + smaller(r, left - 1)] * centroids.dim;
      }
      if (left > kFewRows) {
        panel_tile<kRows>(row, list + i, left, centroids, panel, nearest);
      } else {
        panel_tile<kFewRows>(row, list + i, left, centroids, panel, nearest);
      }
    }
  }

  static std::int64_t widen_bounds(float* bounds, const float* radii, const float* least,
                                   std::int64_t n, float offset, float slope, std::int32_t* list) {
    const Lanes offsets = Lanes::all(offset);
    const Lanes slopes = Lanes::all(slope);
    std::int64_t found = 0;
    for (std::int64_t i = 0; i < n; i += kWidth) {
      const Lanes bound =
          Lanes::fma(slopes, Lanes::load(radii + i), Lanes::load(bounds + i) + offsets);
      bound.store(bounds + i);
      const std::uint32_t bits = Lanes::at_least(bound, Lanes::load(least + i));
      found += Lanes::list(bits, static_cast<std::int32_t>(i), list + found);
    }
    return found;
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
        if constexpr (kRows == 1) {
          // Panels are read once, from memory. Where the next ones begin, the processor cannot
          // know.
          constexpr std::int64_t kLines = 8;
          for (int p = kCount; p < 2 * kCount; ++p) {
            const T* next = panels + (panel + p) * product.panel_stride;
            for (std::int64_t i = 0; i < kLines; ++i) {
              __builtin_prefetch(next + i * (64 / static_cast<std::int64_t>(sizeof(T))), 0, 2);
            }
          }
        }
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
