#include "policies/kernels/integer_algorithms.hpp"
#include "policies/kernels/lanes_scalar.hpp"

namespace kvreplay::kernels {
namespace {

struct Groups {
  static constexpr int kTileRows = 1;

  struct Bits8 {
    static constexpr std::int64_t kBytes = 512;
    explicit Bits8(const std::uint8_t* from) : weights(from) {}
    [[nodiscard]] LanesScalar dot(const std::int8_t* row, std::int32_t /*sum*/) const {
      LanesScalar dots{};
      for (int lane = 0; lane < 16; ++lane) {
        std::int32_t total = 0;
        for (int k = 0; k < kGroup; ++k) {
          total += static_cast<std::int8_t>(weights[k / 4 * 64 + 4 * lane + k % 4]) * row[k];
        }
        dots.lane[lane] = static_cast<float>(total);
      }
      return dots;
    }
    const std::uint8_t* weights;
  };

  struct Bits4 {
    static constexpr std::int64_t kBytes = 256;
    explicit Bits4(const std::uint8_t* from) : weights(from) {}
    [[nodiscard]] LanesScalar dot(const std::int8_t* row, std::int32_t sum) const {
      LanesScalar dots{};
      for (int lane = 0; lane < 16; ++lane) {
        std::int32_t total = -8 * sum;
        for (int k = 0; k < kGroup / 2; ++k) {
          const int two = weights[k / 4 * 64 + 4 * lane + k % 4];
          total += (two & 15) * row[k] + (two >> 4) * row[k + kGroup / 2];
        }
        dots.lane[lane] = static_cast<float>(total);
      }
      return dots;
    }
    const std::uint8_t* weights;
  };

  struct Sum {
    std::int32_t lane[16];
    static Sum all(std::int32_t value) {
      Sum sum;
      for (std::int32_t& each : sum.lane) each = value;
      return sum;
    }
    [[nodiscard]] LanesScalar floats() const {
      LanesScalar floats{};
      for (int i = 0; i < 16; ++i) floats.lane[i] = static_cast<float>(lane[i]);
      return floats;
    }
  };

  static constexpr int tile_panels(int) { return 1; }

  struct Codes8 {
    static constexpr std::int64_t kElements = 4;
    static constexpr std::int32_t kTakenOut = 128;
    static Codes8 load(const std::uint8_t* from) { return {from}; }
    static const std::int8_t* values(const std::int8_t* query) { return query; }
    [[nodiscard]] Sum add(const std::int8_t* query, Sum sum) const {
      for (int i = 0; i < 64; ++i) sum.lane[i / 4] += codes[i] * query[i % 4];
      return sum;
    }
    const std::uint8_t* codes;
  };

  struct Codes4 {
    static constexpr std::int64_t kElements = 8;
    static constexpr std::int32_t kTakenOut = 8;
    static Codes4 load(const std::uint8_t* from) { return {from}; }
    static const std::int8_t* values(const std::int8_t* query) { return query; }
    [[nodiscard]] Sum add(const std::int8_t* query, Sum sum) const {
      for (int i = 0; i < 64; ++i) {
        sum.lane[i / 4] += (codes[i] & 15) * query[i % 4] + (codes[i] >> 4) * query[4 + i % 4];
      }
      return sum;
    }
    const std::uint8_t* codes;
  };
};

}  // namespace

constinit const IntegerKernels kScalarIntegerKernels =
    IntegerAlgorithms<LanesScalar, Groups>::table();

}  // namespace kvreplay::kernels
