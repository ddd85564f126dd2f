#if defined(__x86_64__)
#include "policies/kernels/integer_algorithms.hpp"
#include "policies/kernels/lanes_avx512.hpp"

namespace kvreplay::kernels {
namespace {

/// Eight registers of bytes without sign, each `kOffset` above its weight: the instruction takes
/// one factor without a sign. The row's sum takes the offset out.
template <int kOffset>
struct Unsigned {
  __m512i weights[8];
  [[nodiscard]] KVREPLAY_INLINE LanesAvx512 dot(const std::int8_t* row, std::int32_t sum) const {
    __m512i total = _mm512_set1_epi32(-kOffset * sum);
    KVREPLAY_UNROLL
    for (int j = 0; j < 8; ++j)
      total = _mm512_dpbusd_epi32(total, weights[j], _mm512_set1_epi32(four_of(row + 4 * j)));
    return {_mm512_cvtepi32_ps(total)};
  }
};

struct Groups {
  static constexpr int kTileRows = 8;

  struct Bits8 : Unsigned<128> {
    static constexpr std::int64_t kBytes = 512;
    KVREPLAY_INLINE explicit Bits8(const std::uint8_t* from) : Unsigned<128>() {
      KVREPLAY_UNROLL
      for (int j = 0; j < 8; ++j) {
        weights[j] = _mm512_xor_si512(_mm512_loadu_si512(from + 64 * j), _mm512_set1_epi8(-128));
      }
    }
  };

  struct Bits4 : Unsigned<8> {
    static constexpr std::int64_t kBytes = 256;
    KVREPLAY_INLINE explicit Bits4(const std::uint8_t* from) : Unsigned<8>() {
      const __m512i mask = _mm512_set1_epi8(15);
      KVREPLAY_UNROLL
      for (int j = 0; j < 4; ++j) {
        const __m512i two = _mm512_loadu_si512(from + 64 * j);
        weights[j] = _mm512_and_si512(two, mask);
        weights[4 + j] = _mm512_and_si512(_mm512_srli_epi16(two, 4), mask);
      }
    }
  };

  struct Sum {
    __m512i lanes;
    static Sum all(std::int32_t value) { return {_mm512_set1_epi32(value)}; }
    [[nodiscard]] LanesAvx512 floats() const { return {_mm512_cvtepi32_ps(lanes)}; }
  };

  /// Twelve sums for six queries: g++ 12 would not keep more in registers.
  static constexpr int tile_panels(int queries) { return queries <= 3 ? 4 : 2; }

  struct Codes8 {
    static constexpr std::int64_t kElements = 4;
    static constexpr std::int32_t kTakenOut = 128;
    static Codes8 load(const std::uint8_t* from) { return {_mm512_loadu_si512(from)}; }
    static __m512i values(const std::int8_t* query) { return _mm512_set1_epi32(four_of(query)); }
    [[nodiscard]] KVREPLAY_INLINE Sum add(__m512i query, Sum sum) const {
      return {_mm512_dpbusd_epi32(sum.lanes, codes, query)};
    }
    __m512i codes;
  };

  struct Codes4 {
    static constexpr std::int64_t kElements = 8;
    static constexpr std::int32_t kTakenOut = 8;
    struct Values {
      __m512i first;
      __m512i second;
    };
    KVREPLAY_INLINE static Codes4 load(const std::uint8_t* from) {
      const __m512i mask = _mm512_set1_epi8(15);
      const __m512i two = _mm512_loadu_si512(from);
      return {_mm512_and_si512(two, mask), _mm512_and_si512(_mm512_srli_epi16(two, 4), mask)};
    }
    KVREPLAY_INLINE static Values values(const std::int8_t* query) {
      return {_mm512_set1_epi32(four_of(query)), _mm512_set1_epi32(four_of(query + 4))};
    }
    [[nodiscard]] KVREPLAY_INLINE Sum add(Values query, Sum sum) const {
      return {_mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum.lanes, low, query.first), high,
                                  query.second)};
    }
    __m512i low;
    __m512i high;
  };
};

}  // namespace

constinit const IntegerKernels kVnniIntegerKernels =
    IntegerAlgorithms<LanesAvx512, Groups>::table();

}  // namespace kvreplay::kernels
#endif
