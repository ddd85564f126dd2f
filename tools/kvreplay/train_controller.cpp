#include <CLI/CLI.hpp>
#include <iomanip>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "policies/decide/precision/support/controller_training.hpp"
#include "policies/decide/precision/support/key_form.hpp"
#include "tools/kvreplay/commands.hpp"
#include "tools/kvreplay/common_options.hpp"
#include "tools/kvreplay/option_values.hpp"

namespace kvreplay {
namespace {

struct ControllerOptions {
  std::vector<std::string> traces;
  std::string out;
  LabelOptions label;
  TrainOptions train;
};

void print(const TrainedController& trained) {
  static constexpr const char* kNames[] = {"2 bits", "4 bits", "8 bits", "16 bits"};
  std::cout << "samples: " << trained.training_samples << " to train on, "
            << trained.validation_samples << " to validate with\nlabels:";
  for (std::size_t c = 0; c < trained.labels.size(); ++c) {
    std::cout << (c == 0 ? " " : ", ") << trained.labels[c] << " of " << kNames[c];
  }
  std::cout << std::fixed << std::setprecision(4) << "\nloss: " << trained.training_loss
            << " in the last epoch, " << trained.validation_loss
            << " on the validation samples\nvalidation: " << std::setprecision(3)
            << trained.validation_accuracy << " of the labels met, " << trained.validation_bits
            << " stored bits per element\n";
}

void train(const ControllerOptions& options) {
  std::vector<ControllerSample> samples;
  std::vector<std::string> hashes;
  for (const std::string& file : options.traces) {
    const TraceReader trace(file);
    if (trace.info().head_dim % options.label.group_channels != 0) {
      throw UserError(
          {"train-controller", "--group-channels"},
          "found " + std::to_string(options.label.group_channels),
          "a divisor of the trace's head dimension, " + std::to_string(trace.info().head_dim));
    }
    const std::vector<ControllerSample> more = controller_samples(trace, options.label);
    samples.insert(samples.end(), more.begin(), more.end());
    hashes.push_back(trace.content_hash());
  }
  const TrainedController trained =
      train_controller(samples, options.label.group_channels, options.train);
  trained.controller.save(options.out, trained.report(join(hashes), options.label, options.train));
  print(trained);
  std::cerr << "kvreplay: wrote " << options.out << '\n';
}

}  // namespace

void add_train_controller(CLI::App& program) {
  CLI::App* command = program.add_subcommand(
      "train-controller", "Train the bit-width controller of dwb on traces of other texts");
  auto options = std::make_shared<ControllerOptions>();
  takes_traces(command->add_option("TRACE", options->traces,
                                   "One or more .kvtrace.h5 files of the same model"))
      ->required()
      ->type_name("");
  command->add_option("--out", options->out, "The controller to write")
      ->check(CLI::NonexistentPath)
      ->required()
      ->type_name("FILE");
  const auto positive = [&](const char* name, std::int64_t& value, const char* help) {
    command->add_option(name, value, help)
        ->check(in_range(std::int64_t{1}, std::int64_t{1} << 30))
        ->type_name("N")
        ->capture_default_str();
  };
  const auto weight = [&](const char* name, double& value, const char* help) {
    command->add_option(name, value, help)
        ->check(in_range(0.0, 1e6))
        ->type_name("X")
        ->capture_default_str();
  };
  weight("--tolerance", options->label.tolerance, "Largest error that a label accepts");
  positive("--query-stride", options->label.query_stride, "Use every N-th recorded query");
  positive("--distance", options->label.distance_tokens,
           "Minimum distance of a query from a token");
  positive("--group-channels", options->label.group_channels, "Channels that share a scale");
  command
      ->add_option("--keys", options->label.keys,
                   "Form in which keys are rounded, as precision.keys of the system that will use "
                   "the controller")
      ->check(CLI::IsMember(key_form_names()))
      ->type_name("FORM")
      ->capture_default_str();
  weight("--alpha", options->train.alpha, "Weight of the cross-entropy");
  weight("--beta", options->train.beta, "Weight of the expected cost in bits");
  weight("--gamma", options->train.gamma, "Weight of the expected loss of quality");
  weight("--learning-rate", options->train.learning_rate, "Learning rate of Adam");
  positive("--batch", options->train.batch, "Samples per step of Adam");
  positive("--epochs", options->train.epochs, "Passes over the samples");
  command->add_option("--seed", options->train.seed, "Seed of the split, the weights and the order")
      ->check(seed_range())
      ->type_name("N")
      ->capture_default_str();
  command->footer(
      "The traces need /tokens/entropy and the other token statistics (docs/trace-format.md). A "
      "replay\n"
      "takes the result with:\n"
      "  kvreplay train-controller letters.kvtrace.h5 --out letters.json\n"
      "  kvreplay run all_systems --set system=dwb --set system.precision.file=$PWD/letters.json");
  command->callback([options] { train(*options); });
}

}  // namespace kvreplay
