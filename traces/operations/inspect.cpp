#include "traces/operations/inspect.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <span>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "base/printable.hpp"
#include "base/progress.hpp"
#include "base/size.hpp"
#include "base/table.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kMeasuredSteps = 48;

/// One head's rows as floats, [tokens, dim].
std::vector<float> to_floats(const HalfTensor& tensor, std::int64_t head) {
  const std::span rows(tensor.head(head), static_cast<std::size_t>(tensor.tokens * tensor.dim));
  std::vector<float> floats(rows.size());
  std::transform(rows.begin(), rows.end(), floats.begin(), to_float);
  return floats;
}

NormSummary measure_norms(const HalfTensor& tensor) {
  NormSummary norms;
  for (std::int64_t head = 0; head < tensor.heads; ++head) {
    for (std::int64_t token = 0; token < tensor.tokens; ++token) {
      const Half* row = tensor.row(head, token);
      double squares = 0;
      for (std::int64_t i = 0; i < tensor.dim; ++i) {
        const double value = to_float(row[i]);
        squares += value * value;
      }
      const double norm = std::sqrt(squares);
      norms.mean += norm;
      norms.max = std::max(norms.max, norm);
    }
  }
  norms.mean /= static_cast<double>(tensor.heads * tensor.tokens);
  return norms;
}

std::vector<std::int64_t> measured_positions(const TraceInfo& info) {
  const std::int64_t steps = info.decode_steps();
  const std::int64_t count = std::min(steps, kMeasuredSteps);
  std::vector<std::int64_t> positions;
  for (std::int64_t i = 0; i < count; ++i) {
    positions.push_back(info.prompt_tokens + (count == 1 ? 0 : i * (steps - 1) / (count - 1)));
  }
  return positions;
}

/// Softmax weights of `query` over the keys of positions begin..end-1.
void weigh_keys(std::span<const double> query, std::span<const float> keys, double scale,
                std::int64_t begin, std::int64_t end, std::vector<double>& weights) {
  weights.clear();
  for (std::int64_t token = begin; token < end; ++token) {
    const float* key = keys.data() + token * static_cast<std::int64_t>(query.size());
    double score = 0;
    for (std::size_t i = 0; i < query.size(); ++i) score += query[i] * key[i];
    weights.push_back(score * scale);
  }
  softmax(weights);
}

AttentionSummary measure_attention(const TraceLayer& layer, const TraceInfo& info,
                                   std::int64_t sliding_window,
                                   std::span<const std::int64_t> positions, Progress* progress) {
  AttentionSummary total;
  std::vector<double> query(static_cast<std::size_t>(info.head_dim));
  std::vector<double> weights;
  for (std::int64_t kv_head = 0; kv_head < info.kv_heads; ++kv_head) {
    const std::vector<float> keys = to_floats(layer.keys, kv_head);
    for (std::int64_t i = 0; i < info.queries_per_kv_head(); ++i) {
      const std::int64_t head = kv_head * info.queries_per_kv_head() + i;
      for (const std::int64_t position : positions) {
        const Half* row = layer.queries.row(head, position - layer.query_start);
        std::transform(row, row + info.head_dim, query.begin(), to_float);
        const std::int64_t end = position + 1;
        const std::int64_t begin =
            sliding_window > 0 ? std::max<std::int64_t>(0, end - sliding_window) : 0;
        weigh_keys(query, keys, info.softmax_scale, begin, end, weights);
        total.add(weights, begin);
      }
      if (progress != nullptr) progress->advance();
    }
  }
  total.divide(static_cast<double>(positions.size()) * static_cast<double>(info.query_heads));
  return total;
}

double perplexity(std::span<const float> log_probability) {
  return std::exp(-std::accumulate(log_probability.begin(), log_probability.end(), 0.0) /
                  static_cast<double>(log_probability.size()));
}

}  // namespace

TraceSummary summarise(const TraceReader& trace, Progress* progress) {
  const TraceInfo& info = trace.info();
  TraceSummary summary;
  summary.file = trace.file();
  summary.info = info;
  summary.file_bytes = static_cast<std::int64_t>(std::filesystem::file_size(trace.file()));

  const std::vector<float> logs = trace.token_statistic("log_probability");
  const std::span known = std::span(logs).first(logs.size() - 1);
  summary.perplexity = perplexity(known);
  const std::span decoded = known.subspan(static_cast<std::size_t>(info.prompt_tokens));
  if (!decoded.empty()) summary.decode_perplexity = perplexity(decoded);

  const std::vector<std::int64_t> positions = measured_positions(info);
  summary.measured_steps = static_cast<std::int64_t>(positions.size());
  for (std::size_t i = 0; i < info.recorded_layers.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    const TraceLayer layer = trace.load_layer(index);
    LayerSummary measured;
    measured.layer = layer.layer;
    measured.query_start = layer.query_start;
    measured.sliding_window = info.sliding_window[i];
    measured.key_norm = measure_norms(layer.keys);
    measured.value_norm = measure_norms(layer.values);
    if (info.key_state == "post_rope") {
      measured.attention =
          measure_attention(layer, info, measured.sliding_window, positions, progress);
    } else if (progress != nullptr) {
      progress->advance(info.query_heads);
    }
    measured.adapters = trace.adapter_names(index);
    summary.layers.push_back(std::move(measured));
  }
  trace.check_unchanged();
  return summary;
}

std::string to_text(const TraceSummary& summary) {
  const TraceInfo& info = summary.info;
  const auto integer = [](std::int64_t value) { return static_cast<long long>(value); };
  std::string text;
  text += summary.file + ": " + size_text(summary.file_bytes) + ", " + info.dtype + ", " +
          info.key_state + "\n";
  text += "model    " + printable(info.model) +
          format_text(
              ": %lld layers (%lld recorded), %lld query heads on %lld KV heads, head_dim %lld\n",
              integer(info.layers), integer(std::ssize(info.recorded_layers)),
              integer(info.query_heads), integer(info.kv_heads), integer(info.head_dim));
  if (info.synthetic) text += "SYNTHETIC: generated, not recorded from a model\n";
  text += "text     " + printable(info.text_source) +
          (info.text_mode.empty() ? "" : " (" + info.text_mode + ")") + "\n";
  text +=
      format_text("tokens   %lld: prompt %lld, decode %lld; perplexity %.2f", integer(info.tokens),
                  integer(info.prompt_tokens), integer(info.decode_steps()), summary.perplexity);
  if (summary.decode_perplexity)
    text += format_text(", decode part %.2f", *summary.decode_perplexity);
  if (!info.segments.empty()) {
    text += format_text("\nturns    %lld:", integer(std::ssize(info.turns())));
    for (std::size_t i = 0; i < info.segments.size(); ++i) {
      const Segment& segment = info.segments[i];
      const bool last = i + 1 == info.segments.size();
      const std::int64_t end = last ? info.tokens : info.segments[i + 1].begin;
      text += (i == 0 ? " " : ", ") + segment.role +
              format_text(" %lld", integer(end - segment.begin)) +
              (segment.generated ? " (generated)" : "");
    }
  }
  text += "\nrecorder " + printable(info.tool + " " + info.tool_version + ", " + info.created_utc) +
          "\n";
  text += format_text(
      "attention: means over %lld decode steps and all query heads; masses in percent\n\n",
      integer(summary.measured_steps));
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"layer", kRight, 5},
               {"key norm mean/max", kRight, 17},
               {"value norm mean/max", kRight, 19},
               {"entropy nats", kRight, 12},
               {"top 16", kRight, 6},
               {"top 64", kRight, 6},
               {"top 256", kRight, 7},
               {"first 16", kRight, 8},
               {"last 64", kRight, 7},
               {"adapters", Table::Align::kLeft}});
  for (const LayerSummary& layer : summary.layers) {
    std::vector<std::string> row{
        std::to_string(layer.layer),
        format_text("%8.2f /%7.2f", layer.key_norm.mean, layer.key_norm.max),
        format_text("%9.3f /%8.3f", layer.value_norm.mean, layer.value_norm.max)};
    const std::string adapters = layer.adapters.empty() ? "none" : join(layer.adapters, " ");
    if (const auto& attention = layer.attention) {
      row.push_back(fixed_text(attention->entropy_nats, 3));
      for (const double mass :
           {attention->top_16_mass, attention->top_64_mass, attention->top_256_mass,
            attention->first_16_mass, attention->last_64_mass}) {
        row.push_back(fixed_text(100 * mass, 1));
      }
      row.push_back(adapters);
    } else {
      row.push_back("  not measured: keys are before RoPE                         " + adapters);
    }
    table.add_row(std::move(row));
  }
  return text + table.text();
}

}  // namespace kvreplay
