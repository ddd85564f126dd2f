#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "sim/models/next_token.hpp"
#include "sim/models/transformer.hpp"
#include "traces/trace_writer.hpp"

namespace kvreplay {

/// What a trace takes of the layers of a running model.
class TraceRows {
 public:
  /// All of them outlive this object.
  TraceRows(const Architecture& architecture, const TraceInfo& info, TraceWriter::Queries queries,
            WorkerPool& pool, TraceWriter& writer)
      : architecture_(architecture), info_(info), queries_(queries), pool_(pool), writer_(writer) {}

  /// Before a batch from `position` on: a batch lies before the first query or from it on.
  void begin(std::int64_t position) { in_queries_ = position >= queries_.start; }
  [[nodiscard]] bool wants_queries_ahead() const { return queries_.ahead && in_queries_; }
  /// Of a layer that is not recorded, nothing. UserError where half precision cannot hold a vector.
  void keep(const LayerBatch& batch);
  /// Of a batch whose rows were kept; see Transformer::residual_norms().
  void keep_residual_norms(std::int64_t layer, std::span<const float> norms);
  [[nodiscard]] bool in_queries() const { return in_queries_; }
  /// At the end, where the norms of all queries were kept.
  void write_output_weights(const Model& model);
  /// Writes what waits, once it is enough or `all` of it is wanted.
  void write(bool all);

 private:
  /// rows: [batch.rows, heads * width].
  void keep(std::int64_t index, LayerTensor tensor, const LayerBatch& batch, const float* rows,
            std::int64_t heads, std::int64_t width);

  /// The recorded layer's place among them, or -1.
  [[nodiscard]] std::int64_t index_of(std::int64_t layer) const;

  const Architecture& architecture_;
  const TraceInfo& info_;
  TraceWriter::Queries queries_;
  WorkerPool& pool_;
  TraceWriter& writer_;
  bool in_queries_ = false;
  /// By recorded layer and tensor, of each head.
  std::map<std::pair<std::int64_t, LayerTensor>, std::vector<std::vector<Half>>> pending_;
  std::map<std::int64_t, std::vector<float>> residual_norms_;  // by recorded layer
};

/// The token statistics of a trace, as they come in.
class TokenStatistics {
 public:
  static constexpr std::int64_t kLogitRows = 64;  ///< rows whose logits are in memory at a time

  explicit TokenStatistics(std::int64_t tokens)
      : entropy(static_cast<std::size_t>(tokens)),
        top_probability(entropy.size()),
        log_probability(entropy.size()) {}

  /// Of consecutive positions from `first` on. `next`: the token that follows each; the last
  /// position of a text has none. Returns the logits of the last row.
  std::span<const float> add(Transformer& transformer, std::int64_t first,
                             std::span<const float> hidden, std::span<const std::int32_t> next) {
    const Architecture& a = transformer.model().architecture();
    const std::int64_t rows = std::ssize(hidden) / a.hidden_size;
    std::span<const float> last;
    for (std::int64_t begin = 0; begin < rows; begin += kLogitRows) {
      const std::int64_t count = std::min(kLogitRows, rows - begin);
      const std::span<const float> logits =
          transformer.logits(hidden.subspan(static_cast<std::size_t>(begin * a.hidden_size),
                                            static_cast<std::size_t>(count * a.hidden_size)));
      const auto row = [&](std::int64_t r) {
        return logits.subspan(static_cast<std::size_t>(r * a.logit_stride()),
                              static_cast<std::size_t>(a.vocabulary));
      };
      transformer.pool().run(count, [&](std::int64_t r) {
        thread_local std::vector<float> scratch;
        const NextToken found = next_token(row(r), scratch);
        const auto at = static_cast<std::size_t>(first + begin + r);
        entropy[at] = found.entropy;
        top_probability[at] = found.top_probability;
        if (!std::isfinite(found.entropy)) {
          throw UserError({transformer.model().name(), ""},
                          "gives logits that are not finite, at position " + std::to_string(at),
                          "a model whose weights and results are finite");
        }
        const auto following = static_cast<std::size_t>(begin + r);
        if (following < next.size()) {
          log_probability[at] = row(r)[static_cast<std::size_t>(next[following])] - found.log_sum;
        } else {
          log_sum_ = found.log_sum;
        }
      });
      last = row(count - 1);
    }
    return last;
  }
  /// The token that followed the last position added, where it was not known then.
  void follow(std::int64_t position, std::span<const float> logits, std::int32_t next) {
    log_probability[static_cast<std::size_t>(position)] =
        logits[static_cast<std::size_t>(next)] - log_sum_;
  }

  [[nodiscard]] double perplexity(std::int64_t begin) const {
    const auto from = log_probability.begin() + begin;
    const auto to = log_probability.end() - 1;
    return std::exp(-std::accumulate(from, to, 0.0) / static_cast<double>(to - from));
  }

  std::vector<float> entropy;
  std::vector<float> top_probability;
  std::vector<float> log_probability;

 private:
  float log_sum_ = 0;  // of the last position, if the token after it was not known
};

}  // namespace kvreplay
