#if defined(__x86_64__)
#include "policies/kernels/integer_algorithms.hpp"
#include "policies/kernels/lanes_avx2.hpp"

namespace kvreplay::kernels {
namespace {

KVREPLAY_INLINE inline __m256i load(const std::uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

/// The sum of neighbours.
KVREPLAY_INLINE inline __m256i add_pairs(__m256i sixteens) {
  return _mm256_madd_epi16(sixteens, _mm256_set1_epi16(1));
}

struct Groups {
  static constexpr int kTileRows = 4;

  struct Bits8 {
    static constexpr std::int64_t kBytes = 512;
    explicit Bits8(const std::uint8_t* from) : weights(from) {}
    [[nodiscard]] KVREPLAY_INLINE LanesAvx2 dot(const std::int8_t* row,
                                                std::int32_t /*sum*/) const {
      __m256i low = _mm256_setzero_si256();
      __m256i high = _mm256_setzero_si256();
      KVREPLAY_UNROLL
      for (int j = 0; j < 8; ++j) {
        const __m256i values = _mm256_set1_epi32(four_of(row + 4 * j));
        low = _mm256_add_epi32(low, product(load(weights + 64 * j), values));
        high = _mm256_add_epi32(high, product(load(weights + 64 * j + 32), values));
      }
      return {_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)};
    }
    /// |w| times w's sign times the value. Two of them are 2 * 128 * 127 at most, and fit.
    KVREPLAY_INLINE static __m256i product(__m256i weight, __m256i values) {
      return add_pairs(
          _mm256_maddubs_epi16(_mm256_abs_epi8(weight), _mm256_sign_epi8(values, weight)));
    }
    const std::uint8_t* weights;
  };

  struct Bits4 {
    static constexpr std::int64_t kBytes = 256;
    explicit Bits4(const std::uint8_t* from) : weights(from) {}
    [[nodiscard]] KVREPLAY_INLINE LanesAvx2 dot(const std::int8_t* row, std::int32_t sum) const {
      // Sixteen products of 15 * 127 at most fit in 16 bits.
      __m256i low = _mm256_setzero_si256();
      __m256i high = _mm256_setzero_si256();
      KVREPLAY_UNROLL
      for (int j = 0; j < 4; ++j) {
        const __m256i first = _mm256_set1_epi32(four_of(row + 4 * j));
        const __m256i second = _mm256_set1_epi32(four_of(row + 16 + 4 * j));
        low = _mm256_add_epi16(low, product(load(weights + 64 * j), first, second));
        high = _mm256_add_epi16(high, product(load(weights + 64 * j + 32), first, second));
      }
      const __m256i offset = _mm256_set1_epi32(-8 * sum);
      return {_mm256_cvtepi32_ps(_mm256_add_epi32(add_pairs(low), offset)),
              _mm256_cvtepi32_ps(_mm256_add_epi32(add_pairs(high), offset))};
    }
    KVREPLAY_INLINE static __m256i product(__m256i two, __m256i first, __m256i second) {
      const __m256i mask = _mm256_set1_epi8(15);
      const __m256i upper = _mm256_and_si256(_mm256_srli_epi16(two, 4), mask);
      return _mm256_add_epi16(_mm256_maddubs_epi16(_mm256_and_si256(two, mask), first),
                              _mm256_maddubs_epi16(upper, second));
    }
    const std::uint8_t* weights;
  };
};

}  // namespace

constinit const IntegerKernels kAvx2IntegerKernels = IntegerAlgorithms<LanesAvx2, Groups>::table();

}  // namespace kvreplay::kernels
#endif
