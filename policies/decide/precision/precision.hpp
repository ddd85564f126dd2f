#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry.hpp"
#include "policies/decide/log/entry_format.hpp"
#include "policies/decide/log/groups.hpp"
#include "policies/decide/log/prompt_work.hpp"
#include "traces/rope.hpp"

namespace kvreplay {

class TokenFeatureSource;

/// Role: the precision at which an entry is stored, and its decoded vectors. Quality is always
/// measured on the decoded vectors.
class Precision {
 public:
  static constexpr std::string_view kRole = "precision";
  static constexpr Stage kStage = Stage::kDecide;
  static constexpr std::string_view kDefaultPart = "fp16";
  struct Context {
    StreamShape shape;
    std::int64_t max_tokens = 0;                   ///< the sequence never grows beyond
    const TokenFeatureSource* features = nullptr;  ///< null where none are to be had
    std::optional<RotaryEmbedding> rope{};         ///< of the keys; none where it is not known
    std::int64_t sliding_window = 0;               ///< as in LayerShape
    /// Entries leave memory in encode()'s form and come back by decode(): the part keeps none of
    /// them, and nobody calls decoded().
    bool entries_leave = false;
    /// A place, empty at first, for what the streams of a layer have in common, so that memory
    /// holds it once; null where a stream is alone. They run one after the other.
    std::shared_ptr<void>* of_layer = nullptr;
  };

  virtual ~Precision() = default;

  /// The formats that this part uses; tokens begin in format 0.
  [[nodiscard]] virtual std::vector<EntryFormat> formats() const = 0;
  /// Tokens [begin, end) of `exact` are new. Emits kReencoded where a token's format changes.
  virtual void add_tokens(const Entries& exact, Token begin, Token end, EventSink& events) = 0;
  virtual void notify_event(const GroupEvent& /*event*/, const Groups& /*groups*/,
                            const Entries& /*exact*/) {}
  /// Called once the prompt's tokens are placed. `layer`: the prompt's entries of all KV heads of
  /// the stream's layer, for data that is stored for the heads jointly. Emits events as
  /// add_tokens() does.
  virtual void after_prompt(const Entries& /*layer*/, const Groups& /*groups*/,
                            EventSink& /*events*/) {}
  /// What storing a prompt of so many tokens took beyond the conversion of its entries, at the
  /// stream's own shape.
  [[nodiscard]] virtual PromptWork prompt_work(std::int64_t /*tokens*/) const { return {}; }
  /// Bytes of DRAM that decoding needs beside the entries themselves.
  [[nodiscard]] virtual std::int64_t held_bytes() const { return 0; }
  /// Of these, what grows with the prompt's tokens; the rest does not depend on its length.
  [[nodiscard]] virtual std::int64_t held_prompt_bytes() const { return 0; }
  /// How many elements the format's range does not suit: saturated, or stored with far coarser
  /// steps than others. Of a part that scales, none.
  [[nodiscard]] virtual std::int64_t out_of_range() const { return 0; }
  /// Whether entries are rounded channel by channel, so that a step may be wider than a channel's
  /// spread.
  [[nodiscard]] virtual bool rounds_channels() const { return true; }
  /// Whether kReencoded events of other parts change what is stored (notify_event).
  [[nodiscard]] virtual bool accepts_reencoding() const { return false; }
  /// What attention reads: `exact` as it comes back from storage, in the same shape. Tokens that
  /// have not been taken yet (the step's own) are exact. Valid until the next call of any method.
  [[nodiscard]] virtual Entries decoded(const Entries& exact) = 0;

  /// Whether encode() and decode() are there, so that entries can leave memory.
  [[nodiscard]] virtual bool has_codec() const { return false; }
  /// The token's entry as `format` stores it, in exactly the format's bytes.
  virtual void encode(const Entries& /*exact*/, Token /*token*/, std::int32_t /*format*/,
                      std::span<std::byte> /*to*/) const {
    throw std::logic_error("a precision that stores nothing outside memory");
  }
  /// What decoded() shows of the same token, to rows [kv_heads, head_dim] with `head_stride`
  /// elements from one head to the next.
  virtual void decode(std::span<const std::byte> /*from*/, Token /*token*/, std::int32_t /*format*/,
                      Half* /*keys*/, Half* /*values*/, std::int64_t /*head_stride*/) const {
    throw std::logic_error("a precision that stores nothing outside memory");
  }
};

}  // namespace kvreplay
