#include "sim/models/next_token.hpp"

#include <algorithm>
#include <cmath>

#include "policies/kernels/kernels.hpp"

namespace kvreplay {

NextToken next_token(std::span<const float> logits, std::vector<float>& scratch) {
  scratch.assign(logits.begin(), logits.end());
  const std::int64_t size = std::ssize(logits);
  const float log_sum = kernels::softmax(scratch.data(), size, 1);
  const float mean_logit = kernels::dot(scratch.data(), logits.data(), size);
  return {.entropy = std::max(log_sum - mean_logit, 0.0F),  // in this order NaN stays NaN
          .top_probability = *std::max_element(scratch.begin(), scratch.end()),
          .log_sum = log_sum};
}

std::int32_t likeliest(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::int32_t Sampler::draw(std::span<const float> logits) {
  if (options_.temperature == 0) return likeliest(logits);
  probabilities_.assign(logits.begin(), logits.end());
  order_.resize(logits.size());
  kernels::softmax(probabilities_.data(), std::ssize(logits),
                   static_cast<float>(1 / options_.temperature));
  kernels::order_descending(probabilities_.data(), std::ssize(logits), order_);
  const auto probability = [&](std::int32_t id) {
    return static_cast<double>(probabilities_[static_cast<std::size_t>(id)]);
  };
  std::size_t kept = 0;
  double mass = 0;
  while (kept < order_.size() && (kept == 0 || mass < options_.top_p)) {
    mass += probability(order_[kept++]);
  }
  double left = random_.uniform() * mass;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    left -= probability(order_[i]);
    if (left < 0) return order_[i];
  }
  return order_[kept - 1];
}

}  // namespace kvreplay
