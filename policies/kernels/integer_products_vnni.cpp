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
};

}  // namespace

constinit const IntegerKernels kVnniIntegerKernels =
    IntegerAlgorithms<LanesAvx512, Groups>::table();

}  // namespace kvreplay::kernels
#endif
