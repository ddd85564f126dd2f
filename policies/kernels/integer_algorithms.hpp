#pragma once

#include <cstdint>

#include "policies/kernels/algorithms.hpp"
#include "policies/kernels/integer_products.hpp"

namespace kvreplay::kernels {

/// Four of a row's integers, as one.
KVREPLAY_INLINE inline std::int32_t four_of(const std::int8_t* row) {
  std::int32_t bits;
  __builtin_memcpy(&bits, row, sizeof bits);
  return bits;
}

/// The products of integer_products.hpp over `Lanes`, sixteen floats, and the groups of weights
/// that it multiplies by a row's: Groups::Bits8 and Bits4, made of a group's bytes, whose dot(row,
/// sum) is the product with 32 integers of the given sum, as floats. For rows in codes, Groups::Sum
/// is sixteen integers, and Groups::Codes8 and Codes4 are the codes of one step of a panel: add()
/// adds their products with values(), a query's integers of that step. As in algorithms.hpp,
/// everything depends on these types.
template <typename Lanes, typename Groups>
struct IntegerAlgorithms {
  static constexpr IntegerKernels table() {
    return {.product8 = product<typename Groups::Bits8>,
            .product4 = product<typename Groups::Bits4>,
            .quantise_row = quantise_row,
            .score8 = score<typename Groups::Codes8>,
            .score4 = score<typename Groups::Codes4>};
  }

  /// Multiplies kRows rows by one panel.
  template <typename Group, int kRows>
  KVREPLAY_INLINE static void tile(const IntegerProduct& product, const IntegerPanels& panels,
                                   std::int64_t row, std::int64_t panel) {
    const std::int64_t groups = product.groups;
    const std::uint8_t* weights = panels.weights + panel * groups * Group::kBytes;
    const Half* scales = panels.scales + panel * groups * 16;
    const std::int8_t* values = product.rows.values + row * groups * kGroup;
    const float* row_scales = product.rows.scales + row * groups;
    const std::int32_t* sums = product.rows.sums + row * groups;
    Lanes total[kRows];
    KVREPLAY_UNROLL
    for (int r = 0; r < kRows; ++r) total[r] = Lanes::all(0.0f);
    for (std::int64_t g = 0; g < groups; ++g) {
      const Group group(weights + g * Group::kBytes);
      const Lanes scale = Lanes::load(scales + g * 16);
      KVREPLAY_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t at = r * groups + g;
        total[r] = Lanes::fma(group.dot(values + at * kGroup, sums[at]),
                              scale * Lanes::all(row_scales[at]), total[r]);
      }
    }
    KVREPLAY_UNROLL
    for (int r = 0; r < kRows; ++r) {
      total[r].store(product.products + (row + r) * product.product_stride + panel * 16);
    }
  }

  template <typename Group>
  static void product(const IntegerProduct& product, const IntegerPanels& panels) {
    constexpr int kRows = Groups::kTileRows;
    std::int64_t row = 0;
    for (; row + kRows <= product.row_count; row += kRows) {
      for (std::int64_t panel = 0; panel < product.panel_count; ++panel) {
        tile<Group, kRows>(product, panels, row, panel);
      }
    }
    for (; row < product.row_count; ++row) {
      for (std::int64_t panel = 0; panel < product.panel_count; ++panel) {
        tile<Group, 1>(product, panels, row, panel);
      }
    }
  }

  /// Panels of a block, whose place in the next block is fetched meanwhile.
  static constexpr std::int64_t kBlockPanels = 16;

  /// Scores of kPanels panels, `apart` panels from one to the next and the first of them `panel`,
  /// with kQueries queries from `first` on.
  template <typename Codes, int kQueries, int kPanels>
  KVREPLAY_INLINE static void score_panels(const CodedQueries& queries, std::int64_t first,
                                           const CodedPanels& rows, std::int64_t panel,
                                           std::int64_t apart, float* scores, std::int64_t stride) {
    using Sum = typename Groups::Sum;
    const std::int64_t steps = rows.steps;
    const std::uint8_t* codes = rows.codes + panel * steps * 64;
    const std::int8_t* values = queries.values + first * steps * Codes::kElements;
    Sum total[kQueries][kPanels];
    KVREPLAY_UNROLL
    for (int q = 0; q < kQueries; ++q) {
      KVREPLAY_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        total[q][p] = Sum::all(-Codes::kTakenOut * queries.sums[first + q]);
      }
    }
    for (std::int64_t step = 0; step < steps; ++step) {
      Codes code[kPanels];
      KVREPLAY_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        const std::uint8_t* const from = codes + (p * apart * steps + step) * 64;
        __builtin_prefetch(from + kBlockPanels * steps * 64, 0, 2);
        code[p] = Codes::load(from);
      }
      KVREPLAY_UNROLL
      for (int q = 0; q < kQueries; ++q) {
        const auto value = Codes::values(values + (q * steps + step) * Codes::kElements);
        KVREPLAY_UNROLL
        for (int p = 0; p < kPanels; ++p) total[q][p] = code[p].add(value, total[q][p]);
      }
    }
    KVREPLAY_UNROLL
    for (int p = 0; p < kPanels; ++p) {
      const std::int64_t row = (panel + p * apart) * 16;
      const Lanes scale = Lanes::load(rows.scales + row);
      KVREPLAY_UNROLL
      for (int q = 0; q < kQueries; ++q) {
        const Lanes totals =
            Lanes::fma(total[q][p].floats(), scale * Lanes::all(queries.scales[first + q]),
                       Lanes::all(queries.offsets[first + q]));
        float* const to = scores + (first + q) * stride + row;
        if (row + 16 <= rows.row_count) {
          totals.store(to);
        } else {
          totals.store_first(to, static_cast<int>(rows.row_count - row));
        }
      }
    }
  }

  /// In blocks of panels that stay in the cache while each tile of queries passes over them. A tile
  /// takes its panels from as many places of a block: of 131,072 x 128 codes of 8 bits, one query's
  /// scores take two thirds of the time that they take with panels in sequence.
  template <typename Codes>
  static void score(const CodedQueries& queries, const CodedPanels& rows, float* scores,
                    std::int64_t stride) {
    const std::int64_t panels = (rows.row_count + 15) / 16;
    for (std::int64_t begin = 0; begin < panels; begin += kBlockPanels) {
      Algorithms<Lanes>::for_each_query_tile(
          queries.count, [&]<int kQueries>(std::int64_t first) KVREPLAY_INLINE {
            constexpr int kPanels = Groups::tile_panels(kQueries);
            constexpr std::int64_t kApart = kBlockPanels / kPanels;
            if (begin + kBlockPanels <= panels) {
              for (std::int64_t p = begin; p < begin + kApart; ++p) {
                score_panels<Codes, kQueries, kPanels>(queries, first, rows, p, kApart, scores,
                                                       stride);
              }
              return;
            }
            for (std::int64_t p = begin; p < panels; ++p) {
              score_panels<Codes, kQueries, 1>(queries, first, rows, p, 0, scores, stride);
            }
          });
    }
  }

  /// A group's scale is its largest magnitude / 127, so that values round to -127 ... 127, ties to
  /// even. A group with NaN or infinity has an infinite scale, and products with it are not finite;
  /// one whose largest magnitude is below 1e-30 is 0.
  static void quantise_row(const float* row, std::int64_t n, std::int8_t* values, float* scales,
                           std::int32_t* sums) {
    for (std::int64_t begin = 0; begin < n; begin += kGroup) {
      float padded[kGroup] = {};
      const float* from = row + begin;
      if (n - begin < kGroup) {
        for (std::int64_t i = 0; i < n - begin; ++i) padded[i] = from[i];
        from = padded;
      }
      // Floats without a sign are in the order of their bits; those of NaN are above infinity's.
      std::uint32_t largest = 0;
      for (int i = 0; i < kGroup; ++i) {
        const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, from[i]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
      }
      const bool finite = largest < 0x7f800000u;
      const float magnitude = __builtin_bit_cast(float, largest);
      const bool zero = magnitude < 1e-30f;
      const float inverse = finite && !zero ? 127.0f / magnitude : 0.0f;
      std::int32_t sum = 0;
      for (int i = 0; i < kGroup; ++i) {
        // Adding 1.5 * 2^23 rounds to an integer, which stands in the sum's low bits.
        const float shifted = from[i] * inverse + 12582912.0f;
        const std::int32_t value = __builtin_bit_cast(std::int32_t, shifted) - 0x4b400000;
        values[begin + i] = static_cast<std::int8_t>(finite ? value : 0);
        sum += finite ? value : 0;
      }
      *scales++ = zero ? 0.0f : finite ? magnitude / 127.0f : __builtin_huge_valf();
      *sums++ = sum;
    }
  }
};

}  // namespace kvreplay::kernels
