#include "policies/decide/precision/support/controller.hpp"

#include <Eigen/Dense>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/output_file.hpp"
#include "policies/decide/precision/support/token_widths.hpp"

namespace kvreplay {
namespace {

constexpr std::string_view kFormat = "kvreplay-controller";

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Vector = Eigen::VectorXd;

/// One layer's weights and biases, taken from the front of `parameters`, which is advanced.
Vector apply_layer(const double*& parameters, std::int64_t outputs, const Vector& inputs) {
  const Eigen::Map<const Matrix> weights(parameters, outputs, inputs.size());
  const Eigen::Map<const Vector> biases(parameters + weights.size(), outputs);
  parameters += weights.size() + outputs;
  return weights * inputs + biases;
}

/// "[1.5, -0.25]": each number is the shortest text that reads back as the same single-precision
/// value.
template <typename Numbers>
std::string list_text(const Numbers& numbers) {
  std::string text = "[";
  for (const double number : numbers) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, static_cast<float>(number)).ptr;
    if (text.size() > 1) text += ",";
    text.append(digits, end);
  }
  return text + "]";
}

template <typename Numbers>
void read_list(const ConfigNode& node, Numbers& numbers) {
  const nlohmann::json& list = node.raw();
  if (!list.is_array() || list.size() != numbers.size()) {
    throw UserError(
        node.place(),
        list.is_array() ? std::to_string(list.size()) + " numbers" : std::string("no list"),
        "a list of " + std::to_string(numbers.size()) + " numbers");
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!list[i].is_number()) {
      throw UserError(node.place().at(std::to_string(i)), list[i].dump(), "a number");
    }
    numbers[i] = static_cast<float>(list[i].get<double>());
  }
}

}  // namespace

Controller::Features Controller::standardised(const Features& features) const {
  Features result{};
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = (features[i] - mean[i]) / deviation[i];
  }
  return result;
}

int Controller::choose(const Features& features) const {
  const Features inputs = standardised(features);
  const double* next = parameters.data();
  const Vector first =
      apply_layer(next, kHidden, Eigen::Map<const Vector>(inputs.data(), kInputs)).cwiseMax(0);
  const Vector second = apply_layer(next, kHidden, first).cwiseMax(0);
  const Vector logits = apply_layer(next, kClasses, second);
  int best = 0;
  for (int c = 1; c < kClasses; ++c) {
    if (logits[c] > logits[best]) best = c;
  }
  return best;
}

void Controller::save(const std::string& file, const std::string& training) const {
  std::string names;
  for (const std::string_view name : TokenFeatures::kNames) {
    if (!names.empty()) names += ", ";
    names += '"' + std::string(name) + '"';
  }
  std::string text = "{\n";
  text += "  \"format\": \"" + std::string(kFormat) + "\",\n";
  text += "  \"format_version\": 1,\n";
  text += "  \"training\": " + training + ",\n";
  text += "  \"features\": [" + names + "],\n";
  text += "  \"widths_bits\": " + list_text(kWidths) + ",\n";
  text += "  \"group_channels\": " + std::to_string(group_channels) + ",\n";
  text += "  \"mean\": " + list_text(mean) + ",\n";
  text += "  \"deviation\": " + list_text(deviation) + ",\n";
  text += "  \"parameters\": " + list_text(parameters) + "\n}\n";
  write_text_file(file, text);
}

Controller Controller::load(const std::string& file) {
  const ConfigNode root = ConfigNode::load(file);
  if (const ConfigNode format = root.at("format"); format.text() != kFormat) {
    throw UserError(format.place(), format.text(), kFormat);
  }
  const auto expect = [&](std::string_view key, const nlohmann::json& allowed) {
    const ConfigNode node = root.at(key);
    if (node.raw() != allowed) throw UserError(node.place(), node.raw().dump(), allowed.dump());
  };
  expect("format_version", 1);
  expect("features", TokenFeatures::kNames);
  expect("widths_bits", kWidths);

  Controller controller;
  const ConfigNode group = root.at("group_channels");
  if (!group.raw().is_number_integer() || group.raw().get<std::int64_t>() < 1) {
    throw UserError(group.place(), group.raw().dump(), "an integer from 1");
  }
  controller.group_channels = group.raw().get<std::int64_t>();
  controller.parameters.resize(kParameters);
  read_list(root.at("mean"), controller.mean);
  read_list(root.at("deviation"), controller.deviation);
  read_list(root.at("parameters"), controller.parameters);
  for (const double deviation : controller.deviation) {
    if (!(deviation > 0)) {
      throw UserError(root.at("deviation").place(), std::to_string(deviation), "positive numbers");
    }
  }
  return controller;
}

}  // namespace kvreplay
