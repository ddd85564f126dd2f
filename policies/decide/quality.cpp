#include "policies/decide/quality.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/parallel.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

std::span<const float> row(std::span<const float> rows, std::int64_t index, std::int64_t width) {
  return rows.subspan(static_cast<std::size_t>(index * width), static_cast<std::size_t>(width));
}

/// The sums of rows [*, width], each in the order of its elements. Four rows are summed side by
/// side, because a chain of additions waits for its own results.
void sum_rows(std::span<const float> rows, std::int64_t width, std::span<double> sums) {
  const auto last = std::ssize(sums) - 1;
  for (std::int64_t first = 0; first <= last; first += 4) {
    const auto from = [&](std::int64_t r) {
      return row(rows, std::min(first + r, last), width).data();
    };
    const float* const rows_of[] = {from(0), from(1), from(2), from(3)};
    double sum0 = 0;
    double sum1 = 0;
    double sum2 = 0;
    double sum3 = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      sum0 += static_cast<double>(rows_of[0][i]);
      sum1 += static_cast<double>(rows_of[1][i]);
      sum2 += static_cast<double>(rows_of[2][i]);
      sum3 += static_cast<double>(rows_of[3][i]);
    }
    const double sum[] = {sum0, sum1, sum2, sum3};
    std::copy_n(sum, std::min<std::int64_t>(4, last - first + 1), sums.begin() + first);
  }
}

}  // namespace

void ExactStep::compute(const LayerShape& shape, const Entries& entries, QueryRows queries,
                        WorkerPool* pool) {
  const std::int64_t end = entries.keys.tokens;
  const std::int64_t first = first_visible(end - 1, shape.sliding_window);
  const std::int64_t seen = end - first;
  head_dim_ = shape.head_dim;
  tokens_.resize(static_cast<std::size_t>(seen));
  std::iota(tokens_.begin(), tokens_.end(), static_cast<Token>(first));
  logits_.resize(static_cast<std::size_t>(shape.query_heads * seen));
  outputs_.resize(static_cast<std::size_t>(shape.query_heads * head_dim_));

  choices_.resize(static_cast<std::size_t>(shape.query_heads));
  for (Choices& choices : choices_) {
    choices.asked_before = std::ssize(choices.of_count);
    choices.most_before = choices.of_count.empty() ? 0 : choices.of_count.rbegin()->first;
    choices.of_count.clear();
  }
  probabilities_.resize(logits_.size());
  totals_.resize(static_cast<std::size_t>(shape.query_heads));
  finite_.resize(static_cast<std::size_t>(shape.kv_heads));
  const std::int64_t heads = shape.query_heads / shape.kv_heads;
  const auto compute_heads = [&](std::int64_t kv) {
    const std::int64_t head = kv * heads;
    float* const logits = logits_.data() + head * seen;
    float* const probabilities = probabilities_.data() + head * seen;
    float* const outputs = outputs_.data() + head * head_dim_;
    kernels::score(queries.data() + head * head_dim_, heads, entries.keys.row(kv, first), seen,
                   head_dim_, logits, seen);
    for (std::int64_t h = 0; h < heads; ++h) {
      kernels::softmax(logits + h * seen, probabilities + h * seen, seen, shape.softmax_scale);
    }
    sum_rows({probabilities, static_cast<std::size_t>(heads * seen)}, seen,
             std::span(totals_).subspan(static_cast<std::size_t>(head),
                                        static_cast<std::size_t>(heads)));
    kernels::weighted_sum(probabilities, heads, entries.values.head(kv), tokens_, head_dim_,
                          outputs);
    finite_[static_cast<std::size_t>(kv)] = kernels::all_finite(logits, heads * seen) &&
                                            kernels::all_finite(probabilities, heads * seen) &&
                                            kernels::all_finite(outputs, heads * head_dim_);
  };
  if (pool != nullptr) {
    pool->run(shape.kv_heads, compute_heads);
  } else {
    for (std::int64_t kv = 0; kv < shape.kv_heads; ++kv) compute_heads(kv);
  }
}

const ExactStep::Best& ExactStep::best(std::int64_t query_head, std::int64_t count) const {
  Choices& choices = choices_[static_cast<std::size_t>(query_head)];
  const auto known = choices.of_count.find(count);
  if (known != choices.of_count.end()) return known->second;
  // Several counts are choices among the largest one's tokens: it comes first.
  constexpr std::int64_t kSeveral = 3;
  const std::int64_t most = std::min(choices.most_before, token_count());
  if (choices.of_count.empty() && choices.asked_before >= kSeveral && count < most) {
    static_cast<void>(best(query_head, most));
  }

  Best found{std::vector<Token>(static_cast<std::size_t>(count)), 0};
  const std::span<const float> logits = this->logits(query_head);
  const auto larger = choices.of_count.lower_bound(count);
  if (larger == choices.of_count.end()) {
    kernels::top_k(logits.data(), std::ssize(logits), count, found.tokens);
  } else {
    const std::vector<Token>& among = larger->second.tokens;
    std::vector<float> scores;
    scores.reserve(among.size());
    for (const Token token : among) scores.push_back(logits[static_cast<std::size_t>(token)]);
    kernels::top_k(scores.data(), std::ssize(scores), count, found.tokens);
    for (Token& token : found.tokens) token = among[static_cast<std::size_t>(token)];
  }
  const std::span<const float> probabilities = this->probabilities(query_head);
  for (const Token token : found.tokens) {
    found.mass += static_cast<double>(probabilities[static_cast<std::size_t>(token)]);
  }
  return choices.of_count.emplace(count, std::move(found)).first->second;
}

bool ExactStep::finite() const {
  return std::ranges::all_of(finite_, [](std::uint8_t finite) { return finite != 0; });
}

std::span<const float> ExactStep::logits(std::int64_t query_head) const {
  return row(logits_, query_head, token_count());
}
std::span<const float> ExactStep::probabilities(std::int64_t query_head) const {
  return row(probabilities_, query_head, token_count());
}
std::span<const float> ExactStep::output(std::int64_t query_head) const {
  return row(outputs_, query_head, head_dim_);
}

namespace {

/// What of full attention's choice a query head attended to.
struct Found {
  double recall = 1;
  double mass = 1;
  double best_mass = 1;
};

Found compare(const ExactStep& exact, std::int64_t query_head, std::span<const Token> tokens) {
  const auto count = std::ssize(tokens);
  if (count == exact.token_count()) return {};  // all of them, which are also the best ones
  const std::span<const float> probabilities = exact.probabilities(query_head);
  const auto probability = [&](Token index) -> double {
    return probabilities[static_cast<std::size_t>(index)];
  };
  const auto& [best, best_mass] = exact.best(query_head, count);
  double mass = 0;
  std::int64_t found = 0;
  auto next_best = best.begin();
  for (const Token token : tokens) {
    const Token index = token - exact.first_token();
    mass += probability(index);
    while (next_best != best.end() && *next_best < index) ++next_best;
    if (next_best != best.end() && *next_best == index) ++found;
  }
  const double total = exact.total(query_head);
  return {static_cast<double>(found) / static_cast<double>(count), mass / total, best_mass / total};
}

}  // namespace

HeadQuality measure(const ExactStep& exact, std::int64_t query_head,
                    const HeadAttention& attention) {
  const Found found = compare(exact, query_head, attention.tokens);
  double difference = 0;
  double norm = 0;
  const std::span<const float> output = exact.output(query_head);
  for (std::size_t i = 0; i < output.size(); ++i) {
    const double reference = output[i];
    const double off = attention.output[i] - reference;
    difference += off * off;
    norm += reference * reference;
  }
  const double error = std::sqrt(difference / norm);

  return {.recall = static_cast<float>(found.recall),
          .attention_mass = static_cast<float>(found.mass),
          .best_attention_mass = static_cast<float>(found.best_mass),
          .output_error = difference == 0 ? 0 : static_cast<float>(error)};
}

float ResidualError::measure(const ExactStep& exact, std::span<const HeadAttention> attention,
                             std::int64_t index) {
  difference_.clear();
  for (std::size_t head = 0; head < attention.size(); ++head) {
    const std::span<const float> output = exact.output(static_cast<std::int64_t>(head));
    for (std::size_t i = 0; i < output.size(); ++i) {
      difference_.push_back(attention[head].output[i] - output[i]);
    }
  }
  const std::int64_t width = std::ssize(difference_);
  const std::int64_t rows = std::ssize(weights_.sketch) / width;
  projected_.resize(static_cast<std::size_t>(rows));
  kernels::score(difference_.data(), 1, weights_.sketch.data(), rows, width, projected_.data(),
                 rows);
  double squares = 0;
  for (const float value : projected_) {
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  const double norm = weights_.residual_norm[static_cast<std::size_t>(index)];
  return static_cast<float>(std::sqrt(squares) / norm);
}

}  // namespace kvreplay
