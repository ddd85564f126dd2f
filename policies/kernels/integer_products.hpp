#pragma once

#include <cstdint>

#include "base/half.hpp"

namespace kvreplay::kernels {

/// Elements of a matrix's row, or of a vector that it is multiplied by, that share a scale.
inline constexpr std::int64_t kGroup = 32;

/// A matrix [16 * panels outputs, inputs] whose weights are integers of `bits` = 8 or 4 times a
/// scale per output and 32 inputs. The groups of a panel of 16 outputs follow each other. Of 8 bits
/// a group has [8, 16, 4] signed bytes: byte (j, l, b) is input 4 j + b of output l. Of 4 bits it
/// has [4, 16, 4] bytes: the lower half of byte (j, l, b), less 8, is input 4 j + b of output l,
/// the upper half, less 8, is input 16 + 4 j + b. Inputs beyond the last are stored as 0.
struct IntegerPanels {
  const std::uint8_t* weights = nullptr;  ///< [panels, groups, 64 * bits]
  const Half* scales = nullptr;           ///< [panels, groups, 16]
};

/// Rows as integers from -127 to 127 times a scale per 32 elements, padded with 0 to whole groups.
struct IntegerRows {
  const std::int8_t* values = nullptr;  ///< [rows, groups, 32]
  const float* scales = nullptr;        ///< [rows, groups]
  const std::int32_t* sums = nullptr;   ///< [rows, groups]: of a group's values
};

/// products[r, 16 p + l] = sum_g (rows[r, g] . panels[p, g, l]) (row_scale[r, g] scale[p, g, l]).
/// The products of a group's integers are summed exactly, below 2^24, in integers; a sum is then
/// one chain of fused multiply-adds in the order of g, its second factor rounded to a float. So it
/// has the same bits on every instruction set, and whatever the number of rows.
struct IntegerProduct {
  IntegerRows rows{};
  std::int64_t row_count = 0;
  std::int64_t groups = 0;
  std::int64_t panel_count = 0;
  float* products = nullptr;  ///< [row_count, 16 * panel_count]
  std::int64_t product_stride = 0;
};

/// CodedRows in memory: panels of 16 rows, whose steps of 64 bytes follow each other. Of 8 bits,
/// byte (l, b) of step j is element 4 j + b of row l, plus 128. Of 4 bits, the lower half of byte
/// (l, b) is element 8 j + b of row l, plus 8, and the upper half is element 8 j + 4 + b. Elements
/// beyond the last may be anything: the queries are 0 there. Rows beyond the last fill their panel.
struct CodedPanels {
  const std::uint8_t* codes = nullptr;  ///< [panels, steps, 64]
  const Half* scales = nullptr;         ///< [panels, 16]
  std::int64_t row_count = 0;
  std::int64_t steps = 0;
};

/// Queries for CodedPanels, padded with 0 to whole steps.
struct CodedQueries {
  const std::int8_t* values = nullptr;  ///< [queries, steps, 4 (8 bits) or 8 (4 bits)]
  const float* scales = nullptr;        ///< [queries]
  const std::int32_t* sums = nullptr;   ///< [queries]: of a query's values
  const float* offsets = nullptr;       ///< [queries]
  std::int64_t count = 0;
};

/// Of one instruction set; dispatch.cpp picks.
struct IntegerKernels {
  void (*product8)(const IntegerProduct& product, const IntegerPanels& panels);
  void (*product4)(const IntegerProduct& product, const IntegerPanels& panels);
  void (*quantise_row)(const float* row, std::int64_t n, std::int8_t* values, float* scales,
                       std::int32_t* sums);
  /// CodedRows::score().
  void (*score8)(const CodedQueries& queries, const CodedPanels& rows, float* scores,
                 std::int64_t score_stride);
  void (*score4)(const CodedQueries& queries, const CodedPanels& rows, float* scores,
                 std::int64_t score_stride);
};

extern const IntegerKernels kScalarIntegerKernels;
#if defined(__x86_64__)
extern const IntegerKernels kAvx2IntegerKernels;
extern const IntegerKernels kVnniIntegerKernels;
#endif

}  // namespace kvreplay::kernels
