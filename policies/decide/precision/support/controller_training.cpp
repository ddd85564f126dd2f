#include "policies/decide/precision/support/controller_training.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/random.hpp"
#include "policies/decide/precision/support/channel_groups.hpp"
#include "policies/decide/precision/support/token_widths.hpp"
#include "policies/kernels/elementary.hpp"
#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kClasses = Controller::kClasses;
constexpr std::int64_t kHidden = Controller::kHidden;
constexpr std::int64_t kInputs = Controller::kInputs;

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// ---- samples ----

/// The error of quantising one KV head's rows at one width, by token.
struct Loss {
  std::vector<float> key;            // [tokens, dim], decoded - exact
  std::vector<double> value_square;  // [tokens], |decoded - exact|^2
};

Loss quantisation_loss(const TraceLayer& layer, std::int64_t head, std::int64_t group, int bits,
                       const KeyForm& form) {
  const std::int64_t tokens = layer.keys.tokens;
  const std::int64_t dim = layer.keys.dim;
  Loss loss;
  loss.key.resize(static_cast<std::size_t>(tokens * dim));
  loss.value_square.resize(static_cast<std::size_t>(tokens));
  std::vector<Half> row(static_cast<std::size_t>(dim));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const Half* key = layer.keys.row(head, t);
    std::copy_n(key, dim, row.begin());
    form.to_rounded(row.data(), head, static_cast<Token>(t));
    round_trip_channel_groups(row.data(), dim, group, bits);
    form.from_rounded(row.data(), head, static_cast<Token>(t));
    for (std::int64_t d = 0; d < dim; ++d) {
      loss.key[static_cast<std::size_t>(t * dim + d)] =
          to_float(row[static_cast<std::size_t>(d)]) - to_float(key[d]);
    }
    const Half* value = layer.values.row(head, t);
    std::copy_n(value, dim, row.begin());
    round_trip_channel_groups(row.data(), dim, group, bits);
    double square = 0;
    for (std::int64_t d = 0; d < dim; ++d) {
      const double lost = to_float(row[static_cast<std::size_t>(d)]) - to_float(value[d]);
      square += lost * lost;
    }
    loss.value_square[static_cast<std::size_t>(t)] = square;
  }
  return loss;
}

/// Sums of errors over the sampled queries, by token and class.
struct ErrorSums {
  std::vector<std::array<double, kClasses>> error;
  std::vector<std::int64_t> count;
};

void add_errors(const TraceLayer& layer, std::int64_t kv_head, std::int64_t queries_per_kv_head,
                float scale, const LabelOptions& options, const KeyForm& form, ErrorSums& sums) {
  const std::int64_t tokens = layer.keys.tokens;
  const std::int64_t dim = layer.keys.dim;
  std::array<Loss, kClasses - 1> losses;
  for (std::size_t c = 0; c < losses.size(); ++c) {
    losses[c] = quantisation_loss(layer, kv_head, options.group_channels, kWidths[c], form);
  }
  std::vector<Token> all(static_cast<std::size_t>(tokens));
  std::iota(all.begin(), all.end(), 0);
  std::vector<float> value(static_cast<std::size_t>(dim));
  std::vector<double> value_norm(all.size());
  for (std::int64_t t = 0; t < tokens; ++t) {
    kernels::to_float(layer.values.row(kv_head, t), value.data(), dim);
    value_norm[static_cast<std::size_t>(t)] = kernels::dot(value.data(), value.data(), dim);
  }

  std::vector<float> query(static_cast<std::size_t>(dim));
  std::vector<float> output(static_cast<std::size_t>(dim));
  std::vector<float> weights(all.size());
  std::vector<float> along(all.size());  // v_t . o
  std::vector<float> shift(all.size());  // q . dk_t
  for (std::int64_t h = kv_head * queries_per_kv_head; h < (kv_head + 1) * queries_per_kv_head;
       ++h) {
    for (std::int64_t q = options.query_stride - 1; q < layer.queries.tokens;
         q += options.query_stride) {
      const std::int64_t n = layer.query_start + q + 1;
      const auto seen = static_cast<std::size_t>(n);
      const auto distant =
          static_cast<std::size_t>(std::max<std::int64_t>(n - options.distance_tokens, 0));
      kernels::to_float(layer.queries.row(h, q), query.data(), dim);
      kernels::attend(query.data(), layer.keys.head(kv_head), layer.values.head(kv_head),
                      std::span(all).first(seen), dim, scale, weights.data(), output.data());
      kernels::score(output.data(), 1, layer.values.head(kv_head), n, dim, along.data(), n);
      const double output_norm = kernels::dot(output.data(), output.data(), dim);
      if (output_norm == 0) continue;
      for (std::size_t c = 0; c < losses.size(); ++c) {
        kernels::score(query.data(), 1, losses[c].key.data(), n, dim, shift.data(), n);
        for (std::size_t t = 0; t < distant; ++t) {
          const double moved = static_cast<double>(scale) * shift[t];
          const double distance = std::max(value_norm[t] - 2.0 * along[t] + output_norm, 0.0);
          sums.error[t][c] +=
              static_cast<double>(n) * weights[t] *
              std::sqrt((losses[c].value_square[t] + moved * moved * distance) / output_norm);
        }
      }
      for (std::size_t t = 0; t < distant; ++t) ++sums.count[t];
    }
  }
}

// ---- network ----

/// The flat parameters, viewed as the three layers' matrices. Number: double or const double.
template <typename Number>
struct Layers {
  template <typename M>
  using Map = Eigen::Map<std::conditional_t<std::is_const_v<Number>, const M, M>>;

  explicit Layers(Number* p)
      : w1(p, kHidden, kInputs),
        b1(w1.data() + w1.size(), kHidden),
        w2(b1.data() + b1.size(), kHidden, kHidden),
        b2(w2.data() + w2.size(), kHidden),
        w3(b2.data() + b2.size(), kClasses, kHidden),
        b3(w3.data() + w3.size(), kClasses) {}

  Map<Matrix> w1;
  Map<Eigen::RowVectorXd> b1;
  Map<Matrix> w2;
  Map<Eigen::RowVectorXd> b2;
  Map<Matrix> w3;
  Map<Eigen::RowVectorXd> b3;
};

Matrix feature_matrix(std::span<const ControllerSample> samples) {
  Matrix inputs(std::ssize(samples), kInputs);
  for (std::int64_t i = 0; i < inputs.rows(); ++i) {
    for (std::int64_t f = 0; f < kInputs; ++f) {
      inputs(i, f) = samples[static_cast<std::size_t>(i)].features[static_cast<std::size_t>(f)];
    }
  }
  return inputs;
}

/// He's uniform initialisation for weights that feed rectified units; biases start at zero.
std::vector<double> initial_parameters(Random& random) {
  std::vector<double> parameters(static_cast<std::size_t>(Controller::kParameters), 0.0);
  Layers<double> layers(parameters.data());
  const auto fill = [&](auto& weights) {
    const double limit = std::sqrt(6.0 / static_cast<double>(weights.cols()));
    for (std::int64_t i = 0; i < weights.size(); ++i) {
      weights.data()[i] = (2 * random.uniform() - 1) * limit;
    }
  };
  fill(layers.w1);
  fill(layers.w2);
  fill(layers.w3);
  return parameters;
}

class Adam {
 public:
  Adam(std::size_t parameters, double rate)
      : rate_(rate), first_(parameters), second_(parameters) {}

  void step(std::span<const double> gradient, std::span<double> parameters) {
    first_power_ *= kFirst;
    second_power_ *= kSecond;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      first_[i] = kFirst * first_[i] + (1 - kFirst) * gradient[i];
      second_[i] = kSecond * second_[i] + (1 - kSecond) * gradient[i] * gradient[i];
      const double mean = first_[i] / (1 - first_power_);
      const double square = second_[i] / (1 - second_power_);
      parameters[i] -= rate_ * mean / (std::sqrt(square) + kEpsilon);
    }
  }

 private:
  static constexpr double kFirst = 0.9;
  static constexpr double kSecond = 0.999;
  static constexpr double kEpsilon = 1e-8;

  double rate_;
  double first_power_ = 1;
  double second_power_ = 1;
  std::vector<double> first_;
  std::vector<double> second_;
};

// ---- training ----

struct Split {
  std::vector<ControllerSample> training;
  std::vector<ControllerSample> validation;
};

/// Draws 80 % of each class at random for training.
Split stratified_split(std::span<const ControllerSample> samples, Random& random) {
  Split split;
  for (int c = 0; c < kClasses; ++c) {
    std::vector<ControllerSample> of_class;
    std::copy_if(samples.begin(), samples.end(), std::back_inserter(of_class),
                 [&](const ControllerSample& sample) { return sample.label == c; });
    random.shuffle(std::span(of_class));
    const auto training = static_cast<std::ptrdiff_t>(of_class.size() * 4 / 5);
    split.training.insert(split.training.end(), of_class.begin(), of_class.begin() + training);
    split.validation.insert(split.validation.end(), of_class.begin() + training, of_class.end());
  }
  return split;
}

void fit_standardisation(std::span<const ControllerSample> samples, Controller& controller) {
  const auto n = static_cast<double>(samples.size());
  for (std::size_t f = 0; f < controller.mean.size(); ++f) {
    double sum = 0;
    for (const ControllerSample& sample : samples) sum += sample.features[f];
    const double mean = sum / n;
    double squares = 0;
    for (const ControllerSample& sample : samples) {
      squares += (sample.features[f] - mean) * (sample.features[f] - mean);
    }
    const double deviation = std::sqrt(squares / n);
    // Rounded as stored: the training result is exactly what a file gives back.
    controller.mean[f] = static_cast<float>(mean);
    controller.deviation[f] = deviation > 0 ? static_cast<float>(deviation) : 1.0;
  }
}

void standardise(const Controller& controller, std::vector<ControllerSample>& samples) {
  for (ControllerSample& sample : samples) {
    sample.features = controller.standardised(sample.features);
  }
}

}  // namespace

std::vector<ControllerSample> controller_samples(const TraceReader& trace,
                                                 const LabelOptions& options) {
  const TraceInfo& info = trace.info();
  const auto tokens = static_cast<std::size_t>(info.tokens);
  ErrorSums sums{std::vector<std::array<double, kClasses>>(tokens),
                 std::vector<std::int64_t>(tokens)};
  for (std::int64_t i = 0; i < std::ssize(info.recorded_layers); ++i) {
    const TraceLayer layer = trace.load_layer(i);
    KeyForm form(options.keys, {.kv_heads = info.kv_heads, .head_dim = info.head_dim});
    form.learn({layer.keys, layer.values}, 0, static_cast<Token>(info.prompt_tokens));
    for (std::int64_t head = 0; head < info.kv_heads; ++head) {
      add_errors(layer, head, info.queries_per_kv_head(), static_cast<float>(info.softmax_scale),
                 options, form, sums);
    }
  }
  const TraceTokenFeatures source(trace);
  const TokenFeatures& features = source.features();
  std::vector<ControllerSample> samples;
  const auto first = static_cast<std::size_t>(trace.load_layer(0).query_start);
  for (std::size_t t = first; t < tokens && sums.count[t] > 0; ++t) {
    ControllerSample sample{.features = features.rows[t]};
    for (std::size_t c = 0; c < sample.error.size(); ++c) {
      sample.error[c] = sums.error[t][c] / static_cast<double>(sums.count[t]);
    }
    while (sample.error[static_cast<std::size_t>(sample.label)] > options.tolerance) ++sample.label;
    samples.push_back(sample);
  }
  return samples;
}

double controller_loss(std::span<const double> parameters,
                       std::span<const ControllerSample> samples, const ControllerLoss& loss,
                       std::span<double> gradient) {
  const Layers<const double> layers(parameters.data());
  const Matrix inputs = feature_matrix(samples);
  const Matrix hidden1 = ((inputs * layers.w1.transpose()).rowwise() + layers.b1).cwiseMax(0);
  const Matrix hidden2 = ((hidden1 * layers.w2.transpose()).rowwise() + layers.b2).cwiseMax(0);
  const Matrix logits = (hidden2 * layers.w3.transpose()).rowwise() + layers.b3;

  const auto n = static_cast<double>(samples.size());
  double total = 0;
  Matrix by_logit(logits.rows(), kClasses);
  for (std::int64_t i = 0; i < logits.rows(); ++i) {
    const int label = samples[static_cast<std::size_t>(i)].label;
    const double max_logit = logits.row(i).maxCoeff();
    std::array<double, kClasses> p{};
    double sum = 0;
    for (int c = 0; c < kClasses; ++c) {
      p[static_cast<std::size_t>(c)] = kernels::exp(logits(i, c) - max_logit);
      sum += p[static_cast<std::size_t>(c)];
    }
    // Cost and quality are both linear in the probabilities.
    double expected = 0;
    std::array<double, kClasses> weight{};
    for (std::size_t c = 0; c < p.size(); ++c) {
      p[c] /= sum;
      weight[c] = loss.beta * loss.cost[c] - loss.gamma * loss.quality[c];
      expected += p[c] * weight[c];
    }
    const double cross_entropy = kernels::ln(sum) - (logits(i, label) - max_logit);
    total += loss.alpha * cross_entropy + expected + loss.gamma;
    for (int c = 0; c < kClasses; ++c) {
      const auto at = static_cast<std::size_t>(c);
      by_logit(i, c) =
          (loss.alpha * (p[at] - (c == label ? 1 : 0)) + p[at] * (weight[at] - expected)) / n;
    }
  }
  if (!gradient.empty()) {
    Layers<double> by(gradient.data());
    by.w3 = by_logit.transpose() * hidden2;
    by.b3 = by_logit.colwise().sum();
    const Matrix by_hidden2 =
        (by_logit * layers.w3).cwiseProduct((hidden2.array() > 0).cast<double>().matrix());
    by.w2 = by_hidden2.transpose() * hidden1;
    by.b2 = by_hidden2.colwise().sum();
    const Matrix by_hidden1 =
        (by_hidden2 * layers.w2).cwiseProduct((hidden1.array() > 0).cast<double>().matrix());
    by.w1 = by_hidden1.transpose() * inputs;
    by.b1 = by_hidden1.colwise().sum();
  }
  return total / n;
}

TrainedController train_controller(std::span<const ControllerSample> samples,
                                   std::int64_t group_channels, const TrainOptions& options) {
  Random random(options.seed);
  Split split = stratified_split(samples, random);
  if (split.training.empty() || split.validation.empty()) {
    throw UserError(
        "a controller needs at least two samples of a class, one to train on and one to "
        "validate with; of " +
        std::to_string(samples.size()) + " samples no two are of one class");
  }
  TrainedController trained;
  trained.controller.group_channels = group_channels;
  trained.training_samples = std::ssize(split.training);
  trained.validation_samples = std::ssize(split.validation);
  for (const ControllerSample& sample : samples) {
    ++trained.labels[static_cast<std::size_t>(sample.label)];
  }
  fit_standardisation(split.training, trained.controller);
  standardise(trained.controller, split.training);

  trained.loss.alpha = options.alpha;
  trained.loss.beta = options.beta;
  trained.loss.gamma = options.gamma;
  for (std::size_t c = 0; c < kClasses; ++c) {
    double error = 0;
    for (const ControllerSample& sample : split.training) error += std::min(sample.error[c], 1.0);
    trained.loss.cost[c] = stored_bits(static_cast<int>(c), group_channels) / 16;
    trained.loss.quality[c] = 1 - error / static_cast<double>(trained.training_samples);
  }

  std::vector<double> parameters = initial_parameters(random);
  std::vector<double> gradient(parameters.size());
  Adam adam(parameters.size(), options.learning_rate);
  const auto batch = static_cast<std::size_t>(options.batch);
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    random.shuffle(std::span(split.training));
    double sum = 0;
    for (std::size_t begin = 0; begin < split.training.size(); begin += batch) {
      const auto part = std::span<const ControllerSample>(split.training)
                            .subspan(begin, std::min(batch, split.training.size() - begin));
      sum += controller_loss(parameters, part, trained.loss, gradient) *
             static_cast<double>(part.size());
      adam.step(gradient, parameters);
    }
    trained.training_loss = sum / static_cast<double>(trained.training_samples);
  }
  for (double& parameter : parameters) parameter = static_cast<float>(parameter);
  trained.controller.parameters = std::move(parameters);

  double right = 0;
  double bits = 0;
  for (const ControllerSample& sample : split.validation) {
    const int chosen = trained.controller.choose(sample.features);
    right += chosen == sample.label ? 1 : 0;
    bits += stored_bits(chosen, group_channels);
  }
  const auto n = static_cast<double>(trained.validation_samples);
  trained.validation_accuracy = right / n;
  trained.validation_bits = bits / n;
  standardise(trained.controller, split.validation);
  trained.validation_loss =
      controller_loss(trained.controller.parameters, split.validation, trained.loss, {});
  return trained;
}

std::string TrainedController::report(const std::string& trace_sha256,
                                      const LabelOptions& labelling,
                                      const TrainOptions& options) const {
  nlohmann::ordered_json json;
  json["trace_sha256"] = trace_sha256;
  json["label_tolerance"] = labelling.tolerance;
  json["label_query_stride"] = labelling.query_stride;
  json["label_distance_tokens"] = labelling.distance_tokens;
  if (labelling.keys != key_form_names().front()) json["label_keys"] = labelling.keys;
  json["alpha"] = options.alpha;
  json["beta"] = options.beta;
  json["gamma"] = options.gamma;
  json["learning_rate"] = options.learning_rate;
  json["batch"] = options.batch;
  json["epochs"] = options.epochs;
  json["seed"] = options.seed;
  json["cost"] = loss.cost;
  json["quality"] = loss.quality;
  json["labels"] = labels;
  json["training_samples"] = training_samples;
  json["validation_samples"] = validation_samples;
  json["training_loss"] = training_loss;
  json["validation_loss"] = validation_loss;
  json["validation_accuracy"] = validation_accuracy;
  json["validation_stored_bits"] = validation_bits;
  return json.dump();
}

}  // namespace kvreplay
