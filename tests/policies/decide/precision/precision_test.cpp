#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policies/kernels/quantise.hpp"
#include "tests/policies/decide/precision/precision_driver.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::HasSubstr;

/// Codes of `bits` each, back to back, with the first in the lowest bits, as they would be stored.
std::size_t packed_bytes(const std::vector<std::uint8_t>& codes, int bits) {
  std::vector<std::uint8_t> bytes;
  std::uint32_t pending = 0;
  int filled = 0;
  for (const std::uint8_t code : codes) {
    pending |= static_cast<std::uint32_t>(code) << filled;
    for (filled += bits; filled >= 8; filled -= 8) {
      bytes.push_back(static_cast<std::uint8_t>(pending & 0xff));
      pending >>= 8;
    }
  }
  if (filled > 0) bytes.push_back(static_cast<std::uint8_t>(pending));
  return bytes.size();
}

/// Bytes of a group when it is packed: codes, scale and minimum.
std::size_t group_bytes(const Half* first, std::int64_t n, std::int64_t stride, int bits) {
  const kernels::IntScale scale = kernels::int_scale(first, n, stride, bits);
  std::vector<std::uint8_t> codes;
  for (std::int64_t i = 0; i < n; ++i) {
    codes.push_back(kernels::int_code(to_float(first[i * stride]), scale, bits));
    EXPECT_LT(codes.back(), 1 << bits);
  }
  return packed_bytes(codes, bits) + 2 * sizeof(Half);
}

/// Every stored token is `expected(token row)`; the step's own one is exact.
template <typename Expected>
void expect_decoded(PrecisionDriver& driver, const RandomLayer& layer, Expected&& expected) {
  const Entries exact = layer.entries(layer.shape.max_tokens);
  const Entries decoded = driver.decoded();
  for (std::int64_t head = 0; head < layer.shape.kv_heads; ++head) {
    for (std::int64_t token = 0; token < decoded.keys.tokens; ++token) {
      const bool stored = token < driver.taken();
      const std::vector<Half> key = row(exact.keys, head, token);
      const std::vector<Half> value = row(exact.values, head, token);
      ASSERT_EQ(row(decoded.keys, head, token), stored ? expected(key) : key) << token;
      ASSERT_EQ(row(decoded.values, head, token), stored ? expected(value) : value) << token;
    }
  }
}

std::vector<Half> through_fp8(std::vector<Half> row) {
  const auto n = std::ssize(row);
  kernels::fp8_round_trip(row.data(), n, kernels::fp8_scale(row.data(), n), row.data());
  return row;
}

TEST(Fp8, EveryHeadsKeyAndValueHaveTheirOwnScale) {
  const RandomLayer layer(20, 5);
  PrecisionDriver driver(R"({"part": "fp8"})", layer);
  driver.prompt();
  expect_decoded(driver, layer, through_fp8);
  for (int i = 0; i < 3; ++i) driver.step();
  expect_decoded(driver, layer, through_fp8);
  // ARKV: 256 bytes and two scales at 128 dimensions.
  EXPECT_EQ(driver.precision().formats()[0].entry_bytes(1, 128), 256 + 2 * 4);
  EXPECT_EQ(driver.precision().formats()[0].entry_bytes(2, 16), 2 * (2 * 16 + 2 * 4));
}

TEST(Fp8, WithoutAScaleAnEntryIsTwoBytesADimension) {
  const RandomLayer layer(20, 5);
  PrecisionDriver driver(R"({"part": "fp8", "scale": "none"})", layer);
  driver.prompt();
  EXPECT_EQ(driver.precision().formats()[0].entry_bytes(1, 128), 256);
  expect_decoded(driver, layer, [](std::vector<Half> row) {
    for (Half& x : row) x = to_half(kernels::fp8_to_float(kernels::to_fp8(to_float(x))));
    return row;
  });
}

TEST(Int, QuantisesByTokenOverGroupsOfChannels) {
  const RandomLayer layer(20, 5);
  for (const int bits : {2, 3, 4, 8}) {
    PrecisionDriver driver(
        R"({"part": "int", "group_channels": 8, "bits": )" + std::to_string(bits) + "}", layer);
    driver.prompt();
    driver.step();
    expect_decoded(driver, layer, [&](std::vector<Half> row) {
      kernels::int_round_trip(row.data(), 8, 1, bits, row.data());
      kernels::int_round_trip(row.data() + 8, 8, 1, bits, row.data() + 8);
      return row;
    });

    // The bytes that the format claims are the bytes of the packed entry.
    const Entries exact = layer.entries(1);
    std::size_t bytes = 0;
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t channel = 0; channel < 16; channel += 8) {
        bytes += group_bytes(exact.keys.row(head, 0) + channel, 8, 1, bits);
        bytes += group_bytes(exact.values.row(head, 0) + channel, 8, 1, bits);
      }
    }
    EXPECT_EQ(driver.format_of(0).entry_bytes(2, 16), static_cast<std::int64_t>(bytes));
  }
}

TEST(Int, FewerBitsLoseMore) {
  const RandomLayer layer(20, 5);
  double before = 1;
  for (const int bits : {2, 4, 8}) {
    PrecisionDriver driver(
        R"({"part": "int", "group_channels": 16, "bits": )" + std::to_string(bits) + "}", layer);
    driver.prompt();
    double error = 0;
    for (std::int64_t token = 0; token < 20; ++token) {
      error += relative_error(row(layer.entries(20).keys, 1, token),
                              row(driver.decoded().keys, 1, token)) /
               20;
    }
    EXPECT_LT(error, before / 3) << bits;
    EXPECT_GT(error, 0) << bits;
    before = error;
  }
}

// ---- The form of the keys ----

/// Keys whose channel 3 lies around 355, as Qwen2's do: turned by RoPE, if `rope`.
RandomLayer biased(const RotaryEmbedding* rope) {
  RandomLayer layer(20, 5);
  std::vector<float> row(static_cast<std::size_t>(layer.shape.head_dim));
  for (std::int64_t head = 0; head < layer.shape.kv_heads; ++head) {
    for (std::int64_t token = 0; token < layer.shape.max_tokens; ++token) {
      Half* const key =
          layer.keys.data() + (head * layer.shape.max_tokens + token) * layer.shape.head_dim;
      for (std::size_t i = 0; i < row.size(); ++i) row[i] = to_float(key[i]);
      row[3] += 355;
      if (rope != nullptr) rope->rotate(row, token);
      for (std::size_t i = 0; i < row.size(); ++i) key[i] = to_half(row[i]);
    }
  }
  return layer;
}

/// Root mean square of what stored keys are off by.
double key_error(const std::string& part, const RandomLayer& layer) {
  PrecisionDriver driver(part, layer);
  driver.prompt();
  for (int i = 0; i < 3; ++i) driver.step();
  const Entries exact = layer.entries(driver.taken());
  const Entries decoded = driver.decoded();
  double squares = 0;
  double count = 0;
  for (std::int64_t head = 0; head < layer.shape.kv_heads; ++head) {
    for (std::int64_t token = 0; token < driver.taken(); ++token) {
      for (std::int64_t i = 0; i < layer.shape.head_dim; ++i) {
        const double off = static_cast<double>(to_float(decoded.keys.row(head, token)[i])) -
                           static_cast<double>(to_float(exact.keys.row(head, token)[i]));
        squares += off * off;
        count += 1;
      }
    }
  }
  return std::sqrt(squares / count);
}

TEST(KeyForm, KeysLessTheirMeanSurviveABias) {
  const RandomLayer layer = biased(nullptr);
  // (A scale per token maps a channel that is its largest to a code of its own.)
  for (const std::string part :
       {R"({"part": "fp8", "scale": "none")", R"({"part": "int", "group_channels": 8)",
        R"({"part": "int", "group_channels": 16, "bits": 8)"}) {
    SCOPED_TRACE(part);
    const double as_recorded = key_error(part + "}", layer);
    EXPECT_LT(key_error(part + R"(, "keys": "less_mean"})", layer), as_recorded / 4);
    EXPECT_LT(key_error(part + R"(, "keys": "normalised"})", layer), as_recorded / 4);
  }
}

TEST(KeyForm, BeforeRopeTheMeanIsOneForAllPositions) {
  const RotaryEmbedding rope(10, false, 16);
  const RandomLayer layer = biased(&rope);
  const std::string part = R"({"part": "fp8", "scale": "none", "keys": "less_mean")";
  const double after = key_error(part + "}", layer);
  EXPECT_LT(key_error(part + R"(, "keys_rope": "undone"})", layer), after / 4);
}

TEST(KeyForm, ChannelsThatAStepIsWiderThanAreCounted) {
  const RandomLayer layer = biased(nullptr);
  const auto coarse = [&](const std::string& precision) {
    const LayerLog log = replay_layer(
        layer, decide_spec(R"({"stream": {"heads": "layer"}, "grouping": {"part": "whole"},
                               "scoring": {"part": "all"}, "selection": {"part": "everything"},
                               "precision": )" +
                           precision + "}"));
    return log.streams.at(0).coarse_channels;
  };
  EXPECT_EQ(coarse(R"({"part": "fp16"})"), 0);
  // FP8 rounds all of 355 and around to 352: channel 3 of both heads.
  EXPECT_EQ(coarse(R"({"part": "fp8", "scale": "none"})"), 2);
  EXPECT_EQ(coarse(R"({"part": "fp8", "scale": "none", "keys": "less_mean"})"), 0);
  // The other channels of its group lose what they say, too: most of 7 per head.
  EXPECT_GT(coarse(R"({"part": "int", "group_channels": 8})"), 2 * 5);
  EXPECT_EQ(coarse(R"({"part": "int", "group_channels": 8, "keys": "normalised"})"), 0);
}

TEST(KeyForm, HoldsAMeanAndASpreadPerChannel) {
  const RandomLayer layer(20, 5);  // 2 KV heads of 16
  const auto held = [&](const char* part) {
    PrecisionDriver driver(part, layer);
    driver.prompt();
    return driver.precision().held_bytes();
  };
  EXPECT_EQ(held(R"({"part": "fp8"})"), 0);
  EXPECT_EQ(held(R"({"part": "fp8", "keys": "less_mean"})"), 2 * 2 * 16);
  EXPECT_EQ(held(R"({"part": "tri_state", "keys": "normalised"})"), 2 * 2 * 2 * 16);
}

// ---- KIVI ----

constexpr std::int64_t kGroup = 8;
constexpr std::int64_t kResidual = 16;
constexpr const char* kKivi =
    R"({"part": "kivi", "bits": 2, "group_size": 8, "residual_tokens": 16})";

/// Compares every row and every token's format with the rules of KIVI, applied from scratch to n
/// tokens; returns the bytes of one stream when every group is packed.
std::int64_t check_kivi(PrecisionDriver& driver, const RandomLayer& layer) {
  const std::int64_t n = driver.taken();
  const std::int64_t keys = n / kResidual * kResidual;
  const std::int64_t values = std::max<std::int64_t>(0, n - kResidual);
  const Entries exact = layer.entries(layer.shape.max_tokens);
  const Entries decoded = driver.decoded();
  const std::int64_t dim = layer.shape.head_dim;
  std::size_t bytes = 0;
  for (std::int64_t head = 0; head < layer.shape.kv_heads; ++head) {
    for (std::int64_t token = 0; token < decoded.keys.tokens; ++token) {
      std::vector<Half> key = row(exact.keys, head, token);
      if (token < keys) {
        const std::int64_t first = token / kGroup * kGroup;
        for (std::int64_t channel = 0; channel < dim; ++channel) {
          std::vector<Half> group(kGroup);
          const Half* from = exact.keys.row(head, first) + channel;
          for (std::int64_t i = 0; i < kGroup; ++i) {
            group[static_cast<std::size_t>(i)] = from[i * dim];
          }
          kernels::int_round_trip(group.data(), kGroup, 1, 2, group.data());
          key[static_cast<std::size_t>(channel)] = group[static_cast<std::size_t>(token - first)];
          if (token == first) bytes += group_bytes(from, kGroup, dim, 2);
        }
      } else if (token < n) {
        bytes += static_cast<std::size_t>(dim) * sizeof(Half);
      }
      std::vector<Half> value = row(exact.values, head, token);
      if (token < values) {
        for (std::int64_t channel = 0; channel < dim; channel += kGroup) {
          bytes += group_bytes(value.data() + channel, kGroup, 1, 2);
          kernels::int_round_trip(value.data() + channel, kGroup, 1, 2, value.data() + channel);
        }
      } else if (token < n) {
        bytes += static_cast<std::size_t>(dim) * sizeof(Half);
      }
      EXPECT_EQ(row(decoded.keys, head, token), key) << token << " of " << n;
      EXPECT_EQ(row(decoded.values, head, token), value) << token << " of " << n;
    }
  }
  for (std::int64_t token = 0; token < n; ++token) {
    EXPECT_EQ(driver.format(static_cast<Token>(token)), token < values ? 2
                                                        : token < keys ? 1
                                                                       : 0)
        << token << " of " << n;
  }
  return static_cast<std::int64_t>(bytes);
}

TEST(Kivi, FollowsTheRulesOfTheResidualAtEveryStep) {
  for (const std::int64_t prompt : {5, 16, 40, 48}) {
    const RandomLayer layer(prompt, 40);
    PrecisionDriver driver(kKivi, layer);
    driver.prompt();
    for (int step = 0; step < 40; ++step) {
      const std::int64_t packed = check_kivi(driver, layer);
      std::int64_t claimed = 0;
      for (Token token = 0; token < driver.taken(); ++token) {
        claimed += driver.format_of(token).entry_bytes(layer.shape.kv_heads, layer.shape.head_dim);
      }
      ASSERT_EQ(claimed, packed) << driver.taken() << " tokens";
      driver.step();
    }
  }
}

TEST(Kivi, TwoBitsInGroupsOf32AreThreeBitsAnElement) {
  const RandomLayer layer(8, 1, 1, 6, 2, 32);
  PrecisionDriver driver(R"({"part": "kivi", "bits": 2, "group_size": 32})", layer);
  const std::vector<EntryFormat> formats = driver.precision().formats();
  EXPECT_EQ(formats[2].bits_per_element, 3.0);
  EXPECT_EQ(formats[2].entry_bytes(1, 128), 96);
  EXPECT_EQ(formats[1].bits_per_element, (3.0 + 16) / 2);
  EXPECT_EQ(formats[0].entry_bytes(1, 128), 512);
  const RandomLayer wide(8, 1, 1, 6, 2, 128);
  PrecisionDriver published(R"({"part": "kivi", "bits": 2, "group_size": 128})", wide);
  EXPECT_EQ(published.precision().formats()[2].bits_per_element, 2.25);
}

// ---- tri-state ----

TEST(TriState, ReencodesAsToldAndNeverRecovers) {
  const RandomLayer layer(20, 5);
  PrecisionDriver driver(R"({"part": "tri_state"})", layer);
  ASSERT_TRUE(driver.precision().accepts_reencoding());
  driver.prompt();
  expect_decoded(driver, layer, [](std::vector<Half> row) { return row; });

  driver.reencode({3, 7}, 1);
  const auto key = [&](Token token) { return row(driver.decoded().keys, 1, token); };
  const std::vector<Half> exact = row(layer.entries(20).keys, 1, 3);
  const std::vector<Half> once = through_fp8(exact);
  ASSERT_NE(once, exact);
  EXPECT_EQ(key(3), once);
  EXPECT_EQ(key(4), row(layer.entries(20).keys, 1, 4));
  driver.reencode({3}, 0);
  EXPECT_EQ(key(3), once) << "what FP8 lost stays lost";
  driver.step();
  driver.reencode({3}, 1);
  EXPECT_EQ(key(3), through_fp8(once)) << "encoded again from the decoded value";

  const std::vector<EntryFormat> formats = driver.precision().formats();
  EXPECT_EQ(formats[0].entry_bytes(1, 128), 512);
  EXPECT_EQ(formats[1].entry_bytes(1, 128), 264);
}

TEST(Precision, RefusesGroupsThatDoNotFit) {
  const RandomLayer layer(8, 1);  // 16 dimensions
  const auto error = [&](const char* part) {
    return user_error_of([&] { PrecisionDriver driver(part, layer); });
  };
  EXPECT_THAT(error(R"({"part": "int", "group_channels": 12})"), HasSubstr("divisor"));
  EXPECT_THAT(error(R"({"part": "kivi", "group_size": 32})"), HasSubstr("divisor"));
  EXPECT_THAT(error(R"({"part": "kivi", "group_size": 8, "residual_tokens": 12})"),
              HasSubstr("multiple"));
  EXPECT_THAT(error(R"({"part": "rule", "group_channels": 16})"), HasSubstr("token statistics"));
}

TEST(EveryCodec, ComesBackAsItIsDecoded) {
  for (const char* part :
       {R"({"part": "fp16"})", R"({"part": "fp8"})", R"({"part": "fp8", "scale": "none"})",
        R"({"part": "fp8", "scale": "none", "keys": "less_mean"})",
        R"({"part": "fp8", "keys": "normalised", "keys_rope": "undone"})"}) {
    SCOPED_TRACE(part);
    const RandomLayer layer(20, 5);
    PrecisionDriver driver(part, layer);
    driver.prompt();
    for (int i = 0; i < 3; ++i) driver.step();
    const Precision& precision = driver.precision();
    ASSERT_TRUE(precision.has_codec());
    const Entries exact = layer.entries(driver.taken());
    const Entries decoded = driver.decoded();
    const std::int64_t heads = exact.keys.heads;
    const std::int64_t dim = exact.keys.dim;
    const std::int64_t stride = dim + 3;  // rows need not lie side by side
    for (Token token = 0; token < driver.taken(); ++token) {
      std::vector<std::byte> stored(
          static_cast<std::size_t>(precision.formats().front().entry_bytes(heads, dim)));
      precision.encode(exact, token, driver.format(token), stored);
      std::vector<Half> keys(static_cast<std::size_t>(heads * stride));
      std::vector<Half> values(keys.size());
      precision.decode(stored, token, driver.format(token), keys.data(), values.data(), stride);
      for (std::int64_t head = 0; head < heads; ++head) {
        const auto at = keys.begin() + head * stride;
        EXPECT_EQ(std::vector<Half>(at, at + dim), row(decoded.keys, head, token));
        const auto value = values.begin() + head * stride;
        EXPECT_EQ(std::vector<Half>(value, value + dim), row(decoded.values, head, token));
      }
    }
  }
}

}  // namespace
}  // namespace kvreplay
