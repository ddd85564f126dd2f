#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "traces/trace.hpp"

namespace kvreplay {

/// What is known about each token once its step is done: the controller's four inputs. (Don't Waste
/// Bits, Eq. 14-17)
struct TokenFeatures {
  static constexpr std::int64_t kCount = 4;
  static constexpr std::array<std::string_view, kCount> kNames{"entropy", "rarity",
                                                               "attention_variance", "confidence"};
  std::vector<std::array<double, kCount>> rows;  ///< by token, in the order of kNames
};

/// The rarity of each token in `ids` among the tokens before it.
[[nodiscard]] std::vector<double> token_rarity(std::span<const std::int32_t> ids);

/// n times the variance of a row of n attention weights, which sum to 1.
[[nodiscard]] double row_variance(std::span<const float> weights);

/// Gives a precision part the features of its sequence's tokens.
class TokenFeatureSource {
 public:
  [[nodiscard]] virtual const TokenFeatures& features() const = 0;

 protected:
  ~TokenFeatureSource() = default;
};

/// The features of a trace's tokens, computed on the first call, from any thread:
/// - entropy of the next-token distribution, in nats, as recorded;
/// - rarity: -ln((c + 1) / (N + U + 1)), where c of the N tokens before this one were the same
///   token and U of them distinct;
/// - attention variance: of the token's own row of attention in the last recorded layer, times the
///   row's length n, mean over query heads. Ours: the paper takes the variance of the whole matrix,
///   one number per prefix; without n it would fall with the prefix's length, and a controller
///   would not serve another one. Prompt tokens before the first recorded query get the mean of the
///   prompt's recorded rows;
/// - confidence: the largest next-token probability, as recorded. Ours: the paper gives no formula.
class TraceTokenFeatures final : public TokenFeatureSource {
 public:
  /// The trace must outlive this object.
  explicit TraceTokenFeatures(const TraceReader& trace) : trace_(trace) {}
  [[nodiscard]] const TokenFeatures& features() const override;

 private:
  const TraceReader& trace_;
  mutable std::once_flag once_;
  mutable TokenFeatures features_;
};

}  // namespace kvreplay
