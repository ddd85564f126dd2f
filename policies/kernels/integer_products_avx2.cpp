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

  struct Sum {
    __m256i low;
    __m256i high;
    static Sum all(std::int32_t value) {
      return {_mm256_set1_epi32(value), _mm256_set1_epi32(value)};
    }
    [[nodiscard]] LanesAvx2 floats() const {
      return {_mm256_cvtepi32_ps(low), _mm256_cvtepi32_ps(high)};
    }
  };

  static constexpr int tile_panels(int) { return 1; }

  struct Codes8 {
    static constexpr std::int64_t kElements = 4;
    static constexpr std::int32_t kTakenOut = 0;
    KVREPLAY_INLINE static Codes8 load(const std::uint8_t* from) {
      const __m256i offset = _mm256_set1_epi8(-128);
      return {_mm256_xor_si256(kernels::load(from), offset),
              _mm256_xor_si256(kernels::load(from + 32), offset)};
    }
    static __m256i values(const std::int8_t* query) { return _mm256_set1_epi32(four_of(query)); }
    [[nodiscard]] KVREPLAY_INLINE Sum add(__m256i query, Sum sum) const {
      return {_mm256_add_epi32(sum.low, Bits8::product(low, query)),
              _mm256_add_epi32(sum.high, Bits8::product(high, query))};
    }
    __m256i low;
    __m256i high;
  };

  struct Codes4 {
    static constexpr std::int64_t kElements = 8;
    static constexpr std::int32_t kTakenOut = 8;
    struct Values {
      __m256i first;
      __m256i second;
    };
    KVREPLAY_INLINE static Codes4 load(const std::uint8_t* from) {
      return {kernels::load(from), kernels::load(from + 32)};
    }
    KVREPLAY_INLINE static Values values(const std::int8_t* query) {
      return {_mm256_set1_epi32(four_of(query)), _mm256_set1_epi32(four_of(query + 4))};
    }
    [[nodiscard]] KVREPLAY_INLINE Sum add(Values query, Sum sum) const {
      // Four products of 15 * 127 at most fit in 16 bits.
      return {
          _mm256_add_epi32(sum.low, add_pairs(Bits4::product(low, query.first, query.second))),
          _mm256_add_epi32(sum.high, add_pairs(Bits4::product(high, query.first, query.second)))};
    }
    __m256i low;
    __m256i high;
  };
};

}  // namespace

constinit const IntegerKernels kAvx2IntegerKernels = IntegerAlgorithms<LanesAvx2, Groups>::table();

}  // namespace kvreplay::kernels
#endif
