#include <algorithm>
#include <cmath>

#include "policies/decide/grouping/grouping.hpp"
#include "policies/decide/grouping/support/clusters.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

/// Chunks of consecutive tokens of the prompt. The chunks that their mean key represents worst, the
/// last chunks, and all generated tokens stay in memory.
class Chunks final : public Grouping {
 public:
  Chunks(std::int64_t chunk_tokens, std::int64_t outlier_chunks, std::int64_t local_chunks)
      : chunk_tokens_(chunk_tokens), outlier_chunks_(outlier_chunks), local_chunks_(local_chunks) {}

  void add_prompt(const Entries& entries, Token begin, Token end, const Groups& groups,
                  EventSink& events) override {
    const std::int64_t whole = (end - begin) / chunk_tokens_;
    const std::int64_t candidates = std::max<std::int64_t>(0, whole - local_chunks_);
    const auto first_of = [&](std::int64_t chunk) {
      return begin + static_cast<Token>(chunk * chunk_tokens_);
    };
    std::vector<float> misfit;
    for (std::int64_t chunk = 0; chunk < candidates; ++chunk) {
      misfit.push_back(-min_cosine(entries, first_of(chunk), first_of(chunk + 1)));
    }
    std::vector<std::int32_t> outliers(
        static_cast<std::size_t>(std::min(outlier_chunks_, candidates)));
    kernels::top_k(misfit.data(), candidates, std::ssize(outliers), outliers);

    for (std::int64_t chunk = 0; chunk < candidates; ++chunk) {
      const std::vector<Token> tokens = token_range(first_of(chunk), first_of(chunk + 1));
      if (std::binary_search(outliers.begin(), outliers.end(), chunk)) {
        events.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, tokens});
        continue;
      }
      const GroupId group = groups.count();
      events.on_event({EventKind::kCreated, group, kNoGroup, tokens});
      events.on_event({EventKind::kSealed, group});
    }
    const std::vector<Token> local = token_range(first_of(candidates), end);
    if (!local.empty()) events.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, local});
    // A mean, and for each key a norm and a product with the mean.
    const std::int64_t elements =
        candidates * chunk_tokens_ * entries.keys.heads * entries.keys.dim;
    work_ = {.flops = 5 * elements, .bytes = 2 * elements, .whole_prompt = true};
  }
  [[nodiscard]] PromptWork prompt_work() const override { return work_; }

  void add_token(const Entries&, Token token, std::span<const GroupId>, const Groups&,
                 EventSink& events) override {
    events.on_event({EventKind::kBuffered, kNoGroup, kNoGroup, {&token, 1}});
  }

 private:
  /// Over the tokens and KV heads: the cosine of a key and the mean key of its chunk.
  static float min_cosine(const Entries& entries, Token begin, Token end) {
    const std::int64_t dim = entries.keys.dim;
    const auto width = static_cast<std::size_t>(dim);
    std::vector<float> keys(static_cast<std::size_t>(end - begin) * width);
    std::vector<float> mean(width);
    float min = 1;
    for (std::int64_t head = 0; head < entries.keys.heads; ++head) {
      kernels::to_float(entries.keys.row(head, begin), keys.data(), std::ssize(keys));
      std::fill(mean.begin(), mean.end(), 0.0F);  // of the sum: a scale does not change a cosine
      for (std::size_t i = 0; i < keys.size(); ++i) mean[i % width] += keys[i];
      const float mean_norm = std::sqrt(kernels::dot(mean.data(), mean.data(), dim));
      for (const float* key = keys.data(); key < keys.data() + keys.size(); key += dim) {
        const float norms = mean_norm * std::sqrt(kernels::dot(key, key, dim));
        min = std::min(min, norms > 0 ? kernels::dot(mean.data(), key, dim) / norms : 0.0F);
      }
    }
    return min;
  }

  std::int64_t chunk_tokens_;
  std::int64_t outlier_chunks_;
  std::int64_t local_chunks_;
  PromptWork work_;
};

const Registered<Grouping> kChunks({
    .name = "chunks",
    .help = "chunks of the prompt; outlier chunks, the last ones and generated tokens stay in "
            "memory",
    .source = "ShadowKV (Sun et al., 2024), section 4; released code bytedance/ShadowKV",
    .parameters = {integer_parameter("chunk_tokens", "tokens", 8, {1, 65536}, "tokens per chunk"),
                   integer_parameter(
                       "outlier_chunks", "chunks", 48, {0, 1e6},
                       "chunks whose mean key is least like one of their keys (smallest "
                       "cosine): they stay in memory"),
                   integer_parameter(
                       "local_chunks", "chunks", 4, {0, 1e6},
                       "last chunks of the prompt, which stay in memory with an incomplete last "
                       "chunk")},
    .make =
        [](const Arguments& arguments, const Grouping::Context&) {
          return std::make_unique<Chunks>(arguments.integer("chunk_tokens"),
                                          arguments.integer("outlier_chunks"),
                                          arguments.integer("local_chunks"));
        },
});

}  // namespace
}  // namespace kvreplay
