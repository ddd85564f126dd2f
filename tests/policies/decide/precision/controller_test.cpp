#include "policies/decide/precision/support/controller.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "policies/decide/precision/support/controller_training.hpp"
#include "policies/decide/precision/support/token_features.hpp"
#include "policies/decide/precision/support/token_widths.hpp"
#include "policies/kernels/quantise.hpp"
#include "tests/policies/decide/precision/precision_driver.hpp"
#include "tests/support/synthetic_trace.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using ::testing::HasSubstr;

std::string read(const std::string& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// Samples whose class follows from the first two features.
std::vector<ControllerSample> separable_samples(std::int64_t count) {
  Random random(9);
  std::vector<ControllerSample> samples;
  for (std::int64_t i = 0; i < count; ++i) {
    ControllerSample sample;
    for (double& x : sample.features) x = 10 * random.uniform() - 3;
    sample.label = (sample.features[0] > 2 ? 2 : 0) + (sample.features[1] > 2 ? 1 : 0);
    sample.error = {0.5, 0.1, 0.01, 0};
    samples.push_back(sample);
  }
  return samples;
}

TEST(ControllerLoss, TheGradientIsTheNumericalDerivative) {
  std::vector<ControllerSample> samples = separable_samples(7);
  Random random(4);
  std::vector<double> parameters;
  for (std::int64_t i = 0; i < Controller::kParameters; ++i) {
    parameters.push_back(0.4 * random.uniform() - 0.2);
  }
  const ControllerLoss loss{
      .alpha = 0.7, .beta = 0.3, .gamma = 0.5, .cost = {.1, .3, .5, 1}, .quality = {.2, .7, .9, 1}};
  std::vector<double> gradient(parameters.size());
  (void)controller_loss(parameters, samples, loss, gradient);
  int nonzero = 0;
  for (int check = 0; check < 300; ++check) {
    // Every layer: the last 600 parameters hold the output layer.
    const std::size_t i =
        check < 150 ? random.below(parameters.size()) : parameters.size() - 1 - random.below(600);
    constexpr double kStep = 1e-6;
    const double kept = parameters[i];
    parameters[i] = kept + kStep;
    const double above = controller_loss(parameters, samples, loss, {});
    parameters[i] = kept - kStep;
    const double below = controller_loss(parameters, samples, loss, {});
    parameters[i] = kept;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-7) << "parameter " << i;
    nonzero += gradient[i] != 0 ? 1 : 0;
  }
  EXPECT_GT(nonzero, 200);
}

TEST(ControllerLoss, IsWhatThePaperSays) {
  // All parameters 0: every class has probability 1/4.
  const std::vector<ControllerSample> samples = separable_samples(5);
  const std::vector<double> parameters(Controller::kParameters, 0.0);
  const ControllerLoss loss{
      .alpha = 2, .beta = 3, .gamma = 5, .cost = {0, .2, .4, 1}, .quality = {.1, .5, .8, 1}};
  EXPECT_NEAR(controller_loss(parameters, samples, loss, {}),
              2 * std::log(4.0) + 3 * 0.4 + 5 * (1 - 0.6), 1e-12);
}

TEST(TrainController, LearnsASeparableRuleTheSameWayEachTime) {
  static_assert(Controller::kParameters == 17668);
  const std::vector<ControllerSample> samples = separable_samples(1000);
  TrainOptions options;
  options.epochs = 15;
  const TrainedController first = train_controller(samples, 32, options);
  EXPECT_GT(first.validation_accuracy, 0.9);
  EXPECT_EQ(first.training_samples + first.validation_samples, 1000);
  EXPECT_NEAR(static_cast<double>(first.training_samples), 800, 4);
  EXPECT_NEAR(first.loss.quality[0], 0.5, 1e-12);
  EXPECT_EQ(first.loss.cost[0], 3.0 / 16);
  EXPECT_EQ(first.loss.cost[3], 1.0);

  const TemporaryFolder folder;
  first.controller.save(folder.file("a.json"), first.report("abc", {}, options));
  const TrainedController second = train_controller(samples, 32, options);
  second.controller.save(folder.file("b.json"), second.report("abc", {}, options));
  EXPECT_EQ(read(folder.file("a.json")), read(folder.file("b.json")));

  const Controller loaded = Controller::load(folder.file("a.json"));
  EXPECT_EQ(loaded.parameters, first.controller.parameters);
  EXPECT_EQ(loaded.mean, first.controller.mean);
  EXPECT_EQ(loaded.deviation, first.controller.deviation);

  options.seed = 2;
  EXPECT_NE(train_controller(samples, 32, options).controller.parameters, loaded.parameters);
}

TEST(TrainController, RefusesTooFewSamples) {
  std::vector<ControllerSample> samples(4);
  for (int c = 0; c < 4; ++c) samples[static_cast<std::size_t>(c)].label = c;
  EXPECT_THAT(user_error_of([&] { (void)train_controller(samples, 32, {}); }),
              HasSubstr("4 samples"));
}

TEST(Controller, RefusesFilesThatAreNotOne) {
  const TemporaryFolder folder;
  Controller controller;
  controller.parameters.assign(Controller::kParameters, 0.5);
  controller.save(folder.file("good.json"), "{}");
  const nlohmann::json good = nlohmann::json::parse(read(folder.file("good.json")));
  const auto error = [&](const char* key, nlohmann::json value) {
    nlohmann::json bad = good;
    bad[key] = std::move(value);
    std::ofstream(folder.file("bad.json")) << bad;
    return user_error_of([&] { (void)Controller::load(folder.file("bad.json")); });
  };
  EXPECT_THAT(error("format", "something"), HasSubstr("kvreplay-controller"));
  EXPECT_THAT(error("parameters", {1, 2, 3}), HasSubstr("17668"));
  EXPECT_THAT(error("widths_bits", {2, 4, 8}), HasSubstr("widths_bits"));
  EXPECT_THAT(error("deviation", {1, 1, 0, 1}), HasSubstr("deviation"));
  EXPECT_THAT(error("mean", {1, 1, "x", 1}), HasSubstr("mean"));
}

class FixedFeatures final : public TokenFeatureSource {
 public:
  [[nodiscard]] const TokenFeatures& features() const override { return all; }
  TokenFeatures all;
};

TEST(LearnedWidth, StoresEachTokenAtTheWidthThatTheControllerChooses) {
  // First layer: unit 0 passes the entropy on; output: class c wins for an entropy near c.
  Controller controller;
  controller.parameters.assign(Controller::kParameters, 0);
  controller.group_channels = 16;
  double* p = controller.parameters.data();
  p[0] = 1;  // W1[0][entropy]
  p += Controller::kHidden * Controller::kInputs + Controller::kHidden;
  p[0] = 1;  // W2[0][0]
  p += Controller::kHidden * Controller::kHidden + Controller::kHidden;
  for (int c = 0; c < 4; ++c) {
    p[c * Controller::kHidden] = 2 * c;                            // W3[c][0]
    p[4 * Controller::kHidden + c] = -static_cast<double>(c) * c;  // b3: 2 c x - c^2 peaks at c = x
  }
  const TemporaryFolder folder;
  controller.save(folder.file("controller.json"), "{}");

  const RandomLayer layer(16, 4);
  FixedFeatures features;
  for (int token = 0; token < 20; ++token)
    features.all.rows.push_back({double(token % 4), 0, 0, 0});
  PrecisionDriver driver(
      R"({"part": "controller", "file": ")" + folder.file("controller.json") + "\"}", layer,
      &features);
  driver.prompt();
  driver.step();
  const std::vector<std::string> names{"int2", "int4", "int8", "fp16"};
  std::vector<double> error(4);
  for (Token token = 0; token < 17; ++token) {
    const auto width = static_cast<std::size_t>(token % 4);
    EXPECT_EQ(driver.format_of(token).name, names[width]);
    for (std::int64_t head = 0; head < 2; ++head) {
      error[width] += relative_error(row(layer.entries(17).values, head, token),
                                     row(driver.decoded().values, head, token));
    }
  }
  EXPECT_GT(error[0], 3 * error[1]);
  EXPECT_GT(error[1], 3 * error[2]);
  EXPECT_GT(error[2], 0);
  EXPECT_EQ(error[3], 0);
}

TEST(Rule, SplitsThePromptAtItsQuartilesOfEntropy) {
  const RandomLayer layer(16, 4);
  FixedFeatures features;
  for (int token = 0; token < 16; ++token) features.all.rows.push_back({double(token * 5 % 16)});
  for (const double entropy : {-1.0, 4.5, 9.0, 100.0}) features.all.rows.push_back({entropy});
  PrecisionDriver driver(R"({"part": "rule", "group_channels": 16})", layer, &features);
  driver.prompt();
  for (int i = 0; i < 4; ++i) driver.step();
  const std::vector<std::string> names{"int2", "int4", "int8", "fp16"};
  for (Token token = 0; token < 16; ++token) {
    EXPECT_EQ(driver.format_of(token).name, names[static_cast<std::size_t>(token * 5 % 16 / 4)]);
  }
  for (Token i = 0; i < 4; ++i) {
    EXPECT_EQ(driver.format_of(16 + i).name, names[static_cast<std::size_t>(i)]);
  }
}

TEST(TokenFeatures, AgreeWithASlowReference) {
  const TemporaryFolder folder;
  const std::string file = folder.file("t.kvtrace.h5");
  const SyntheticShape shape{.prompt = 60, .decode = 10};
  write_synthetic_trace(file, shape);
  const TraceReader trace(file);
  const TraceTokenFeatures source(trace);
  const TokenFeatures& features = source.features();
  ASSERT_EQ(features.rows.size(), 70u);

  const std::vector<std::int32_t> ids = trace.token_ids();
  const std::vector<float> entropy = trace.token_statistic("entropy");
  const TraceLayer layer = trace.load_layer(1);
  double window_mean = 0;
  for (std::size_t t = 0; t < 70; ++t) {
    const auto before = ids.begin() + static_cast<std::ptrdiff_t>(t);
    const double count = static_cast<double>(std::count(ids.begin(), before, ids[t]));
    std::vector<std::int32_t> seen(ids.begin(), before);
    std::sort(seen.begin(), seen.end());
    const auto distinct =
        static_cast<double>(std::distance(seen.begin(), std::unique(seen.begin(), seen.end())));
    EXPECT_EQ(features.rows[t][0], entropy[t]);
    EXPECT_NEAR(features.rows[t][1],
                -std::log((count + 1) / (static_cast<double>(t) + distinct + 1)), 1e-12);
    if (static_cast<std::int64_t>(t) < layer.query_start) continue;
    double variance = 0;
    for (std::int64_t head = 0; head < shape.query_heads; ++head) {
      std::vector<double> p;
      double sum = 0;
      for (std::size_t k = 0; k <= t; ++k) {
        double dot = 0;
        for (std::int64_t d = 0; d < shape.head_dim; ++d) {
          dot += double{to_float(layer.queries.row(
                     head, static_cast<std::int64_t>(t) - layer.query_start)[d])} *
                 double{to_float(layer.keys.row(head / 3, static_cast<std::int64_t>(k))[d])};
        }
        p.push_back(std::exp(dot * trace.info().softmax_scale));
        sum += p.back();
      }
      const auto n = static_cast<double>(p.size());
      for (const double x : p) {
        variance += std::pow(x / sum - 1 / n, 2) / static_cast<double>(shape.query_heads);
      }
    }
    EXPECT_NEAR(features.rows[t][2], variance, 1e-5 * variance + 1e-9);
    if (t < 60) window_mean += variance / 16;
  }
  EXPECT_NEAR(features.rows[0][2], window_mean, 1e-5 * window_mean);
}

TEST(ControllerSamples, NarrowerWidthsHaveLargerErrorsAndLabelsFollow) {
  const TemporaryFolder folder;
  const std::string file = folder.file("t.kvtrace.h5");
  write_synthetic_trace(file, {.prompt = 96, .decode = 32});
  const TraceReader trace(file);
  LabelOptions options;
  options.query_stride = 4;
  options.distance_tokens = 8;
  const std::vector<ControllerSample> samples = controller_samples(trace, options);
  ASSERT_EQ(samples.size(), 40u) << "tokens from the first query on, up to 8 before the last one";
  for (const ControllerSample& sample : samples) {
    EXPECT_GT(sample.error[0], sample.error[1]);
    EXPECT_GT(sample.error[1], sample.error[2]);
    EXPECT_EQ(sample.error[3], 0);
    const auto label = static_cast<std::size_t>(sample.label);
    EXPECT_LE(sample.error[label], options.tolerance);
    if (label > 0) {
      EXPECT_GT(sample.error[label - 1], options.tolerance);
    }
  }
}

/// Copies a trace with `bias` added to the first channel of every key.
void write_biased_copy(const TraceReader& source, float bias, const std::string& file) {
  TraceWriter writer(file, source.info(), {.start = source.query_start(0)});
  for (std::int64_t i = 0; i < std::ssize(source.info().recorded_layers); ++i) {
    const TraceLayer layer = source.load_layer(i);
    for (const auto& [tensor, rows] : {std::pair{LayerTensor::kKey, layer.keys},
                                       {LayerTensor::kValue, layer.values},
                                       {LayerTensor::kQuery, layer.queries}}) {
      for (std::int64_t head = 0; head < rows.heads; ++head) {
        std::vector<Half> copy(rows.head(head), rows.head(head) + rows.tokens * rows.dim);
        for (std::int64_t t = 0; tensor == LayerTensor::kKey && t < rows.tokens; ++t) {
          Half& first = copy[static_cast<std::size_t>(t * rows.dim)];
          first = to_half(to_float(first) + bias);
        }
        writer.append(i, tensor, head, copy);
      }
    }
  }
  writer.write_tokens(source.token_ids(), source.token_statistic("entropy"),
                      source.token_statistic("top_probability"),
                      source.token_statistic("log_probability"));
  writer.finish();
}

/// A channel far from zero spoils its whole group's steps. Less their mean, keys are what they
/// were.
TEST(ControllerSamples, KeysAreRoundedInTheFormThatIsAskedFor) {
  const TemporaryFolder folder;
  write_synthetic_trace(folder.file("plain.kvtrace.h5"), {.prompt = 96, .decode = 32});
  const TraceReader trace(folder.file("plain.kvtrace.h5"));
  write_biased_copy(trace, 64, folder.file("biased.kvtrace.h5"));
  const TraceReader biased(folder.file("biased.kvtrace.h5"));
  const auto samples_of = [&](const TraceReader& source, const std::string& keys) {
    return controller_samples(source, {.query_stride = 4, .distance_tokens = 8, .keys = keys});
  };
  const auto mean_error = [](const std::vector<ControllerSample>& samples) {
    double sum = 0;
    for (const ControllerSample& sample : samples) sum += sample.error[1];
    return sum / static_cast<double>(samples.size());
  };
  const double plain = mean_error(samples_of(trace, "as_recorded"));
  EXPECT_GT(mean_error(samples_of(biased, "as_recorded")), 2 * plain);
  for (const char* keys : {"less_mean", "normalised"}) {
    SCOPED_TRACE(keys);
    EXPECT_LT(mean_error(samples_of(biased, keys)), 1.2 * plain);
  }
}

/// Compares the first-order error with the real effect of quantising one token on the output.
TEST(ControllerSamples, TheErrorIsThatOfTheAttentionOutput) {
  const TemporaryFolder folder;
  const std::string file = folder.file("t.kvtrace.h5");
  const SyntheticShape shape{
      .layers = 1, .query_heads = 2, .kv_heads = 1, .prompt = 60, .decode = 4};
  write_synthetic_trace(file, shape);
  const TraceReader trace(file);
  LabelOptions options;
  options.query_stride = 10;
  options.distance_tokens = 0;
  const std::vector<ControllerSample> samples = controller_samples(trace, options);

  const TraceLayer layer = trace.load_layer(0);
  constexpr std::size_t kEight = 2;
  double total = 0;
  double expected = 0;
  for (std::int64_t token = layer.query_start; token < layer.query_start + 10; ++token) {
    const ControllerSample& sample = samples[static_cast<std::size_t>(token - layer.query_start)];
    std::vector<Half> key(layer.keys.row(0, token), layer.keys.row(0, token) + 32);
    std::vector<Half> value(layer.values.row(0, token), layer.values.row(0, token) + 32);
    kernels::int_round_trip(key.data(), 32, 1, 8, key.data());
    kernels::int_round_trip(value.data(), 32, 1, 8, value.data());
    double error = 0;
    int count = 0;
    for (std::int64_t head = 0; head < 2; ++head) {
      for (std::int64_t q = 9; q < layer.queries.tokens; q += 10) {
        const std::int64_t n = layer.query_start + q + 1;
        const auto output = [&](bool quantised) {
          std::vector<double> sum(32);
          double weights = 0;
          for (std::int64_t k = 0; k < n; ++k) {
            const bool changed = quantised && k == token;
            double logit = 0;
            for (std::int64_t d = 0; d < 32; ++d) {
              logit += double{to_float(layer.queries.row(head, q)[d])} *
                       double{to_float(changed ? key[static_cast<std::size_t>(d)]
                                               : layer.keys.row(0, k)[d])};
            }
            const double weight = std::exp(logit * trace.info().softmax_scale);
            weights += weight;
            for (std::int64_t d = 0; d < 32; ++d) {
              sum[static_cast<std::size_t>(d)] +=
                  weight * double{to_float(changed ? value[static_cast<std::size_t>(d)]
                                                   : layer.values.row(0, k)[d])};
            }
          }
          for (double& x : sum) x /= weights;
          return sum;
        };
        const std::vector<double> exact = output(false);
        const std::vector<double> changed = output(true);
        double difference = 0;
        double norm = 0;
        for (std::size_t d = 0; d < 32; ++d) {
          difference += std::pow(changed[d] - exact[d], 2);
          norm += exact[d] * exact[d];
        }
        error += static_cast<double>(n) * std::sqrt(difference / norm);
        ++count;
      }
    }
    total += sample.error[kEight];
    expected += error / count;
    // The cross term of the two changes is left out, so a token may differ, but the mean hardly
    // does.
    EXPECT_NEAR(sample.error[kEight], error / count, 0.5 * error / count);
  }
  EXPECT_NEAR(total, expected, 0.1 * expected);
}

}  // namespace
}  // namespace kvreplay
