#include "traces/operations/cut.hpp"

#include <algorithm>
#include <span>

#include "base/error.hpp"
#include "traces/trace_writer.hpp"

namespace kvreplay {
namespace {

/// Positions of the source to keep: the prompt is [begin, prompt_end), decode steps follow.
struct Range {
  std::int64_t begin;
  std::int64_t prompt_end;
  std::int64_t end;
};

/// Returns the value itself when it lies in [min, max].
std::int64_t in_range(const TraceReader& source, const std::string& name, std::int64_t value,
                      std::int64_t min, std::int64_t max) {
  if (value >= min && value <= max) return value;
  const std::string allowed = min == max  ? std::to_string(min)
                              : min > max ? "none with the other options"
                                          : std::to_string(min) + " to " + std::to_string(max);
  throw UserError({source.file(), ""}, "cut: " + name + " is " + std::to_string(value), allowed);
}

/// Indices into recorded_layers.
std::vector<std::int64_t> find_layers(const TraceReader& source, const CutOptions& options) {
  const std::vector<std::int64_t>& recorded = source.info().recorded_layers;
  const std::vector<std::int64_t>& wanted = options.layers.empty() ? recorded : options.layers;
  std::vector<std::int64_t> indices;
  for (const std::int64_t layer : wanted) {
    const auto found = std::find(recorded.begin(), recorded.end(), layer);
    const std::int64_t index = found - recorded.begin();
    if (found == recorded.end() || (!indices.empty() && index <= indices.back())) {
      std::vector<std::string> names(recorded.size());
      std::transform(recorded.begin(), recorded.end(), names.begin(),
                     [](std::int64_t held) { return std::to_string(held); });
      throw UserError({source.file(), "/layer"},
                      "cut: layer " + std::to_string(layer) +
                          (found == recorded.end() ? " is not recorded" : " is out of order"),
                      join(names) + ", increasing");
    }
    indices.push_back(index);
  }
  return indices;
}

Range find_range(const TraceReader& source, const CutOptions& options, std::int64_t query_start) {
  const TraceInfo& info = source.info();
  Range range{};
  range.begin = in_range(source, "window_start", options.window_start, 0, info.prompt_tokens - 1);
  // Keeps at least one query within the prompt, where the source has any.
  const std::int64_t earliest_end =
      std::max(std::min(query_start + 1, info.prompt_tokens), range.begin + 1);
  const std::int64_t prompt = in_range(
      source, "prompt_tokens", options.prompt_tokens.value_or(info.prompt_tokens - range.begin),
      earliest_end - range.begin, info.tokens - 1 - range.begin);
  range.prompt_end = range.begin + prompt;
  const std::int64_t left = info.tokens - range.prompt_end;
  range.end = range.prompt_end +
              in_range(source, "decode_tokens", options.decode_tokens.value_or(left), 1, left);
  return range;
}

template <typename T>
std::span<const T> slice(const std::vector<T>& values, const Range& range) {
  return std::span(values).subspan(static_cast<std::size_t>(range.begin),
                                   static_cast<std::size_t>(range.end - range.begin));
}

/// Rows `begin` to `end` of every head.
void copy_rows(TraceWriter& writer, std::int64_t index, LayerTensor name, const HalfTensor& tensor,
               std::int64_t begin, std::int64_t end) {
  for (std::int64_t head = 0; head < tensor.heads; ++head) {
    writer.append(index, name, head,
                  {tensor.row(head, begin), static_cast<std::size_t>((end - begin) * tensor.dim)});
  }
}

/// Those of the range, which moves to 0. The prompt must stay, because the first segment that was
/// generated begins there.
std::vector<Segment> cut_segments(const TraceReader& source, const Range& range) {
  const TraceInfo& info = source.info();
  std::vector<Segment> kept;
  if (info.segments.empty()) return kept;
  if (range.prompt_end != info.prompt_tokens) {
    throw UserError({source.file(), "/"},
                    "cut: a conversation's prompt would end at " + std::to_string(range.prompt_end),
                    std::to_string(info.prompt_tokens) + ", where its first answer begins");
  }
  for (Segment segment : info.segments) {
    if (segment.begin >= range.end) break;
    if (segment.begin <= range.begin) kept.clear();
    segment.begin = std::max<std::int64_t>(0, segment.begin - range.begin);
    kept.push_back(segment);
  }
  if (!kept.back().generated) {
    throw UserError({source.file(), "/"},
                    "cut: its end, " + std::to_string(range.end) + ", lies in a part of the " +
                        kept.back().role + ", which was prefilled",
                    "an end within an answer");
  }
  return kept;
}

}  // namespace

void cut_trace(const TraceReader& source, const CutOptions& options, const std::string& out) {
  const std::vector<std::int64_t> indices = find_layers(source, options);
  TraceWriter::Queries queries{0, true, true};
  for (const std::int64_t index : indices) {
    queries.start = std::max(queries.start, source.query_start(index));
    queries.ahead = queries.ahead && source.has_queries_ahead(index);
    queries.attention_input = queries.attention_input && source.has_attention_input(index);
  }
  const Range range = find_range(source, options, queries.start);
  const std::int64_t first_query = std::max(queries.start, range.begin);
  queries.start = first_query - range.begin;

  TraceInfo info = source.info();
  info.recorded_layers.clear();
  info.sliding_window.clear();
  info.layer_rope_theta.clear();
  for (const std::int64_t index : indices) {
    const auto i = static_cast<std::size_t>(index);
    info.recorded_layers.push_back(source.info().recorded_layers[i]);
    info.sliding_window.push_back(source.info().sliding_window[i]);
    if (!source.info().layer_rope_theta.empty()) {
      info.layer_rope_theta.push_back(source.info().rope_theta_at(index));
    }
  }
  info.prompt_tokens = range.prompt_end - range.begin;
  info.tokens = range.end - range.begin;
  info.segments = cut_segments(source, range);
  info.dtype = "f16";
  info.text_source += "; cut: tokens " + std::to_string(range.begin) + " to " +
                      std::to_string(range.end - 1) + " of the trace with sha256 " +
                      source.content_hash();

  TraceWriter writer(out, info, queries);
  writer.write_tokens(slice(source.token_ids(), range),
                      slice(source.token_statistic("entropy"), range),
                      slice(source.token_statistic("top_probability"), range),
                      slice(source.token_statistic("log_probability"), range));
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    const TraceLayer layer = source.load_layer(indices[i]);
    copy_rows(writer, index, LayerTensor::kKey, layer.keys, range.begin, range.end);
    copy_rows(writer, index, LayerTensor::kValue, layer.values, range.begin, range.end);
    const std::int64_t begin = first_query - layer.query_start;
    const std::int64_t end = range.end - layer.query_start;
    copy_rows(writer, index, LayerTensor::kQuery, layer.queries, begin, end);
    if (queries.ahead) {
      copy_rows(writer, index, LayerTensor::kQueryAhead, layer.queries_ahead, begin, end);
    }
    if (queries.attention_input) {
      copy_rows(writer, index, LayerTensor::kAttentionInput, layer.attention_input, begin, end);
    }
    if (auto weights = source.load_output_weights(indices[i])) {
      const auto norms = weights->residual_norm.begin();
      weights->residual_norm = std::vector<float>(norms + begin, norms + end);
      writer.write_output_weights(index, *weights);
    }
    const auto added = options.adapters.find(layer.layer);
    std::map<std::string, Adapter> adapters;
    if (added != options.adapters.end()) adapters = added->second;
    for (const std::string& name : source.adapter_names(indices[i])) {
      if (!adapters.contains(name)) adapters[name] = *source.load_adapter(indices[i], name);
    }
    for (const auto& [name, adapter] : adapters) writer.write_adapter(index, name, adapter);
  }
  source.check_unchanged();
  writer.finish();
}

}  // namespace kvreplay
