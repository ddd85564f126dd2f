#include "sim/live/platform_probe.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/memory.hpp"
#include "base/parallel.hpp"
#include "base/random.hpp"
#include "base/statistics.hpp"
#include "devices/real/host.hpp"
#include "devices/real/io_engine.hpp"
#include "policies/decide/layer_policy.hpp"
#include "policies/decide/stream_policy.hpp"
#include "policies/kernels/kernels.hpp"
#include "sim/live/live_run.hpp"
#include "sim/models/half_rows.hpp"
#include "sim/models/transformer.hpp"

namespace kvreplay {
namespace {

using Json = nlohmann::ordered_json;

double us_since(std::int64_t begin) {
  return static_cast<double>(monotonic_ns() - begin) * 1e-3;
}

/// Calls work() for about so many seconds, three times at least; the median of what it returns.
template <typename Work>
double repeated(double seconds, Work&& work) {
  const std::int64_t end = monotonic_ns() + std::llround(seconds * 1e9);
  std::vector<double> values;
  while (values.size() < 3 || monotonic_ns() < end) values.push_back(work());
  return median(values);
}

/// Rows of random vectors.
HalfRows random_rows(std::int64_t heads, std::int64_t tokens, std::int64_t dim, Random& random) {
  HalfRows rows(heads, tokens, dim);
  std::vector<float> row(static_cast<std::size_t>(heads * dim));
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (float& element : row) element = static_cast<float>(2 * random.uniform() - 1);
    rows.put(token, row.data());
  }
  return rows;
}

class Probe {
 public:
  Probe(const Model& model, const PlatformProbeOptions& options)
      : model_(model),
        architecture_(model.architecture()),
        options_(options),
        random_(options.seed),
        pool_(options.threads),
        transformer_(model, kTokens, pool_),
        spec_(model_spec_of(model)) {}

  PlatformMeasurement run() {
    result_.model = model_.name();
    result_.threads = options_.threads;
    result_.weight_bits = spec_.weight_bits;
    result_.memory_bytes = total_memory_bytes();
    note_host();
    matrix_vector();
    matrix_matrix();
    attention();
    score();
    memory();
    barrier();
    return std::move(result_);
  }

 private:
  static constexpr std::int64_t kTokens = 4096;

  void say(const std::string& what) const {
    if (options_.on_point) options_.on_point(what);
  }

  /// Whole decode steps without attention, so that weights come from where they come from then.
  void matrix_vector() {
    say("matrix-vector products");
    std::vector<double> project;
    std::vector<double> rest;
    std::vector<double> head;
    const std::int32_t id = 0;
    const std::int64_t position = 0;
    (void)repeated(3 * options_.seconds, [&] {
      transformer_.begin({&id, 1}, {&position, 1});
      double projecting = 0;
      double finishing = 0;
      for (std::int64_t layer = 0; layer < architecture_.layers; ++layer) {
        std::int64_t begin = monotonic_ns();
        transformer_.project(layer, Transformer::kQueries | Transformer::kKeyValues);
        projecting += us_since(begin);
        std::fill(transformer_.attended().begin(), transformer_.attended().end(), 0.0F);
        begin = monotonic_ns();
        transformer_.finish_layer();
        finishing += us_since(begin);
      }
      const std::int64_t begin = monotonic_ns();
      (void)transformer_.logits(transformer_.finish());
      head.push_back(us_since(begin));
      project.push_back(projecting / static_cast<double>(architecture_.layers));
      rest.push_back(finishing / static_cast<double>(architecture_.layers));
      return 0.0;
    });
    const auto add = [&](std::int64_t weights, const std::vector<double>& us) {
      result_.matrix_vector.push_back({static_cast<double>(weights), median(us)});
    };
    const LayerSpec& layer = spec_.layer(0);
    add(layer.query_weights + layer.key_value_weights, project);
    add(layer.output_weights + layer.ffn_weights, rest);
    add(spec_.head_weights(), head);
    sort(result_.matrix_vector);
  }

  void matrix_matrix() {
    say("matrix-matrix products");
    constexpr std::int64_t kRows = 128;
    const std::vector<std::int32_t> ids(kRows);
    std::vector<std::int64_t> positions(kRows);
    std::iota(positions.begin(), positions.end(), 0);
    const double us = repeated(options_.seconds, [&] {
      transformer_.begin(ids, positions);
      const std::int64_t begin = monotonic_ns();
      transformer_.project(0, Transformer::kQueries | Transformer::kKeyValues);
      std::fill(transformer_.attended().begin(), transformer_.attended().end(), 0.0F);
      transformer_.finish_layer();
      return us_since(begin);
    });
    const LayerSpec& layer = spec_.layer(0);
    const auto weights = static_cast<double>(layer.query_weights + layer.key_value_weights +
                                             layer.output_weights + layer.ffn_weights);
    result_.matrix_gflop_s = 2 * weights * kRows / us * 1e-3;
  }

  /// Entries in their stored form are decoded into rows, and each query head attends to them.
  void attention() {
    const Architecture& a = architecture_;
    const HalfRows keys = random_rows(a.kv_heads, kTokens, a.head_dim, random_);
    const HalfRows values = random_rows(a.kv_heads, kTokens, a.head_dim, random_);
    HalfRows shown_keys(a.kv_heads, kTokens, a.head_dim);
    HalfRows shown_values(a.kv_heads, kTokens, a.head_dim);
    std::vector<float> query(static_cast<std::size_t>(a.head_dim), 0.1F);
    std::vector<float> output(query.size());
    for (const std::int64_t count : {16, 64, 256, 1024, 4096}) {
      say("attention to " + std::to_string(count) + " tokens");
      std::vector<std::int32_t> tokens;
      for (std::int64_t i = 0; i < count; ++i) {
        tokens.push_back(static_cast<std::int32_t>(i * kTokens / count));
      }
      std::vector<float> weights(tokens.size());
      const double us = repeated(options_.seconds, [&] {
        const std::int64_t begin = monotonic_ns();
        for (std::int64_t kv = 0; kv < a.kv_heads; ++kv) {
          for (const std::int32_t token : tokens) {
            std::copy_n(keys.first(kTokens).row(kv, token), a.head_dim, shown_keys.row(kv, token));
            std::copy_n(values.first(kTokens).row(kv, token), a.head_dim,
                        shown_values.row(kv, token));
          }
        }
        for (std::int64_t head = 0; head < a.query_heads; ++head) {
          const std::int64_t kv = head / (a.query_heads / a.kv_heads);
          kernels::attend(query.data(), shown_keys.row(kv, 0), shown_values.row(kv, 0), tokens,
                          a.head_dim, static_cast<float>(a.softmax_scale), weights.data(),
                          output.data());
        }
        return us_since(begin);
      });
      result_.attention.push_back({static_cast<double>(count * a.query_size()), us});
    }
  }

  /// Scores and top-k of a layer, by two parts and several numbers of groups.
  void score() {
    const Architecture& a = architecture_;
    const std::int64_t window = 4;
    const HalfRows queries = random_rows(a.query_heads, window, a.head_dim, random_);
    for (const std::int64_t tokens : {512, 1024, 2048, 4096}) {
      const HalfRows keys = random_rows(a.kv_heads, tokens, a.head_dim, random_);
      const HalfRows values = random_rows(a.kv_heads, tokens, a.head_dim, random_);
      const Entries entries{keys.first(tokens), values.first(tokens)};
      for (const char* part : {"centroid", "min_max"}) {
        say(std::string("scores of ") + part + ", " + std::to_string(tokens) + " tokens");
        const DecideSpec spec = DecideSpec::parse(ConfigNode::parse(
            std::string(
                R"({"grouping": {"part": "page", "group_tokens": 16}, "scoring": {"part": ")") +
                part +
                R"(", "heads": "per_query_head"}, "selection": {"part": "top_groups", "budget_tokens": 256}})",
            "probe"));
        LayerPolicy policy(spec,
                           {.layer = 0,
                            .query_heads = a.query_heads,
                            .kv_heads = a.kv_heads,
                            .head_dim = a.head_dim,
                            .softmax_scale = static_cast<float>(a.softmax_scale),
                            .prompt_tokens = tokens,
                            .max_tokens = tokens + 1},
                           {});
        policy.add_prompt(entries, {queries.first(window), tokens - window});
        const std::vector<float> query(static_cast<std::size_t>(a.query_size()), 0.1F);
        const double us = repeated(options_.seconds / 2, [&] {
          const std::int64_t begin = monotonic_ns();
          policy.select(entries, query);
          return us_since(begin);
        });
        double flops = 0;
        for (const auto& stream : policy.streams()) {
          flops += static_cast<double>(stream->scoring().cost().flops);
        }
        result_.score.push_back({flops, us});
      }
    }
    sort(result_.score);
  }

  void memory() {
    say("memory bandwidth");
    constexpr std::int64_t kPiece = 4 << 20;
    constexpr std::int64_t kPieces = 64;
    std::vector<float> data(kPiece * kPieces / sizeof(float), 1.0F);
    std::vector<float> sums(kPieces);
    const double us = repeated(options_.seconds, [&] {
      const std::int64_t begin = monotonic_ns();
      pool_.run(kPieces, [&](std::int64_t piece) {
        constexpr std::int64_t kElements = kPiece / std::int64_t{sizeof(float)};
        const float* from = data.data() + piece * kElements;
        sums[static_cast<std::size_t>(piece)] = kernels::dot(from, from, kElements);
      });
      return us_since(begin);
    });
    result_.memory_gb_s = static_cast<double>(kPiece * kPieces) / us * 1e-3;
  }

  void barrier() {
    say("barriers");
    constexpr int kLoops = 100;
    result_.barrier_us = repeated(options_.seconds / 2, [&] {
      const std::int64_t begin = monotonic_ns();
      for (int i = 0; i < kLoops; ++i) pool_.run(options_.threads, [](std::int64_t) {});
      return us_since(begin) / kLoops;
    });
  }

  void note_host() {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cpufreq/";
    for (const char* name : {"scaling_governor", "scaling_cur_freq", "cpuinfo_max_freq"}) {
      std::ifstream stream(folder + name);
      if (std::string text; stream >> text) {
        result_.notes.push_back(std::string(name) + " " + text);
      }
    }
    for (const Temperature& zone : temperatures()) {
      result_.notes.push_back(zone.zone + " " + std::to_string(std::lround(zone.celsius)) + " C");
    }
  }

  /// By rising work; of equal work the first.
  static void sort(std::vector<MeasuredKernel::Point>& points) {
    std::stable_sort(points.begin(), points.end(),
                     [](const auto& a, const auto& b) { return a.work < b.work; });
    points.erase(std::unique(points.begin(), points.end(),
                             [](const auto& a, const auto& b) { return a.work == b.work; }),
                 points.end());
  }

  const Model& model_;
  const Architecture& architecture_;
  const PlatformProbeOptions& options_;
  Random random_;
  WorkerPool pool_;
  Transformer transformer_;
  ModelSpec spec_;
  PlatformMeasurement result_;
};

}  // namespace

PlatformMeasurement probe_platform(const Model& model, const PlatformProbeOptions& options) {
  return Probe(model, options).run();
}

std::string platform_json(const PlatformMeasurement& measurement, const std::string& title,
                          const std::string& source) {
  const auto sourced = [&](const Json& value, const std::string& what) {
    return Json{{"value", value}, {"source", what + " (" + source + ")"}};
  };
  const auto points = [](const std::vector<MeasuredKernel::Point>& from) {
    Json list = Json::array();
    for (const MeasuredKernel::Point& point : from) {
      list.push_back({point.work, std::round(point.us * 1e3) / 1e3});
    }
    return list;
  };
  Json json;
  json["title"] = title;
  json["source"] = source;
  json["compute_gflop_s"] =
      sourced(measurement.matrix_gflop_s, "measured: products of one layer with 128 rows");
  json["compute_share"] = sourced(1.0, "the rate is what kernels reach");
  json["dram_bandwidth_gb_s"] =
      sourced(measurement.memory_gb_s, "measured: reads of 256 MiB by all threads");
  json["dram_bandwidth_share"] = sourced(1.0, "the bandwidth is what kernels reach");
  json["dram_bytes"] = sourced(measurement.memory_bytes, "as the system reports it");
  json["layer_overhead_us"] =
      sourced(7 * measurement.barrier_us, "measured: seven empty loops on all threads");
  json["selection_overhead_us"] =
      sourced(measurement.score.front().us, "measured: the least of the scores below");
  Json kernels;
  kernels["source"] = source;
  kernels["about"] = {{"model", measurement.model}, {"host", measurement.notes}};
  kernels["weight_bits"] = measurement.weight_bits;
  kernels["threads"] = measurement.threads;
  kernels["matrix_vector"] = points(measurement.matrix_vector);
  kernels["attention"] = points(measurement.attention);
  kernels["score"] = points(measurement.score);
  json["kernels"] = kernels;
  return json.dump(2) + '\n';
}

}  // namespace kvreplay
