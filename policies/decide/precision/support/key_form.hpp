#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "policies/decide/precision/precision.hpp"

namespace kvreplay {

/// The values of "keys".
[[nodiscard]] const std::vector<std::string>& key_form_names();

/// `others`, then "keys" and "keys_rope": the form in which a part that rounds a token's vectors
/// rounds its keys.
[[nodiscard]] std::vector<Parameter> with_key_form(std::vector<Parameter> others);

/// Brings keys into the form in which they are rounded, and back. Some channels of a model's keys
/// lie far from zero with a small spread (Qwen2's biases): a format whose step grows with the
/// magnitude, or with the largest of a token's channels, then stores little but the mean.
class KeyForm {
 public:
  /// Throws UserError where RoPE cannot be undone.
  KeyForm(const Arguments& arguments, const Precision::Context& context);
  /// `keys`: one of key_form_names(). RoPE stays.
  KeyForm(const std::string& keys, const StreamShape& shape);

  /// The first tokens, the prompt's, give each channel's mean and spread, in half precision. Later
  /// calls change nothing.
  void learn(const Entries& exact, Token begin, Token end);

  /// In place, of the stream's head `kv_head`; each is the other's inverse but for rounding.
  void to_rounded(Half* key, std::int64_t kv_head, Token token) const;
  void from_rounded(Half* key, std::int64_t kv_head, Token token) const;

  /// Of the means and spreads.
  [[nodiscard]] std::int64_t held_bytes() const;

 private:
  enum class Channels { kAsRecorded, kLessMean, kNormalised };

  [[nodiscard]] bool is_plain() const { return channels_ == Channels::kAsRecorded && !rope_; }
  /// The key before RoPE, if that is undone.
  [[nodiscard]] std::vector<float> load(const Half* key, Token token) const;

  Channels channels_;
  StreamShape shape_;
  std::optional<RotaryEmbedding> rope_;  // to undo; none: keys as they are
  bool learnt_ = false;
  std::vector<float> mean_;    // [kv_heads, head_dim]
  std::vector<float> spread_;  // likewise
};

}  // namespace kvreplay
