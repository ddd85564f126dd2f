#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "policies/decide/precision/precision.hpp"
#include "tests/support/random_layer.hpp"

namespace kvreplay {

/// Feeds a precision part the tokens of a random layer (6 query heads on 2 KV heads) and remembers
/// each token's format.
class PrecisionDriver final : public EventSink {
 public:
  PrecisionDriver(const std::string& part, const RandomLayer& layer,
                  const TokenFeatureSource* features = nullptr)
      : layer_(layer), formats_(static_cast<std::size_t>(layer.shape.max_tokens)) {
    precision_ = PartConfig<Precision>::parse(ConfigNode::parse(part, "test.json"))
                     .make({layer.joint_stream(), layer.shape.max_tokens, features,
                            RotaryEmbedding(10, false, layer.shape.head_dim)});
  }

  void prompt() {
    taken_ = layer_.shape.prompt_tokens;
    precision_->add_tokens(layer_.entries(taken_), 0, static_cast<Token>(taken_), *this);
  }
  void step() {
    ++taken_;
    precision_->add_tokens(layer_.entries(taken_), static_cast<Token>(taken_ - 1),
                           static_cast<Token>(taken_), *this);
  }
  void reencode(const std::vector<Token>& tokens, std::int32_t format) {
    precision_->notify_event({EventKind::kReencoded, kNoGroup, format, tokens}, groups_,
                             layer_.entries(taken_));
  }
  void on_event(const GroupEvent& event) override {
    if (event.kind != EventKind::kReencoded) throw std::logic_error("not a precision's event");
    for (const Token token : event.tokens) {
      formats_[static_cast<std::size_t>(token)] = event.other;
    }
  }

  [[nodiscard]] Precision& precision() { return *precision_; }
  /// The entries that attention at the next step sees, including the step's own token, where there
  /// is one.
  [[nodiscard]] Entries decoded() {
    return precision_->decoded(layer_.entries(std::min(taken_ + 1, layer_.shape.max_tokens)));
  }
  [[nodiscard]] std::int64_t taken() const { return taken_; }
  [[nodiscard]] std::int32_t format(Token token) const {
    return formats_[static_cast<std::size_t>(token)];
  }
  [[nodiscard]] const EntryFormat format_of(Token token) const {
    return precision_->formats()[static_cast<std::size_t>(format(token))];
  }

 private:
  const RandomLayer& layer_;
  std::unique_ptr<Precision> precision_;
  std::vector<std::int32_t> formats_;
  std::int64_t taken_ = 0;
  Groups groups_;
};

[[nodiscard]] inline std::vector<Half> row(const HalfTensor& tensor, std::int64_t head,
                                           std::int64_t token) {
  return {tensor.row(head, token), tensor.row(head, token) + tensor.dim};
}

/// |a - b| / |a|
[[nodiscard]] inline double relative_error(const std::vector<Half>& a, const std::vector<Half>& b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = to_float(a[i]);
    const double y = to_float(b[i]);
    difference += (x - y) * (x - y);
    norm += x * x;
  }
  return std::sqrt(difference / norm);
}

}  // namespace kvreplay
