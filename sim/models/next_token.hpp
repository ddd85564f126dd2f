#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.hpp"

namespace kvreplay {

/// The next-token distribution at a position. Logarithms are natural.
struct NextToken {
  float entropy = 0;
  float top_probability = 0;
  float log_sum = 0;  ///< ln sum exp(logits): a token's log-probability is its logit minus this
};

/// `logits`: [vocabulary]. `scratch` is resized and receives the probabilities.
[[nodiscard]] NextToken next_token(std::span<const float> logits, std::vector<float>& scratch);

/// The most likely token; ties go to the lowest id.
[[nodiscard]] std::int32_t likeliest(std::span<const float> logits);

struct SamplingOptions {
  double temperature = 1;  ///< above 0; 0 = greedy
  double top_p = 1;        ///< draws from the smallest set of most likely tokens that reaches it
  std::uint64_t seed = 1;
};

/// Draws tokens; the same seed and logits give the same tokens. (Holtzman et al. 2020)
class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options), random_(options.seed) {}
  [[nodiscard]] std::int32_t draw(std::span<const float> logits);

 private:
  SamplingOptions options_;
  Random random_;
  std::vector<float> probabilities_;
  std::vector<std::int32_t> order_;
};

}  // namespace kvreplay
