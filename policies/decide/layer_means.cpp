#include "policies/decide/layer_means.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/packed.hpp"

namespace kvreplay {
namespace {

/// Of `values`, with so many per step, those of the steps that were decoded in `turns`; all where
/// there are no turns.
template <typename T>
std::vector<T> decoded(const std::vector<T>& values, std::span<const TurnSteps> turns,
                       std::int64_t per_step) {
  if (turns.empty() || values.empty()) return values;
  std::vector<T> kept;
  for (const TurnSteps& turn : turns) {
    kept.insert(kept.end(), values.begin() + turn.generated_begin * per_step,
                values.begin() + turn.end * per_step);
  }
  return kept;
}

double mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double root_mean_square(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return values.empty() ? std::numeric_limits<double>::quiet_NaN()
                        : std::sqrt(sum / static_cast<double>(values.size()));
}

template <typename Means, typename Visit>
void for_means(Means& means, Visit&& visit) {
  auto& [recall, mass, best_mass, error, residual_error, tokens] = means;
  visit_all(visit, recall, mass, best_mass, error, residual_error, tokens);
}

QualityMeans means_of(const LayerLog& layer, std::int64_t query_heads,
                      std::span<const TurnSteps> turns) {
  QualityMeans means;
  const auto mean_of = [&](const std::vector<float>& values) {
    return mean(decoded(values, turns, query_heads));
  };
  means.recall = mean_of(layer.quality.recall);
  means.attention_mass = mean_of(layer.quality.attention_mass);
  means.best_attention_mass = mean_of(layer.quality.best_attention_mass);
  means.output_error = mean_of(layer.quality.output_error);
  means.residual_error = root_mean_square(decoded(layer.quality.residual_error, turns, 1));
  double attended = 0;
  std::size_t count = 0;
  for (const StreamLog& stream : layer.streams) {
    const auto counts = decoded(stream.attended_count, turns, stream.query_heads);
    for (const std::int32_t tokens : counts) attended += tokens;
    count += counts.size();
  }
  means.attended_tokens = count == 0 ? 0 : attended / static_cast<double>(count);
  return means;
}

}  // namespace

std::vector<LayerMeans> layer_means(const AccessLog& log) {
  std::vector<LayerMeans> layers;
  for (const LayerLog& layer : log.layers) {
    LayerMeans& made = layers.emplace_back();
    made.layer = layer.layer;
    made.sliding_window = layer.sliding_window;
    made.full_attention = layer.full_attention;
    made.means = means_of(layer, log.query_heads, log.turns);
    for (const TurnSteps& turn : log.turns) {
      made.turns.push_back(means_of(layer, log.query_heads, {&turn, 1}));
    }
    for (const StreamLog& stream : layer.streams) {
      made.out_of_range += stream.out_of_range;
      made.coarse_channels += stream.coarse_channels;
    }
  }
  return layers;
}

/// Every layer has the same number of steps and query heads, so the mean of means is the mean.
QualityMeans system_means(const std::vector<LayerMeans>& layers) {
  QualityMeans sum;
  double count = 0;
  const bool all_attend_fully = std::all_of(
      layers.begin(), layers.end(), [](const LayerMeans& layer) { return layer.full_attention; });
  for (const LayerMeans& layer : layers) {
    if (layer.full_attention && !all_attend_fully) continue;
    sum.recall += layer.means.recall;
    sum.attention_mass += layer.means.attention_mass;
    sum.best_attention_mass += layer.means.best_attention_mass;
    sum.output_error += layer.means.output_error;
    sum.attended_tokens += layer.means.attended_tokens;
    count += 1;
  }
  for_means(sum, [&](double& value) { value /= count; });
  double squares = 0;
  for (const LayerMeans& layer : layers) {
    squares += layer.means.residual_error * layer.means.residual_error;
  }
  sum.residual_error = std::sqrt(squares / static_cast<double>(layers.size()));
  return sum;
}

std::vector<QualityMeans> turn_means(const std::vector<LayerMeans>& layers) {
  std::vector<QualityMeans> turns;
  std::vector<LayerMeans> of_turn = layers;
  for (std::size_t turn = 0; !layers.empty() && turn < layers.front().turns.size(); ++turn) {
    for (std::size_t i = 0; i < layers.size(); ++i) of_turn[i].means = layers[i].turns[turn];
    turns.push_back(system_means(of_turn));
  }
  return turns;
}

const LayerMeans& worst_layer(const std::vector<LayerMeans>& layers) {
  const bool lacks = std::any_of(layers.begin(), layers.end(), [](const LayerMeans& layer) {
    return std::isnan(layer.means.residual_error);
  });
  const double QualityMeans::*error =
      lacks ? &QualityMeans::output_error : &QualityMeans::residual_error;
  return *std::max_element(
      layers.begin(), layers.end(),
      [&](const LayerMeans& a, const LayerMeans& b) { return a.means.*error < b.means.*error; });
}

std::string to_bytes(const std::vector<LayerMeans>& layers) {
  PackedWriter write;
  write(std::ssize(layers));
  for (const LayerMeans& layer : layers) {
    write(layer.layer);
    write(layer.sliding_window);
    write(layer.full_attention);
    write(layer.out_of_range);
    write(layer.coarse_channels);
    for_means(layer.means, write);
    write(std::ssize(layer.turns));
    for (const QualityMeans& turn : layer.turns) for_means(turn, write);
  }
  return write.bytes();
}

std::vector<LayerMeans> layer_means_from(std::string_view bytes) {
  PackedReader read(bytes);
  std::vector<LayerMeans> layers(read.count());
  for (LayerMeans& layer : layers) {
    read(layer.layer);
    read(layer.sliding_window);
    read(layer.full_attention);
    read(layer.out_of_range);
    read(layer.coarse_channels);
    for_means(layer.means, read);
    layer.turns.resize(read.count());
    for (QualityMeans& turn : layer.turns) for_means(turn, read);
  }
  read.check_end();
  return layers;
}

}  // namespace kvreplay
