// By hand on Eigen: three small layers do not warrant LibTorch.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "policies/decide/precision/support/controller.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

/// What the controller learns from: a token's features, and the quality loss of each width.
struct ControllerSample {
  Controller::Features features{};
  std::array<double, Controller::kClasses> error{};  ///< per class; 0 at full width
  int label = 0;                                     ///< the narrowest class within the tolerance
};

struct LabelOptions {
  std::int64_t group_channels = 32;
  /// Largest error that a label accepts. The paper does not say how labels are made. Ours: errors
  /// of n independent tokens add up to about tolerance / sqrt(n) of the output.
  double tolerance = 1;
  std::int64_t query_stride = 4;  ///< only every query_stride-th recorded query is used
  /// Smallest distance of a query from the token: the nearest tokens are important to every query,
  /// whatever they are. Ours.
  std::int64_t distance_tokens = 128;
  std::string keys = "as_recorded";  ///< form in which keys are rounded, see KeyForm
};

/// A sample for each token that has a recorded query of its own (the features need it) and that a
/// sampled query sees from at least the distance. The error of token t at a width is the
/// first-order change of the attention output when t alone is quantised,
///   n w_t sqrt(|dv|^2 + (scale q . dk)^2 |v_t - o|^2) / |o|,
/// averaged over recorded layers, query heads and sampled queries; w_t is t's attention weight
/// among the query's n tokens, and o the output. The factor n gives an average token the relative
/// error of its vectors. Ours.
[[nodiscard]] std::vector<ControllerSample> controller_samples(const TraceReader& trace,
                                                               const LabelOptions& options);

/// Weights of the loss: alpha * cross-entropy + beta * expected cost + gamma * (1 - expected
/// quality). (Don't Waste Bits, Eq. 25-28; the paper does not state the weights: ours)
struct ControllerLoss {
  double alpha = 1;
  double beta = 0.1;
  double gamma = 0.1;
  std::array<double, Controller::kClasses> cost{};     ///< stored bits / 16, scales included
  std::array<double, Controller::kClasses> quality{};  ///< 1 - mean error, each at most 1
};

/// The loss over samples whose features are already standardised. `gradient`, unless empty,
/// receives its derivative with respect to each parameter.
[[nodiscard]] double controller_loss(std::span<const double> parameters,
                                     std::span<const ControllerSample> samples,
                                     const ControllerLoss& loss, std::span<double> gradient);

/// Adam (Kingma and Ba, 2015) with its usual moments. Rate, batch size and epochs are not stated:
/// ours.
struct TrainOptions {
  double alpha = 1;
  double beta = 0.1;
  double gamma = 0.1;
  double learning_rate = 1e-3;
  std::int64_t batch = 64;
  std::int64_t epochs = 40;
  std::uint64_t seed = 1;
};

struct TrainedController {
  Controller controller;
  ControllerLoss loss;  ///< with the costs and qualities used in training
  std::int64_t training_samples = 0;
  std::int64_t validation_samples = 0;
  double training_loss = 0;
  double validation_loss = 0;
  double validation_accuracy = 0;
  double validation_bits = 0;  ///< mean stored bits per element of the chosen widths
  std::array<std::int64_t, Controller::kClasses> labels{};  ///< number of samples per class

  /// The figures above and the options, as JSON text for Controller::save.
  [[nodiscard]] std::string report(const std::string& trace_sha256, const LabelOptions& labelling,
                                   const TrainOptions& options) const;
};

/// Trains on 80 % of the samples of each class and validates on the rest. Throws UserError when
/// there are too few samples to split. The same samples and options give the same bytes.
[[nodiscard]] TrainedController train_controller(std::span<const ControllerSample> samples,
                                                 std::int64_t group_channels,
                                                 const TrainOptions& options);

}  // namespace kvreplay
