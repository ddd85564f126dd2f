// FIPS 180-4, in plain C++ and, for x86-64 processors that have them, by the SHA instructions: several
// times as fast. Of our own, so that the program needs no library of cryptography.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "base/hash.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace kvreplay {
namespace {

constexpr std::size_t kBlockBytes = 64;
using HashWords = std::array<std::uint32_t, 8>;

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> kRounds{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(const std::byte* bytes) {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word = word << 8 | std::to_integer<std::uint32_t>(bytes[i]);
  return word;
}

void mix_plainly(HashWords& hash, const std::byte* data, std::size_t blocks) {
  for (; blocks > 0; --blocks, data += kBlockBytes) {
    std::array<std::uint32_t, 64> words{};
    for (std::size_t i = 0; i < 16; ++i) words[i] = big_endian(data + 4 * i);
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t a = words[i - 15];
      const std::uint32_t b = words[i - 2];
      words[i] = words[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + words[i - 7] +
                 (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
    }
    auto [a, b, c, d, e, f, g, h] = hash;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                  ((e & f) ^ (~e & g)) + kRounds[i] + words[i];
      const std::uint32_t second =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = d + first;
      d = c;
      c = b;
      b = a;
      a = first + second;
    }
    const HashWords mixed{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < hash.size(); ++i) hash[i] += mixed[i];
  }
}

#if defined(__x86_64__)
bool has_sha_instructions() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx & bit_SSE4_1) == 0) return false;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & 1U << 29) != 0;
}

/// The instructions keep the eight words as two registers: abef and cdgh, the highest first.
__attribute__((target("sha,sse4.1"))) void mix_by_instructions(HashWords& hash,
                                                               const std::byte* data,
                                                               std::size_t blocks) {
  const auto load = [](const auto* from) __attribute__((target("sha,sse4.1"))) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  };
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i cdab = _mm_shuffle_epi32(load(&hash[0]), 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(load(&hash[4]), 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
  for (; blocks > 0; --blocks, data += kBlockBytes) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i last[4] = {};  // 16 words: those of this round of four, and the 12 before it
    for (std::size_t i = 0; i < 16; ++i) {
      __m128i& words = last[i % 4];
      if (i < 4) {
        words = _mm_shuffle_epi8(load(data + 16 * i), swap);
      } else {
        const __m128i& before = last[(i + 3) % 4];
        words = _mm_add_epi32(_mm_sha256msg1_epu32(words, last[(i + 1) % 4]),
                              _mm_alignr_epi8(before, last[(i + 2) % 4], 4));
        words = _mm_sha256msg2_epu32(words, before);
      }
      const __m128i added = _mm_add_epi32(words, load(&kRounds[4 * i]));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, added);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(added, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  const auto store = [](std::uint32_t * to, __m128i words) __attribute__((target("sha,sse4.1"))) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), words);
  };
  store(&hash[0], _mm_blend_epi16(feba, dchg, 0xf0));
  store(&hash[4], _mm_alignr_epi8(dchg, feba, 8));
}
#endif

void mix(HashWords& hash, const std::byte* data, std::size_t blocks) {
#if defined(__x86_64__)
  static const bool by_instructions = has_sha_instructions();
  if (by_instructions) return mix_by_instructions(hash, data, blocks);
#endif
  mix_plainly(hash, data, blocks);
}

}  // namespace

struct Sha256::State {
  HashWords hash{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, kBlockBytes> block{};  // what is left of `bytes` after whole blocks
  std::uint64_t bytes = 0;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  const std::size_t held = state_->bytes % kBlockBytes;
  state_->bytes += bytes.size();
  if (held > 0) {
    const std::size_t taken = std::min(bytes.size(), kBlockBytes - held);
    std::copy_n(bytes.data(), taken, &state_->block[held]);
    if (held + taken < kBlockBytes) return;
    mix(state_->hash, state_->block.data(), 1);
    bytes = bytes.subspan(taken);
  }
  const std::size_t blocks = bytes.size() / kBlockBytes;
  mix(state_->hash, bytes.data(), blocks);
  bytes = bytes.subspan(blocks * kBlockBytes);
  std::copy(bytes.begin(), bytes.end(), state_->block.begin());
}

std::string Sha256::hex() {
  // A one bit, zeros, and the length in 64 bits, up to the end of a block.
  const std::uint64_t bits = 8 * state_->bytes;
  std::size_t size = kBlockBytes - state_->bytes % kBlockBytes;
  if (size < 9) size += kBlockBytes;
  std::array<std::byte, 2 * kBlockBytes> end{std::byte{0x80}};
  for (std::size_t i = 0; i < 8; ++i) {
    end[size - 1 - i] = static_cast<std::byte>(bits >> 8 * i & 0xff);
  }
  update(std::span(end).first(size));
  static const char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint32_t word : state_->hash) {
    for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[word >> shift & 15];
  }
  return text;
}

}  // namespace kvreplay
