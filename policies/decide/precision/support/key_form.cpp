#include "policies/decide/precision/support/key_form.hpp"

#include <cmath>

#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

float as_stored(double value) {
  return to_float(to_half(static_cast<float>(value)));
}

}  // namespace

const std::vector<std::string>& key_form_names() {
  static const std::vector<std::string> names{"as_recorded", "less_mean", "normalised"};
  return names;
}

std::vector<Parameter> with_key_form(std::vector<Parameter> others) {
  others.push_back(choice_parameter(
      "keys", key_form_names(), key_form_names().front(),
      "form in which keys are rounded: as recorded; less each channel's mean over the prompt; or "
      "that divided by the channel's spread"));
  others.push_back(choice_parameter(
      "keys_rope", {"kept", "undone"}, "kept",
      "whether keys are rounded with their RoPE or before it; undone needs a plain RoPE"));
  return others;
}

KeyForm::KeyForm(const Arguments& arguments, const Precision::Context& context)
    : KeyForm(arguments.text("keys"), context.shape) {
  if (arguments.text("keys_rope") == "kept") return;
  if (!context.rope) {
    throw UserError(arguments.place("keys_rope"),
                    "undone, but the recording's RoPE is scaled or not known",
                    "kept, or a trace with rope_scaling none");
  }
  rope_ = context.rope;
}

KeyForm::KeyForm(const std::string& keys, const StreamShape& shape)
    : channels_(keys == key_form_names()[0]   ? Channels::kAsRecorded
                : keys == key_form_names()[1] ? Channels::kLessMean
                                              : Channels::kNormalised),
      shape_(shape) {}

std::vector<float> KeyForm::load(const Half* key, Token token) const {
  std::vector<float> row(static_cast<std::size_t>(shape_.head_dim));
  kernels::to_float(key, row.data(), shape_.head_dim);
  if (rope_) rope_->rotate(row, -token);
  return row;
}

void KeyForm::learn(const Entries& exact, Token begin, Token end) {
  if (learnt_ || channels_ == Channels::kAsRecorded) return;
  learnt_ = true;
  const auto dim = static_cast<std::size_t>(shape_.head_dim);
  const auto tokens = static_cast<double>(end - begin);
  for (std::int64_t head = 0; head < shape_.kv_heads; ++head) {
    std::vector<double> sums(dim);
    std::vector<double> squares(dim);
    for (Token token = begin; token < end; ++token) {
      const std::vector<float> row = load(exact.keys.row(head, token), token);
      for (std::size_t i = 0; i < dim; ++i) {
        sums[i] += static_cast<double>(row[i]);
        squares[i] += static_cast<double>(row[i]) * static_cast<double>(row[i]);
      }
    }
    for (std::size_t i = 0; i < dim; ++i) {
      const double mean = sums[i] / tokens;
      mean_.push_back(as_stored(mean));
      const double variance = squares[i] / tokens - mean * mean;
      const float spread =
          channels_ == Channels::kNormalised && variance > 0 ? as_stored(std::sqrt(variance)) : 0;
      spread_.push_back(spread > 0 ? spread : 1);
    }
  }
}

void KeyForm::to_rounded(Half* key, std::int64_t kv_head, Token token) const {
  if (is_plain()) return;
  std::vector<float> row = load(key, token);
  const auto first = static_cast<std::size_t>(kv_head * shape_.head_dim);
  for (std::size_t i = 0; learnt_ && i < row.size(); ++i) {
    row[i] = (row[i] - mean_[first + i]) / spread_[first + i];
  }
  kernels::to_half(row.data(), key, shape_.head_dim);
}

void KeyForm::from_rounded(Half* key, std::int64_t kv_head, Token token) const {
  if (is_plain()) return;
  std::vector<float> row(static_cast<std::size_t>(shape_.head_dim));
  kernels::to_float(key, row.data(), shape_.head_dim);
  const auto first = static_cast<std::size_t>(kv_head * shape_.head_dim);
  for (std::size_t i = 0; learnt_ && i < row.size(); ++i) {
    row[i] = row[i] * spread_[first + i] + mean_[first + i];
  }
  if (rope_) rope_->rotate(row, token);
  kernels::to_half(row.data(), key, shape_.head_dim);
}

std::int64_t KeyForm::held_bytes() const {
  const std::int64_t of_each = 2 * shape_.kv_heads * shape_.head_dim;
  return channels_ == Channels::kAsRecorded ? 0
         : channels_ == Channels::kLessMean ? of_each
                                            : 2 * of_each;
}

}  // namespace kvreplay
