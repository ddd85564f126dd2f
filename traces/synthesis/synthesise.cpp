#include "traces/synthesis/synthesise.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "base/parallel.hpp"
#include "base/progress.hpp"
#include "base/table.hpp"
#include "traces/rope.hpp"
#include "traces/synthesis/vector_model.hpp"
#include "traces/trace_paths.hpp"
#include "traces/trace_writer.hpp"

namespace kvreplay {
namespace {

/// Positions that keep their recorded vectors: the attention sinks.
constexpr std::int64_t kSinks = 4;
/// Steps at which the fit compares, each with its successor.
constexpr std::int64_t kComparedSteps = 48;
constexpr int kSearchRounds = 12;
/// Weight of the mean of all queries in a cluster's mean, in rows: a cluster that the queries
/// hardly met says little about them.
constexpr double kQueryPriorRows = 8;
/// Clusters wander once per this many tokens.
constexpr std::int64_t kWanderEvery = 256;
/// Upper limit of clusters per fitted one: the oldest one that split off makes room for the next.
constexpr std::size_t kMaxSplits = 4;
constexpr std::int64_t kPieceTokens = 1024;
/// Pairs that rotate more slowly than this (radians per token) shift the attention to the sinks
/// equally at most distances.
constexpr double kSlowPair = 1.0 / 64;

/// Random number streams of one (layer, KV head).
enum Stream : std::uint64_t { kKeys, kValues, kTopics, kFirstQuery };
/// The search uses its own numbers, so that the report is of text it has not seen.
constexpr std::uint64_t kSearchSeed = 0x5eed;

std::uint64_t head_seed(std::uint64_t seed, std::int64_t layer, std::int64_t kv_head) {
  return Random::derive(Random::derive(seed, static_cast<std::uint64_t>(layer)),
                        static_cast<std::uint64_t>(kv_head));
}

struct QueryModel {
  VectorModel rows;
  std::optional<VectorModel> ahead;  ///< query_ahead - query
  double temperature = 1;
  double correlation = 0;
  double sink_shift = 0;              ///< logits added for the sinks
  std::vector<float> sink_direction;  ///< [dim]: gives the first sink a logit of 1
};

/// One KV head of the source and the query heads that read it, before RoPE.
struct HeadModel {
  VectorModel keys;
  VectorModel values;
  std::vector<double> shares;  ///< per cluster
  double stay = 0;
  double wander_scale = 0;   ///< deviation of a centre / deviation within clusters
  double wander_tokens = 1;  ///< time constant in which a centre forgets its position
  double splits_per_token = 0;
  std::vector<float> sink_keys;    ///< [kSinks, dim]
  std::vector<float> sink_values;  ///< [kSinks, dim]
  std::vector<QueryModel> queries;
};

std::vector<float> to_floats(const HalfTensor& tensor, std::int64_t head) {
  const std::span rows(tensor.head(head), static_cast<std::size_t>(tensor.tokens * tensor.dim));
  std::vector<float> floats(rows.size());
  std::transform(rows.begin(), rows.end(), floats.begin(), to_float);
  return floats;
}

/// `sign` -1 removes the rotation, 1 applies it. Row 0 is at position `start`.
void rotate_rows(std::vector<float>& rows, const RotaryEmbedding& rope, std::int64_t dim,
                 std::int64_t start, int sign) {
  const auto size = static_cast<std::size_t>(dim);
  for (std::size_t row = 0; row * size < rows.size(); ++row) {
    rope.rotate(std::span(rows).subspan(row * size, size),
                sign * (start + static_cast<std::int64_t>(row)));
  }
}

/// Which cluster each token lies in, as the text proceeds.
class Topics {
 public:
  struct Topic {
    std::int64_t cluster;  ///< fitted cluster whose values and queries it uses
    double share;
    std::vector<float> offset;  ///< from that cluster's mean; changed since it split off
    std::vector<float> wander;
  };

  Topics(const HeadModel& model, std::uint64_t seed) : model_(&model), random_(seed) {
    const auto dim = static_cast<std::size_t>(model.keys.dim);
    for (std::size_t c = 0; c < model.shares.size(); ++c) {
      topics_.push_back({static_cast<std::int64_t>(c), model.shares[c], std::vector<float>(dim),
                         std::vector<float>(dim)});
      wander(topics_.back(), 0);
    }
  }

  const Topic& next() {
    if (++tokens_ % kWanderEvery == 0) {
      const double keep = std::exp(-static_cast<double>(kWanderEvery) / model_->wander_tokens);
      for (Topic& topic : topics_) wander(topic, keep);
    }
    if (random_.uniform() < model_->splits_per_token) split();
    if (tokens_ == 1 || random_.uniform() >= model_->stay) current_ = draw();
    return topics_[current_];
  }

 private:
  std::size_t draw() {
    double left = random_.uniform();
    for (std::size_t i = 0; i + 1 < topics_.size(); ++i) {
      left -= topics_[i].share;
      if (left < 0) return i;
    }
    return topics_.size() - 1;
  }

  void add_noise(std::vector<float>& row, double scale) {
    NoiseWalk(model_->keys).add(random_, 0, static_cast<float>(scale), row);
  }

  void wander(Topic& topic, double keep) {
    if (model_->wander_scale == 0) return;
    for (float& x : topic.wander) x *= static_cast<float>(keep);
    add_noise(topic.wander, model_->wander_scale * std::sqrt(1 - keep * keep));
  }

  /// A topic gives half its share to a new one, which lies as far away as its tokens do.
  void split() {
    const std::size_t fitted = model_->shares.size();
    const std::size_t parent = draw();
    if (topics_.size() >= kMaxSplits * fitted) {
      // Its share returns to the topic of its cluster that the fit found.
      const std::size_t oldest = fitted + splits_ % (topics_.size() - fitted);
      if (oldest == parent) return;
      topics_[static_cast<std::size_t>(topics_[oldest].cluster)].share += topics_[oldest].share;
      topics_[oldest] = halve(topics_[parent]);
    } else {
      topics_.push_back(halve(topics_[parent]));
    }
    splits_ += 1;
  }
  Topic halve(Topic& parent) {
    parent.share /= 2;
    Topic child = parent;
    add_noise(child.offset, 1);
    return child;
  }

  const HeadModel* model_;
  Random random_;
  std::vector<Topic> topics_;
  std::size_t current_ = 0;
  std::int64_t tokens_ = 0;
  std::size_t splits_ = 0;
};

/// Draws the entries and queries of one KV head, token by token, before RoPE and in the source's
/// head size.
class HeadGenerator {
 public:
  /// `query_heads` of them: those of the model, repeated from the first.
  HeadGenerator(const HeadModel& model, std::int64_t query_heads, std::uint64_t seed)
      : model_(&model),
        topics_(model, Random::derive(seed, kTopics)),
        key_random_(Random::derive(seed, kKeys)),
        value_random_(Random::derive(seed, kValues)),
        key_walk_(model.keys),
        value_walk_(model.values) {
    for (std::int64_t head = 0; head < query_heads; ++head) {
      const QueryModel& query =
          model.queries[static_cast<std::size_t>(head) % model.queries.size()];
      queries_.push_back(
          {&query, Random(Random::derive(seed, kFirstQuery + static_cast<std::uint64_t>(head))),
           NoiseWalk(query.rows), std::nullopt});
      if (query.ahead) queries_.back().ahead_walk.emplace(*query.ahead);
    }
  }

  /// The next token's entry, each [dim].
  void next(std::span<float> key, std::span<float> value) {
    topic_ = &topics_.next();
    copy(model_->keys.mean(topic_->cluster), key);
    for (std::size_t i = 0; i < key.size(); ++i) key[i] += topic_->offset[i] + topic_->wander[i];
    key_walk_.add(key_random_, model_->keys.correlation,
                  within_scale() * model_->keys.scale(topic_->cluster), key);
    copy(model_->values.mean(topic_->cluster), value);
    value_walk_.add(value_random_, model_->values.correlation,
                    model_->values.scale(topic_->cluster), value);
    if (position_ < kSinks) {
      copy(RowView{model_->sink_keys, model_->keys.dim}.row(position_), key);
      copy(RowView{model_->sink_values, model_->keys.dim}.row(position_), value);
    }
    position_ += 1;
  }

  /// That token's queries of one head. `ahead` may be empty. The search passes its own QueryModel.
  void query(std::int64_t head, std::span<float> row, std::span<float> ahead) {
    Queries& of_head = queries_[static_cast<std::size_t>(head)];
    const QueryModel& model = *of_head.model;
    copy(model.rows.mean(topic_->cluster), row);
    of_head.walk.add(of_head.random, model.correlation, model.rows.scale(topic_->cluster), row);
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = static_cast<float>(model.temperature) * row[i] +
               static_cast<float>(model.sink_shift) * model.sink_direction[i];
    }
    if (ahead.empty()) return;
    copy(row, ahead);
    const std::span<const float> shift = model.ahead->mean(0);
    for (std::size_t i = 0; i < ahead.size(); ++i) ahead[i] += shift[i];
    of_head.ahead_walk->add(of_head.random, model.ahead->correlation, 1, ahead);
  }

 private:
  struct Queries {
    const QueryModel* model;
    Random random;
    NoiseWalk walk;
    std::optional<NoiseWalk> ahead_walk;
  };

  static void copy(std::span<const float> from, std::span<float> to) {
    std::copy(from.begin(), from.end(), to.begin());
  }
  /// The wander of centres is part of the variance that the fit saw within clusters.
  [[nodiscard]] float within_scale() const {
    const double wander = model_->wander_scale;
    return static_cast<float>(std::sqrt(std::max(0.0, 1 - wander * wander)));
  }

  const HeadModel* model_;
  Topics topics_;
  Random key_random_;
  Random value_random_;
  NoiseWalk key_walk_;
  NoiseWalk value_walk_;
  std::vector<Queries> queries_;
  const Topics::Topic* topic_ = nullptr;
  std::int64_t position_ = 0;
};

/// The recording of one KV head.
struct HeadRecording {
  std::int64_t dim = 0;
  std::int64_t query_start = 0;
  std::vector<float> keys;  ///< before RoPE
  std::vector<float> values;
  std::vector<std::vector<float>> queries;  ///< before RoPE, one per query head
  std::vector<std::vector<float>> ahead;    ///< as queries; empty where the trace has none
};

HeadRecording load_head(const TraceReader& source, const TraceLayer& layer, std::int64_t kv_head,
                        const RotaryEmbedding& rope) {
  const TraceInfo& info = source.info();
  HeadRecording head;
  head.dim = info.head_dim;
  head.query_start = layer.query_start;
  const bool rotated = info.key_state == "post_rope";
  const auto load = [&](const HalfTensor& tensor, std::int64_t index, std::int64_t start) {
    std::vector<float> rows = to_floats(tensor, index);
    if (rotated) rotate_rows(rows, rope, info.head_dim, start, -1);
    return rows;
  };
  head.keys = load(layer.keys, kv_head, 0);
  head.values = to_floats(layer.values, kv_head);
  for (std::int64_t i = 0; i < info.queries_per_kv_head(); ++i) {
    const std::int64_t query_head = kv_head * info.queries_per_kv_head() + i;
    head.queries.push_back(load(layer.queries, query_head, layer.query_start));
    if (layer.queries_ahead.tokens > 0) {
      head.ahead.push_back(load(layer.queries_ahead, query_head, layer.query_start));
    }
  }
  return head;
}

/// How far clusters wander and how often one is created, from the two halves of the text.
void fit_motion(const RowView& keys, const Clustering& clustering, HeadModel& model) {
  const auto count = static_cast<std::int64_t>(clustering.labels.size());
  const std::int64_t half = count / 2;
  const auto dim = static_cast<std::size_t>(keys.dim);
  const auto clusters = static_cast<std::size_t>(clustering.clusters);
  std::vector<double> sums[2];
  std::vector<double> counts[2];
  for (int part = 0; part < 2; ++part) {
    sums[part].resize(clusters * dim);
    counts[part].resize(clusters);
  }
  for (std::int64_t row = 0; row < count; ++row) {
    const int part = row < half ? 0 : 1;
    const auto label = static_cast<std::size_t>(clustering.labels[static_cast<std::size_t>(row)]);
    counts[part][label] += 1;
    const std::span<const float> values = keys.row(row);
    for (std::size_t i = 0; i < dim; ++i) {
      sums[part][label * dim + i] += static_cast<double>(values[i]);
    }
  }
  double moved = 0;
  double weight = 0;
  double born = 0;
  for (std::size_t c = 0; c < clusters; ++c) {
    const double first = counts[0][c];
    const double second = counts[1][c];
    if (first < 0.125 * (first + second) && second > 0) born += 1;
    if (first < 8 || second < 8) continue;
    double distance = 0;
    for (std::size_t i = 0; i < dim; ++i) {
      const double step = sums[0][c * dim + i] / first - sums[1][c * dim + i] / second;
      distance += step * step;
    }
    // The means of a finite number of tokens differ even where nothing moves.
    distance -= model.keys.noise_variance * (1 / first + 1 / second);
    moved += (first + second) * std::max(0.0, distance);
    weight += first + second;
  }
  model.wander_tokens = static_cast<double>(half);
  if (weight > 0 && model.keys.noise_variance > 0) {
    // The middles of the halves lie `half` tokens apart: E|step|^2 = 2 s^2 (1 - 1/e).
    const double variance = moved / weight / (2 * (1 - std::exp(-1.0)));
    model.wander_scale = std::min(0.9, std::sqrt(variance / model.keys.noise_variance));
  }
  model.splits_per_token = born / static_cast<double>(std::max<std::int64_t>(1, half));
}

/// The direction that gives the first sink a logit: along its own key, in the slowly rotating
/// pairs.
std::vector<float> sink_direction(const HeadModel& model, const RotaryEmbedding& rope,
                                  double softmax_scale) {
  const auto dim = static_cast<std::size_t>(model.keys.dim);
  std::vector<float> mean(dim);
  for (std::size_t c = 0; c < model.shares.size(); ++c) {
    const std::span<const float> centre = model.keys.mean(static_cast<std::int64_t>(c));
    for (std::size_t i = 0; i < dim; ++i)
      mean[i] += static_cast<float>(model.shares[c]) * centre[i];
  }
  std::vector<float> direction(dim);
  double squares = 0;
  for (std::size_t pair = 0; pair < rope.frequencies().size(); ++pair) {
    if (rope.frequencies()[pair] > kSlowPair) continue;
    for (const std::size_t i : {rope.first(pair), rope.second(pair)}) {
      direction[i] = model.sink_keys[i] - mean[i];
      squares += static_cast<double>(direction[i]) * static_cast<double>(direction[i]);
    }
  }
  if (squares > 0) {
    for (float& x : direction)
      x = static_cast<float>(static_cast<double>(x) / (squares * softmax_scale));
  }
  return direction;
}

HeadModel fit_head(const HeadRecording& head, const TraceInfo& info, const RotaryEmbedding& rope,
                   const SynthesisOptions& options, std::uint64_t seed, KeyFit& fit) {
  const auto dim = static_cast<std::size_t>(head.dim);
  const RowView keys{std::span(head.keys).subspan(kSinks * dim), head.dim};
  Random random(seed);
  const Clustering clustering = cluster_rows(keys, options.clusters.value_or(0), random);

  HeadModel model;
  model.keys = fit_vectors(keys, clustering.labels, clustering.clusters, 0);
  model.values = fit_vectors({std::span(head.values).subspan(kSinks * dim), head.dim},
                             clustering.labels, clustering.clusters, 1);
  model.sink_keys.assign(head.keys.begin(), head.keys.begin() + std::ptrdiff_t(kSinks * dim));
  model.sink_values.assign(head.values.begin(), head.values.begin() + std::ptrdiff_t(kSinks * dim));

  model.shares.resize(static_cast<std::size_t>(clustering.clusters));
  const double tokens = static_cast<double>(clustering.labels.size());
  for (const std::int64_t label : clustering.labels) {
    model.shares[static_cast<std::size_t>(label)] += 1 / tokens;
  }
  double same = 0;
  for (std::size_t i = 1; i < clustering.labels.size(); ++i) {
    same += clustering.labels[i] == clustering.labels[i - 1] ? 1 : 0;
  }
  double by_chance = 0;
  for (const double share : model.shares) by_chance += share * share;
  model.stay =
      std::clamp((same / (tokens - 1) - by_chance) / std::max(1e-9, 1 - by_chance), 0.0, 0.999);
  fit_motion(keys, clustering, model);
  model.wander_scale = std::min(0.95, model.wander_scale * options.drift);
  if (options.splits_per_1000_tokens) {
    model.splits_per_token = *options.splits_per_1000_tokens / 1000;
  }

  const std::vector<float> direction = sink_direction(model, rope, info.softmax_scale);
  // Queries may start among the sinks, which have no cluster.
  const std::int64_t first = std::max(kSinks, head.query_start);
  const auto skipped = static_cast<std::size_t>(first - head.query_start) * dim;
  const std::span labels =
      std::span(clustering.labels).subspan(static_cast<std::size_t>(first - kSinks));
  for (std::size_t i = 0; i < head.queries.size(); ++i) {
    QueryModel query;
    const RowView rows{std::span(head.queries[i]).subspan(skipped), head.dim};
    query.rows = fit_vectors(rows, labels, clustering.clusters, kQueryPriorRows);
    query.correlation = query.rows.correlation;
    query.sink_direction = direction;
    if (!head.ahead.empty()) {
      std::vector<float> difference(head.ahead[i].begin() + std::ptrdiff_t(skipped),
                                    head.ahead[i].end());
      for (std::size_t x = 0; x < difference.size(); ++x) difference[x] -= rows.values[x];
      const std::vector<std::int64_t> one(labels.size(), 0);
      query.ahead = fit_vectors({difference, head.dim}, one, 1, 0);
    }
    model.queries.push_back(std::move(query));
  }

  fit.clusters = clustering.clusters;
  fit.between_share = clustering.total_variance > 0
                          ? 1 - clustering.within_variance / clustering.total_variance
                          : 0;
  fit.stay = model.stay;
  fit.drift_share = model.wander_scale * model.wander_scale;
  fit.splits_per_1000_tokens = 1000 * model.splits_per_token;
  return model;
}

/// The source's own shape, redrawn: keys, and each token's cluster as its queries need it.
struct Redrawn {
  std::vector<float> keys;                  ///< after RoPE
  std::vector<std::vector<float>> queries;  ///< after RoPE
};

Redrawn redraw(const HeadModel& model, const HeadRecording& head, const RotaryEmbedding& rope,
               std::uint64_t seed) {
  const auto dim = static_cast<std::size_t>(head.dim);
  Redrawn drawn;
  drawn.keys.resize(head.keys.size());
  drawn.queries.resize(head.queries.size(), std::vector<float>(head.queries.front().size()));
  HeadGenerator generator(model, std::ssize(model.queries), seed);
  std::vector<float> value(dim);
  std::vector<float> ahead(head.ahead.empty() ? 0 : dim);
  const auto tokens = static_cast<std::int64_t>(head.keys.size() / dim);
  for (std::int64_t token = 0; token < tokens; ++token) {
    generator.next(std::span(drawn.keys).subspan(static_cast<std::size_t>(token) * dim, dim),
                   value);
    if (token < head.query_start) continue;
    const auto at = static_cast<std::size_t>(token - head.query_start) * dim;
    for (std::size_t i = 0; i < drawn.queries.size(); ++i) {
      generator.query(static_cast<std::int64_t>(i), std::span(drawn.queries[i]).subspan(at, dim),
                      ahead);
    }
  }
  rotate_rows(drawn.keys, rope, head.dim, 0, 1);
  for (std::vector<float>& rows : drawn.queries) {
    rotate_rows(rows, rope, head.dim, head.query_start, 1);
  }
  return drawn;
}

double log_odds(double mass) {
  const double inside = std::clamp(mass, 1e-3, 1 - 1e-3);
  return std::log(inside / (1 - inside));
}

/// The largest relative error of the quantities that the search fits.
double misfit(const HeadStatistics& recorded, const HeadStatistics& drawn) {
  const auto relative = [](double wanted, double found) {
    return std::abs(found - wanted) / std::max(std::abs(wanted), 0.05);
  };
  const double sinks = std::abs(drawn.first_16_mass - recorded.first_16_mass);
  return std::max({relative(recorded.entropy_nats, drawn.entropy_nats),
                   relative(recorded.top_16_mass, drawn.top_16_mass),
                   relative(recorded.top_64_mass, drawn.top_64_mass),
                   relative(recorded.top_256_mass, drawn.top_256_mass),
                   relative(recorded.top_64_overlap, drawn.top_64_overlap), sinks});
}

/// Draws the head with the current values of its three numbers, corrects each by the quantity it
/// governs, and keeps the best result. All query heads are drawn at once: they share the keys.
void search(HeadModel& model, const HeadRecording& head, const RotaryEmbedding& rope,
            const MeasuredSteps& steps, std::span<const HeadStatistics> recorded,
            std::uint64_t seed) {
  struct Best {
    double error = 1e9;
    double temperature = 1;
    double correlation = 0;
    double sink_shift = 0;
  };
  std::vector<Best> best(model.queries.size());
  for (int round = 0; round < kSearchRounds; ++round) {
    const Redrawn drawn = redraw(model, head, rope, seed);
    for (std::size_t i = 0; i < best.size(); ++i) {
      QueryModel& query = model.queries[i];
      const HeadStatistics found =
          measure_head({drawn.keys, head.dim}, {drawn.queries[i], head.dim}, steps);
      const HeadStatistics& wanted = recorded[i];
      const double error = misfit(wanted, found);
      if (error < best[i].error) {
        best[i] = {error, query.temperature, query.correlation, query.sink_shift};
      }
      const double entropy =
          std::log(std::max(found.entropy_nats, 1e-3) / std::max(wanted.entropy_nats, 1e-3));
      query.temperature *=
          std::clamp(std::exp(0.25 * entropy + wanted.top_16_mass - found.top_16_mass), 0.7, 1.4);
      query.correlation = std::clamp(
          query.correlation + 0.8 * (wanted.top_64_overlap - found.top_64_overlap), 0.0, 0.99);
      query.sink_shift += std::clamp(
          0.5 * (log_odds(wanted.first_16_mass) - log_odds(found.first_16_mass)), -0.75, 0.75);
    }
  }
  for (std::size_t i = 0; i < best.size(); ++i) {
    model.queries[i].temperature = best[i].temperature;
    model.queries[i].correlation = best[i].correlation;
    model.queries[i].sink_shift = best[i].sink_shift;
  }
}

std::int64_t in_range(const std::string& name, std::int64_t value, std::int64_t min,
                      std::int64_t max) {
  if (value >= min && value <= max) return value;
  throw UserError({"synth", ""}, name + " is " + std::to_string(value),
                  "integer from " + std::to_string(min) + " to " + std::to_string(max));
}

/// A longer text rotates the slow pairs to angles at which the source's keys and queries never met,
/// and attention there is noise. The base that models are given for a longer context ("NTK-aware"
/// scaling) keeps the fastest pair, and rotates the slowest over the whole text as far as in the
/// source.
double stretched_theta(double theta, std::int64_t head_dim, double stretch) {
  if (stretch <= 1 || head_dim <= 2) return theta;
  const double dim = static_cast<double>(head_dim);
  return theta * std::pow(stretch, dim / (dim - 2));
}

/// Indices into recorded_layers.
std::vector<std::int64_t> source_layers(const TraceReader& source,
                                        const SynthesisOptions& options) {
  const std::vector<std::int64_t>& recorded = source.info().recorded_layers;
  std::vector<std::int64_t> indices;
  if (options.like_layers.empty()) {
    indices.resize(recorded.size());
    std::iota(indices.begin(), indices.end(), std::int64_t{0});
  }
  for (const std::int64_t layer : options.like_layers) {
    const auto found = std::find(recorded.begin(), recorded.end(), layer);
    if (found == recorded.end()) {
      std::vector<std::string> names;
      for (const std::int64_t held : recorded) names.push_back(std::to_string(held));
      throw UserError({source.file(), "/layer"},
                      "synth: layer " + std::to_string(layer) + " is not recorded", join(names));
    }
    indices.push_back(found - recorded.begin());
  }
  return indices;
}

TraceInfo make_info(const TraceReader& source, std::span<const std::int64_t> layers,
                    const SynthesisOptions& options) {
  const TraceInfo& from = source.info();
  TraceInfo info = from;
  info.synthetic = true;
  info.model = "synthetic, like " + from.model;
  info.model_revision = "synthetic";
  info.weights_sha256 = "";
  info.tokenizer = "synthetic";
  info.text_source = "synthetic: no text; drawn from the statistics of the trace with sha256 " +
                     source.content_hash();
  info.text_sha256 = "";
  info.text_mode = "";
  info.segments.clear();
  info.tool = "kvreplay synth";
  info.tool_version = "1";
  info.seed = static_cast<std::int64_t>(options.seed);
  info.key_state = "post_rope";
  info.kv_heads = in_range("kv_heads", options.kv_heads.value_or(from.kv_heads), 1, 4096);
  const std::int64_t group = from.queries_per_kv_head();
  info.query_heads = in_range("query_heads", options.query_heads.value_or(group * info.kv_heads),
                              info.kv_heads, 4096);
  if (info.query_heads % info.kv_heads != 0) {
    throw UserError({"synth", ""}, "query_heads is " + std::to_string(info.query_heads),
                    "a multiple of kv_heads = " + std::to_string(info.kv_heads));
  }
  info.head_dim = in_range("head_dim", options.head_dim.value_or(from.head_dim), 2, 4096);
  if (info.head_dim % 2 != 0) {
    throw UserError({"synth", ""}, "head_dim is " + std::to_string(info.head_dim),
                    "an even number: pairs of dimensions rotate");
  }
  if (info.head_dim != from.head_dim) {
    info.softmax_scale = from.softmax_scale * std::sqrt(static_cast<double>(from.head_dim) /
                                                        static_cast<double>(info.head_dim));
  }
  if (info.head_dim != from.head_dim || info.query_heads != from.query_heads) {
    info.hidden_size = std::min<std::int64_t>(info.query_heads * info.head_dim, 1 << 20);
  }
  const std::int64_t count =
      in_range("layers", options.layers.value_or(std::ssize(layers)), 1, 65536);
  info.recorded_layers.clear();
  info.sliding_window.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto like = static_cast<std::size_t>(layers[static_cast<std::size_t>(i) % layers.size()]);
    info.recorded_layers.push_back(options.layers ? i : from.recorded_layers[like]);
    info.sliding_window.push_back(from.sliding_window[like]);
  }
  if (options.layers) info.layers = count;
  const std::int64_t max = std::int64_t{1} << 31;
  info.prompt_tokens =
      in_range("prompt", options.prompt_tokens.value_or(from.prompt_tokens), 1, max - 1);
  info.tokens =
      info.prompt_tokens + in_range("steps", options.decode_steps.value_or(from.decode_steps()), 1,
                                    max - info.prompt_tokens);
  info.rope_theta =
      stretched_theta(from.rope_theta, info.head_dim,
                      static_cast<double>(info.tokens) / static_cast<double>(from.tokens));
  info.dtype = options.dtype.value_or(from.dtype);
  if (info.dtype != "f16" && info.dtype != "bf16") {
    throw UserError({"synth", ""}, "dtype is '" + info.dtype + "'", "f16, bf16");
  }
  return info;
}

/// Rows of one head size as rows of another: each pair of dimensions takes those of the source's
/// pair with the nearest frequency, so that RoPE rotates them alike.
class Resize {
 public:
  Resize(const RotaryEmbedding& from, const RotaryEmbedding& to) : from_(&from), to_(&to) {}
  void apply(std::span<const float> source, float scale, std::span<float> row) const {
    const std::size_t pairs = to_->frequencies().size();
    const std::size_t source_pairs = from_->frequencies().size();
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const std::size_t like = pair * source_pairs / pairs;
      row[to_->first(pair)] = scale * source[from_->first(like)];
      row[to_->second(pair)] = scale * source[from_->second(like)];
    }
  }

 private:
  const RotaryEmbedding* from_;
  const RotaryEmbedding* to_;
};

}  // namespace

struct Synthesiser::State {
  State(const TraceReader& source, SynthesisOptions given)
      : options(std::move(given)),
        like(source_layers(source, options)),
        info(make_info(source, like, options)),
        source_rope(source.info(), source.file()),
        rope(info.rope_theta, info.rope_pairs == "interleaved", info.head_dim),
        source_kv_heads(source.info().kv_heads),
        source_dim(source.info().head_dim),
        query_start(std::max<std::int64_t>(
            0, info.prompt_tokens -
                   in_range("query_window", options.query_window, 0, std::int64_t{1} << 31))) {}

  void fit(const TraceReader& source, Progress* progress);
  void fit_one(const TraceReader& source, std::int64_t at, std::int64_t kv_head);

  [[nodiscard]] const HeadModel& model(std::int64_t layer, std::int64_t kv_head) const {
    const auto at = static_cast<std::size_t>(layer % std::ssize(like)) *
                        static_cast<std::size_t>(source_kv_heads) +
                    static_cast<std::size_t>(kv_head % source_kv_heads);
    return models[at];
  }

  SynthesisOptions options;
  std::vector<std::int64_t> like;  ///< the source's layers, as indices into recorded_layers
  TraceInfo info;
  RotaryEmbedding source_rope;
  RotaryEmbedding rope;
  std::int64_t source_kv_heads;
  std::int64_t source_dim;
  std::int64_t query_start;
  bool ahead = false;
  std::vector<HeadModel> models;  ///< [like, source_kv_heads]
  SynthesisReport report;
  // From the source: the synthetic tokens are drawn from these.
  std::vector<std::int32_t> ids;
  std::vector<float> entropy;
  std::vector<float> top_probability;
  std::vector<float> log_probability;
};

void Synthesiser::State::fit_one(const TraceReader& source, std::int64_t at, std::int64_t kv_head) {
  const TraceInfo& from = source.info();
  const std::int64_t index = like[static_cast<std::size_t>(at)];
  const TraceLayer layer = source.load_layer(index);
  const HeadRecording head = load_head(source, layer, kv_head, source_rope);
  const auto slot = static_cast<std::size_t>(at * source_kv_heads + kv_head);

  KeyFit& keys = report.keys[slot];
  keys.layer = layer.layer;
  keys.kv_head = kv_head;
  const std::uint64_t search_seed = head_seed(options.seed ^ kSearchSeed, at, kv_head);
  HeadModel& model = models[slot];
  model = fit_head(head, from, source_rope, options, search_seed, keys);

  const MeasuredSteps steps{
      .positions = spread_positions(from.prompt_tokens, from.tokens, kComparedSteps),
      .query_start = layer.query_start,
      .sliding_window = from.sliding_window[static_cast<std::size_t>(index)],
      .softmax_scale = from.softmax_scale};
  std::vector<float> rotated = head.keys;
  rotate_rows(rotated, source_rope, head.dim, 0, 1);
  std::vector<HeadStatistics> recorded;
  for (std::vector<float> queries : head.queries) {
    rotate_rows(queries, source_rope, head.dim, layer.query_start, 1);
    recorded.push_back(measure_head({rotated, head.dim}, {queries, head.dim}, steps));
  }
  search(model, head, source_rope, steps, recorded, search_seed);

  const Redrawn drawn = redraw(model, head, source_rope, head_seed(options.seed, at, kv_head));
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    const std::size_t group = recorded.size();
    HeadFit& fit = report.heads[slot * group + i];
    fit.layer = layer.layer;
    fit.kv_head = kv_head;
    fit.query_head = kv_head * static_cast<std::int64_t>(group) + static_cast<std::int64_t>(i);
    fit.recorded = recorded[i];
    fit.synthetic = measure_head({drawn.keys, head.dim}, {drawn.queries[i], head.dim}, steps);
  }
}

void Synthesiser::State::fit(const TraceReader& source, Progress* progress) {
  const TraceInfo& from = source.info();
  if (from.tokens < 256 || from.decode_steps() < 2) {
    throw UserError({source.file(), "/"},
                    "holds " + std::to_string(from.tokens) + " tokens, " +
                        std::to_string(from.decode_steps()) + " of them decode steps",
                    "a recording of at least 256 tokens and 2 steps to learn from");
  }
  ids = source.token_ids();
  entropy = source.token_statistic("entropy");
  top_probability = source.token_statistic("top_probability");
  log_probability = source.token_statistic("log_probability");
  report.source = source.file();
  report.source_sha256 = source.content_hash();
  report.measured_steps =
      std::ssize(spread_positions(from.prompt_tokens, from.tokens, kComparedSteps));
  const std::int64_t jobs = std::ssize(like) * source_kv_heads;
  models.resize(static_cast<std::size_t>(jobs));
  report.keys.resize(models.size());
  report.heads.resize(models.size() * static_cast<std::size_t>(from.queries_per_kv_head()));
  ahead = true;
  for (const std::int64_t index : like) ahead = ahead && source.has_queries_ahead(index);
  parallel_for(jobs, options.threads, [&](std::int64_t job) {
    fit_one(source, job / source_kv_heads, job % source_kv_heads);
    if (progress != nullptr) progress->advance();
  });
}

Synthesiser::Synthesiser(const TraceReader& source, SynthesisOptions options, Progress* progress)
    : state_(std::make_unique<State>(source, std::move(options))) {
  state_->fit(source, progress);
}
Synthesiser::~Synthesiser() = default;

std::int64_t Synthesiser::fit_work(const TraceReader& source, const SynthesisOptions& options) {
  return std::ssize(source_layers(source, options)) * source.info().kv_heads;
}
std::int64_t Synthesiser::write_work() const {
  return std::ssize(info().recorded_layers) * info().tokens;
}
const TraceInfo& Synthesiser::info() const {
  return state_->info;
}
const SynthesisReport& Synthesiser::report() const {
  return state_->report;
}

std::int64_t Synthesiser::file_bytes() const {
  const TraceInfo& info = state_->info;
  const std::int64_t entries = 2 * info.kv_heads * info.tokens;
  const std::int64_t queries =
      (state_->ahead ? 2 : 1) * info.query_heads * (info.tokens - state_->query_start);
  return std::ssize(info.recorded_layers) * (entries + queries) * info.head_dim * 2 +
         16 * info.tokens;
}

void Synthesiser::write(const std::string& out, Progress* progress) const {
  const State& state = *state_;
  const TraceInfo& info = state.info;
  TraceWriter writer(out, info, {state.query_start, state.ahead});

  {
    Random random(Random::derive(state.options.seed, ~std::uint64_t{0}));
    const auto tokens = static_cast<std::size_t>(info.tokens);
    std::vector<std::int32_t> ids(tokens);
    std::vector<float> entropy(tokens);
    std::vector<float> top_probability(tokens);
    std::vector<float> log_probability(tokens);
    for (std::size_t token = 0; token < tokens; ++token) {
      const auto like = static_cast<std::size_t>(random.below(state.ids.size()));
      ids[token] = state.ids[like];
      entropy[token] = state.entropy[like];
      top_probability[token] = state.top_probability[like];
      log_probability[token] = state.log_probability[like];
    }
    writer.write_tokens(ids, entropy, top_probability, log_probability);
  }

  const std::int64_t group = info.queries_per_kv_head();
  const auto dim = static_cast<std::size_t>(info.head_dim);
  const auto source_dim = static_cast<std::size_t>(state.source_dim);
  const Resize resize(state.source_rope, state.rope);
  // q . k grows with the number of copies of each pair, and the softmax's scale shrinks: together
  // they cancel.
  const float scale = info.head_dim == state.source_dim
                          ? 1
                          : static_cast<float>(std::pow(
                                static_cast<double>(source_dim) / static_cast<double>(dim), 0.25));
  struct Piece {
    std::vector<float> keys;
    std::vector<float> values;
    std::vector<std::vector<float>> queries;
    std::vector<std::vector<float>> ahead;
  };
  for (std::int64_t layer = 0; layer < std::ssize(info.recorded_layers); ++layer) {
    std::vector<HeadGenerator> generators;
    for (std::int64_t head = 0; head < info.kv_heads; ++head) {
      generators.emplace_back(state.model(layer, head), group,
                              head_seed(state.options.seed, layer, head));
    }
    std::vector<Piece> pieces(generators.size());
    for (std::int64_t begin = 0; begin < info.tokens; begin += kPieceTokens) {
      const std::int64_t end = std::min(begin + kPieceTokens, info.tokens);
      parallel_for(info.kv_heads, state.options.threads, [&](std::int64_t head) {
        HeadGenerator& generator = generators[static_cast<std::size_t>(head)];
        Piece& piece = pieces[static_cast<std::size_t>(head)];
        piece.keys.resize(static_cast<std::size_t>(end - begin) * dim);
        piece.values.resize(piece.keys.size());
        const std::int64_t first_query = std::clamp(state.query_start, begin, end);
        const auto query_values = static_cast<std::size_t>(end - first_query) * dim;
        piece.queries.assign(static_cast<std::size_t>(group), std::vector<float>(query_values));
        piece.ahead.assign(state.ahead ? static_cast<std::size_t>(group) : 0,
                           std::vector<float>(query_values));
        std::vector<float> key(source_dim);
        std::vector<float> value(source_dim);
        std::vector<float> ahead(state.ahead ? source_dim : 0);
        const auto place = [&](std::span<const float> source, std::vector<float>& rows,
                               std::int64_t index, float by, std::optional<std::int64_t> position) {
          const std::span row = std::span(rows).subspan(static_cast<std::size_t>(index) * dim, dim);
          resize.apply(source, by, row);
          if (position) state.rope.rotate(row, *position);
        };
        for (std::int64_t token = begin; token < end; ++token) {
          generator.next(key, value);
          place(key, piece.keys, token - begin, scale, token);
          place(value, piece.values, token - begin, 1, std::nullopt);
          if (token < first_query) continue;
          for (std::int64_t i = 0; i < group; ++i) {
            generator.query(i, key, ahead);
            const auto at = static_cast<std::size_t>(i);
            place(key, piece.queries[at], token - first_query, scale, token);
            if (state.ahead) place(ahead, piece.ahead[at], token - first_query, scale, token);
          }
        }
      });
      // In one order, whatever the threads: the file's bytes depend on it.
      for (std::int64_t head = 0; head < info.kv_heads; ++head) {
        const Piece& piece = pieces[static_cast<std::size_t>(head)];
        writer.append(layer, LayerTensor::kKey, head, std::span<const float>(piece.keys));
        writer.append(layer, LayerTensor::kValue, head, std::span<const float>(piece.values));
        for (std::int64_t i = 0; i < group; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const std::int64_t query_head = head * group + i;
          writer.append(layer, LayerTensor::kQuery, query_head,
                        std::span<const float>(piece.queries[at]));
          if (!state.ahead) continue;
          writer.append(layer, LayerTensor::kQueryAhead, query_head,
                        std::span<const float>(piece.ahead[at]));
        }
      }
      if (progress != nullptr) progress->advance(end - begin);
    }
  }
  writer.finish();
}

std::string to_text(const SynthesisReport& report) {
  struct Measure {
    const char* name;
    double HeadStatistics::*member;
    int digits;  // of a number
    int decimals;
    double unit;
  };
  static constexpr std::array<Measure, 7> kMeasures{
      {{"entropy nats", &HeadStatistics::entropy_nats, 6, 3, 1},
       {" top 16", &HeadStatistics::top_16_mass, 5, 1, 100},
       {" top 64", &HeadStatistics::top_64_mass, 5, 1, 100},
       {" top 256", &HeadStatistics::top_256_mass, 5, 1, 100},
       {" first 16", &HeadStatistics::first_16_mass, 5, 1, 100},
       {" last 64", &HeadStatistics::last_64_mass, 5, 1, 100},
       {" overlap", &HeadStatistics::top_64_overlap, 5, 1, 100}}};
  std::vector<Table::Column> columns{{"layer", Table::Align::kRight, 5},
                                     {"kv", Table::Align::kRight, 2},
                                     {"clusters", Table::Align::kRight, 8}};
  for (const Measure& measure : kMeasures) {
    const auto width = 2 * static_cast<std::size_t>(measure.digits) + 3;
    columns.push_back({measure.name, Table::Align::kLeft, width});
  }
  Table table(std::move(columns));
  const std::size_t group = report.keys.empty() ? 1 : report.heads.size() / report.keys.size();
  for (std::size_t i = 0; i < report.keys.size(); ++i) {
    const KeyFit& keys = report.keys[i];
    const std::span<const HeadFit> heads = std::span(report.heads).subspan(i * group, group);
    std::vector<std::string> row{std::to_string(keys.layer), std::to_string(keys.kv_head),
                                 std::to_string(keys.clusters)};
    for (const Measure& measure : kMeasures) {
      double recorded = 0;
      double synthetic = 0;
      for (const HeadFit& head : heads) {
        recorded += measure.unit * (head.recorded.*measure.member) / static_cast<double>(group);
        synthetic += measure.unit * (head.synthetic.*measure.member) / static_cast<double>(group);
      }
      row.push_back(format_text("%*.*f / %*.*f", measure.digits, measure.decimals, recorded,
                                measure.digits, measure.decimals, synthetic));
    }
    table.add_row(std::move(row));
  }
  return "recorded / synthetic, at the recording's length: means over " +
         std::to_string(report.measured_steps) +
         " steps and the query heads of a KV head; masses and overlap in percent\n\n" +
         table.text();
}

}  // namespace kvreplay
