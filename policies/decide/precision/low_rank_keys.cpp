#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "policies/decide/directions.hpp"
#include "policies/decide/kept_columns.hpp"
#include "policies/decide/precision/support/decoded_store.hpp"
#include "policies/decide/precision/support/entry_bytes.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

/// The format of entries stored whole; tokens begin in format 0, which stores the value alone.
constexpr std::int32_t kWhole = 1;

struct LowRankSettings {
  std::int64_t rank = 0;  ///< 0 = by rank_share
  double rank_share = 0;
  std::optional<RotaryEmbedding> rope;  ///< undone before keys are factorised; none: as they are
};

/// What all streams of a layer rebuild keys from.
struct LayerFactors {
  std::vector<float> basis;    // [rank, width]
  std::vector<float> factors;  // [prompt tokens, rank] where entries leave memory
};

/// The one that the streams of the layer share, or the stream's own.
std::shared_ptr<LayerFactors> factors_of(const Precision::Context& context) {
  if (context.of_layer == nullptr) return std::make_shared<LayerFactors>();
  if (*context.of_layer == nullptr) *context.of_layer = std::make_shared<LayerFactors>();
  return std::static_pointer_cast<LayerFactors>(*context.of_layer);
}

/// The prompt's keys of all KV heads of the layer, side by side, as the product of two factors of
/// low rank, which stay in memory. For a grouped token of the prompt, only the value is stored and
/// its key is rebuilt. All other entries are stored whole.
class LowRankKeys final : public Precision {
 public:
  LowRankKeys(LowRankSettings settings, const Context& context)
      : settings_(std::move(settings)),
        shape_(context.shape),
        sliding_window_(context.sliding_window),
        leave_(context.entries_leave),
        store_(context),
        layer_(factors_of(context)) {}

  [[nodiscard]] std::vector<EntryFormat> formats() const override {
    // 16 bits per element of the value alone are 8 per element of key and value.
    return {{"value fp16, key rebuilt", 8, 0}, {"fp16", 16, 0}};
  }

  void add_tokens(const Entries& exact, Token begin, Token end, EventSink& events) override {
    if (!leave_) store_.put(exact, begin, end);
    visible_ = first_visible(end, sliding_window_);
    if (begin == 0) return;  // the prompt is handled in after_prompt
    for (Token token = begin; token < end; ++token) reencode({&token, 1}, events);
  }

  void after_prompt(const Entries& layer, const Groups& groups, EventSink& events) override {
    const HalfTensor& keys = layer.keys;
    const std::int64_t width = keys.heads * keys.dim;
    const std::int64_t model_width = shape_.model_heads.width();
    std::int64_t of_model = settings_.rank;
    if (of_model == 0) {
      of_model = static_cast<std::int64_t>(settings_.rank_share * static_cast<double>(model_width));
    }
    of_model = std::min(of_model, model_width);
    const KeptColumns kept = kept_columns(of_model, model_width, width, width);
    rank_ = kept.used;

    std::vector<float> flat(static_cast<std::size_t>(width));
    if (layer_->basis.empty()) {  // the first stream of the layer
      Directions directions(width);
      for (Token token = visible_; token < keys.tokens; ++token) {
        load(keys, token, flat);
        directions.add(flat);
      }
      layer_->basis = directions.leading(rank_);
      if (leave_) layer_->factors.resize(static_cast<std::size_t>(keys.tokens * rank_));
    }
    std::vector<float> factors(static_cast<std::size_t>(rank_));
    std::vector<Token> whole;
    for (Token token = visible_; token < keys.tokens; ++token) {
      if (groups.where(token) == Groups::Where::kGrouped) {
        load(keys, token, flat);
        kernels::score(flat.data(), 1, layer_->basis.data(), rank_, width, factors.data(), rank_);
        if (leave_) {
          std::copy(factors.begin(), factors.end(), layer_->factors.begin() + token * rank_);
        } else {
          rebuild(factors.data(), token, store_.key(0, token), store_.head_stride());
        }
      } else {
        whole.push_back(token);
      }
    }
    reencode(whole, events);
    cost_per_column_ = kept.cost_per_column;
    prompt_tokens_ = keys.tokens;
    layer_heads_ = keys.heads;
  }

  /// This stream's share of the factors: [tokens, rank] of all heads, of the prompt's tokens that
  /// are still visible, and [rank, head_dim] of its own.
  [[nodiscard]] std::int64_t held_bytes() const override {
    return of_columns(2 * (own_tokens() + shape_.kv_heads * shape_.head_dim));
  }
  [[nodiscard]] std::int64_t held_prompt_bytes() const override {
    return of_columns(2 * own_tokens());
  }
  /// This stream's share of the layer's factorisation: the products of the keys with each other,
  /// their eigenvectors (9 w^3: Golub and Van Loan, section 8.3), and the factors.
  [[nodiscard]] PromptWork prompt_work(std::int64_t tokens) const override {
    const auto width = static_cast<double>(shape_.model_heads.width());
    const double own = static_cast<double>(shape_.kv_heads * shape_.head_dim);
    const double rank = static_cast<double>(rank_) * cost_per_column_;
    const auto length = static_cast<double>(tokens);
    const std::int64_t flops =
        std::llround(own * (length * width + 9 * width * width)) +
        std::llround(2 * length * width * rank * static_cast<double>(shape_.kv_heads) /
                     static_cast<double>(layer_heads_));
    return {.flops = flops,
            .bytes = 2 * 2 * tokens * shape_.kv_heads * shape_.head_dim,
            .factorise_flops = flops,
            .whole_prompt = true};
  }
  [[nodiscard]] Entries decoded(const Entries& exact) override { return store_.decoded(exact); }

  [[nodiscard]] bool rounds_channels() const override { return false; }
  [[nodiscard]] bool has_codec() const override { return true; }
  void encode(const Entries& exact, Token token, std::int32_t format,
              std::span<std::byte> to) const override {
    EntryWriter writer(to);
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
      writer.put_row(exact.values.row(head, token), shape_.head_dim);
      if (format == kWhole) writer.put_row(exact.keys.row(head, token), shape_.head_dim);
    }
  }
  void decode(std::span<const std::byte> from, Token token, std::int32_t format, Half* keys,
              Half* values, std::int64_t head_stride) const override {
    EntryReader reader(from);
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
      reader.take_row(values + head * head_stride, shape_.head_dim);
      if (format == kWhole) reader.take_row(keys + head * head_stride, shape_.head_dim);
    }
    if (format != kWhole) rebuild(layer_->factors.data() + token * rank_, token, keys, head_stride);
  }

 private:
  /// This stream's share of the rows of the factor that all streams have in common.
  [[nodiscard]] std::int64_t own_tokens() const {
    return std::max<std::int64_t>(0, prompt_tokens_ - visible_) * shape_.kv_heads / layer_heads_;
  }
  [[nodiscard]] std::int64_t of_columns(std::int64_t per_column) const {
    return std::llround(static_cast<double>(per_column * rank_) * cost_per_column_);
  }
  static void reencode(std::span<const Token> tokens, EventSink& events) {
    if (tokens.empty()) return;
    events.on_event({EventKind::kReencoded, kNoGroup, kWhole, tokens});
  }

  /// A token's keys of all heads, in the form that is factorised.
  void load(const HalfTensor& keys, Token token, std::span<float> flat) const {
    for (std::int64_t head = 0; head < keys.heads; ++head) {
      const auto dim = static_cast<std::size_t>(keys.dim);
      const std::span<float> key = flat.subspan(static_cast<std::size_t>(head) * dim, dim);
      kernels::to_float(keys.row(head, token), key.data(), keys.dim);
      if (settings_.rope) settings_.rope->rotate(key, -token);
    }
  }

  /// The keys of this stream's heads from a token's factors, [rank].
  void rebuild(const float* factors, Token token, Half* keys, std::int64_t head_stride) const {
    const std::int64_t width = std::ssize(layer_->basis) / rank_;
    std::vector<float> key(static_cast<std::size_t>(shape_.head_dim));
    for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
      std::fill(key.begin(), key.end(), 0.0F);
      const std::int64_t first = (shape_.first_kv_head + head) * shape_.head_dim;
      for (std::int64_t r = 0; r < rank_; ++r) {
        const float factor = factors[r];
        const float* const row = layer_->basis.data() + r * width + first;
        for (std::size_t i = 0; i < key.size(); ++i) key[i] += factor * row[i];
      }
      if (settings_.rope) settings_.rope->rotate(key, token);
      kernels::to_half(key.data(), keys + head * head_stride, shape_.head_dim);
    }
  }

  LowRankSettings settings_;
  StreamShape shape_;
  std::int64_t sliding_window_;
  bool leave_;
  Token visible_ = 0;  // earlier tokens have left the sliding window
  DecodedStore store_;
  std::int64_t rank_ = 0;
  double cost_per_column_ = 1;  // KeptColumns
  std::shared_ptr<LayerFactors> layer_;
  std::int64_t prompt_tokens_ = 0;
  std::int64_t layer_heads_ = 1;
};

const Registered<Precision> kLowRankKeys({
    .name = "low_rank_keys",
    .help = "the prompt's grouped keys are rebuilt from factors in memory; only values are fetched",
    .source = "ShadowKV (Sun et al., 2024), section 4; released code bytedance/ShadowKV",
    .parameters =
        {integer_parameter("rank", kOfModelColumns, 0, {0, 65536},
                           "rank of the keys of all KV heads jointly; 0 = by rank_share"),
         real_parameter("rank_share", kOfModelColumns, 0.15625, {0, 1},
                        "rank as a share of kv_heads * head_dim of the model that is "
                        "replayed: 160 of 1024 in ShadowKV"),
         choice_parameter(
             "keys", {"pre_rope", "post_rope"}, "pre_rope",
             "which keys are factorised; pre_rope needs a plain RoPE, which is undone and "
             "reapplied")},
    .make =
        [](const Arguments& arguments, const Precision::Context& context) {
          const bool before_rope = arguments.text("keys") == "pre_rope";
          if (before_rope && !context.rope) {
            throw UserError(arguments.place("keys"),
                            "pre_rope, but the recording's RoPE is scaled or not known",
                            "post_rope, or a trace with rope_scaling none");
          }
          return std::make_unique<LowRankKeys>(
              LowRankSettings{.rank = arguments.integer("rank"),
                              .rank_share = arguments.real("rank_share"),
                              .rope = before_rope ? context.rope : std::nullopt},
              context);
        },
});

}  // namespace
}  // namespace kvreplay
