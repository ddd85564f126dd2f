#include "policies/kernels/coded_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/policies/kernels/support.hpp"

namespace kvreplay::kernels {
namespace {

constexpr float kUnwritten = -12345.0F;

/// A row's codes and scale by the rule of coded_rows.hpp, one element after the other.
struct Coded {
  Coded(const float* row, std::int64_t dim, int most, bool half_scale) {
    float largest = 0;
    for (std::int64_t d = 0; d < dim; ++d) largest = std::max(largest, std::fabs(row[d]));
    scale = largest / static_cast<float>(most);
    if (half_scale) scale = kvreplay::to_float(kvreplay::to_half(scale));
    if (largest < 1e-30F) scale = 0;
    for (std::int64_t d = 0; d < dim; ++d) {
      const float level = scale == 0 ? 0 : std::nearbyint(row[d] * (1 / scale));
      codes.push_back(std::clamp(static_cast<int>(level), -most, most));
    }
  }
  float scale;
  std::vector<int> codes;
};

float expected_score(const float* query, float offset, const float* row, std::int64_t dim,
                     int bits) {
  const Coded q(query, dim, 127, false);
  const Coded k(row, dim, bits == 8 ? 127 : 7, true);
  std::int64_t sum = 0;
  for (std::size_t d = 0; d < k.codes.size(); ++d) sum += std::int64_t{q.codes[d]} * k.codes[d];
  return std::fma(static_cast<float>(sum), k.scale * q.scale, offset);
}

CodedRows coded(const std::vector<float>& rows, std::int64_t dim, int bits) {
  CodedRows result(dim, bits);
  result.resize(std::ssize(rows) / dim);
  for (std::int64_t n = 0; n < result.count(); ++n) result.set(n, rows.data() + n * dim);
  return result;
}

/// Scores of all rows on every instruction set against the reference, bit for bit.
void expect_reference(const std::vector<float>& queries, const std::vector<float>& rows,
                      std::int64_t dim, int bits) {
  const std::int64_t query_count = std::ssize(queries) / dim;
  const std::int64_t row_count = std::ssize(rows) / dim;
  const std::int64_t stride = row_count + 3;
  const std::vector<float> offsets = random_floats(query_count, 11);
  std::vector<float> expected(at(query_count * stride), kUnwritten);
  for (std::int64_t q = 0; q < query_count; ++q) {
    for (std::int64_t n = 0; n < row_count; ++n) {
      expected[at(q * stride + n)] = expected_score(queries.data() + q * dim, offsets[at(q)],
                                                    rows.data() + n * dim, dim, bits);
    }
  }
  CodedRows all = coded(rows, dim, bits);
  ASSERT_EQ(all.count(), row_count);
  for (const Isa isa : available_isas()) {
    const WithIsa with(isa);
    std::vector<float> scores(expected.size(), kUnwritten);
    all.score(queries.data(), query_count, offsets.data(), scores.data(), stride);
    ASSERT_EQ(bits_of(scores), bits_of(expected))
        << isa_name(isa) << " " << bits << " bits, " << query_count << " x " << row_count << " x "
        << dim;
  }
}

TEST(CodedRows, EveryScoreIsTheReferenceBitForBit) {
  for (const int bits : {8, 4}) {
    for (const std::int64_t dim : kAwkwardSizes) {
      for (const std::int64_t rows : {1, 15, 16, 17, 33, 64, 66, 130}) {
        for (const std::int64_t queries : {1, 2, 3, 4, 5, 6, 7, 13}) {
          ASSERT_NO_FATAL_FAILURE(expect_reference(random_floats(queries * dim, 3),
                                                   random_floats(rows * dim, 4), dim, bits));
        }
      }
    }
  }
}

TEST(CodedRows, ExtremeCodesOverflowNothing) {
  // Signs that agree, disagree and alternate: the largest sums of neighbours, pairs and rows.
  for (const int bits : {8, 4}) {
    for (const std::int64_t dim : {3L, 64L, 128L, 4096L, 65536L}) {
      std::vector<float> queries;
      std::vector<float> rows;
      for (std::int64_t i = 0; i < 6 * dim; ++i) {
        const std::int64_t d = i % dim;
        const bool negative = i / dim == 1 || (i / dim == 2 && d % 2 == 0) ||
                              (i / dim == 3 && d % 3 == 0) || (i / dim == 4 && d < dim / 2);
        queries.push_back(negative ? -5.0F : 5.0F);
        rows.push_back(negative ? -300.0F : 300.0F);
      }
      ASSERT_NO_FATAL_FAILURE(expect_reference(queries, rows, dim, bits));
    }
  }
}

TEST(CodedRows, ZerosAndWhatIsTooSmallScoreTheOffset) {
  constexpr std::int64_t kDim = 20;
  std::vector<float> rows = random_floats(3 * kDim, 5);
  std::fill_n(rows.begin(), kDim, 0.0F);
  std::fill_n(rows.begin() + kDim, kDim, 1e-9F);  // its scale is 0 as a half
  std::vector<float> queries = random_floats(3 * kDim, 6);
  std::fill_n(queries.begin() + kDim, kDim, 0.0F);
  std::fill_n(queries.begin() + 2 * kDim, kDim, -1e-31F);
  for (const int bits : {8, 4}) {
    ASSERT_NO_FATAL_FAILURE(expect_reference(queries, rows, kDim, bits));
    CodedRows all = coded(rows, kDim, bits);
    const std::vector<float> offsets{1, 2, 3};
    std::vector<float> scores(9);
    all.score(queries.data(), 3, offsets.data(), scores.data(), 3);
    EXPECT_EQ(scores[0], 1);
    EXPECT_EQ(scores[1], 1);
    EXPECT_NE(scores[2], 1);
    EXPECT_EQ(std::vector(scores.begin() + 3, scores.end()),
              (std::vector<float>{2, 2, 2, 3, 3, 3}));
  }
}

TEST(CodedRows, CodesAreLimitedWhereTheScaleRoundsDown) {
  // Magnitudes whose scale is a subnormal half, far from the ratio to which it is rounded.
  std::vector<float> rows;
  for (int n = 0; n < 40; ++n) {
    for (int d = 0; d < 8; ++d) rows.push_back(static_cast<float>((d - 4) * (n + 1)) * 3e-7F);
  }
  for (const int bits : {8, 4}) {
    ASSERT_NO_FATAL_FAILURE(expect_reference(random_floats(16, 7), rows, 8, bits));
  }
}

TEST(CodedRows, EqualRowsTieAndTheLowerIndexIsTaken) {
  constexpr std::int64_t kDim = 24;
  const std::vector<float> row = random_floats(kDim, 8);
  std::vector<float> rows;
  for (int n = 0; n < 100; ++n) rows.insert(rows.end(), row.begin(), row.end());
  const float offset = 0;
  for (const int bits : {8, 4}) {
    CodedRows all = coded(rows, kDim, bits);
    for (const Isa isa : available_isas()) {
      const WithIsa with(isa);
      std::vector<float> scores(100);
      all.score(row.data(), 1, &offset, scores.data(), 100);
      std::vector<std::int32_t> best(3);
      top_k(scores.data(), 100, 3, best);
      EXPECT_EQ(best, (std::vector<std::int32_t>{0, 1, 2}));
    }
  }
}

TEST(CodedRows, ARowMayFollowAtAnyTime) {
  constexpr std::int64_t kDim = 33;
  const std::vector<float> rows = random_floats(70 * kDim, 9);
  const std::vector<float> query = random_floats(2 * kDim, 10);
  const std::vector<float> offsets(2);
  for (const int bits : {8, 4}) {
    CodedRows some(kDim, bits);
    CodedRows all = coded(rows, kDim, bits);
    std::vector<float> expected(140);
    all.score(query.data(), 2, offsets.data(), expected.data(), 70);
    for (std::int64_t n = 0; n < 70; ++n) {
      some.resize(n + 1);
      some.set(n, rows.data() + n * kDim);
      std::vector<float> scores(140);
      some.score(query.data(), 2, offsets.data(), scores.data(), 70);
      EXPECT_TRUE(std::equal(scores.begin(), scores.begin() + n + 1, expected.begin()));
      EXPECT_TRUE(std::equal(scores.begin() + 70, scores.begin() + 71 + n, expected.begin() + 70));
    }
  }
}

TEST(CodedRows, AScoreIsWithinItsRoundingsOfTheInnerProduct) {
  constexpr std::int64_t kDim = 128;
  const std::vector<float> rows = random_floats(500 * kDim, 12);
  const std::vector<float> query = random_floats(kDim, 13);
  const float offset = 0;
  for (const int bits : {8, 4}) {
    CodedRows all = coded(rows, kDim, bits);
    std::vector<float> scores(500);
    all.score(query.data(), 1, &offset, scores.data(), 500);
    for (std::int64_t n = 0; n < 500; ++n) {
      const float* const row = rows.data() + n * kDim;
      const Coded q(query.data(), kDim, 127, false);
      const Coded k(row, kDim, bits == 8 ? 127 : 7, true);
      // Half a step each; a limited code may be off by a little more.
      const float of_query = 0.51F * q.scale;
      const float of_row = 0.6F * k.scale;
      float bound = 1e-4F;
      for (std::int64_t d = 0; d < kDim; ++d) {
        bound +=
            std::fabs(row[d]) * of_query + std::fabs(query[at(d)]) * of_row + of_query * of_row;
      }
      EXPECT_NEAR(scores[at(n)], dot(query.data(), row, kDim), bound);
    }
  }
}

}  // namespace
}  // namespace kvreplay::kernels
