#include "traces/operations/convert.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "traces/rope.hpp"

namespace kvreplay {
namespace {

constexpr std::int64_t kPieceRows = 4096;

/// `turn` is 0, or the sign of the rotation of rows; row 0 is at position `start`.
void convert(TraceWriter& writer, std::int64_t index, LayerTensor tensor, const HalfTensor& rows,
             std::int64_t start, int turn, const RotaryEmbedding* rope, bool same_bits) {
  const auto dim = static_cast<std::size_t>(rows.dim);
  std::vector<float> piece;
  for (std::int64_t head = 0; head < rows.heads; ++head) {
    for (std::int64_t begin = 0; begin < rows.tokens; begin += kPieceRows) {
      const std::int64_t count = std::min(kPieceRows, rows.tokens - begin);
      const std::span halves(rows.row(head, begin), static_cast<std::size_t>(count) * dim);
      if (turn == 0 && same_bits) {
        writer.append(index, tensor, head, halves);
        continue;
      }
      piece.resize(halves.size());
      std::transform(halves.begin(), halves.end(), piece.begin(), to_float);
      for (std::int64_t row = 0; turn != 0 && row < count; ++row) {
        rope->rotate(std::span(piece).subspan(static_cast<std::size_t>(row) * dim, dim),
                     turn * (start + begin + row));
      }
      writer.append(index, tensor, head, std::span<const float>(piece));
    }
  }
}

void check_adapters(const TraceReader& source) {
  for (std::size_t i = 0; i < source.info().recorded_layers.size(); ++i) {
    if (source.adapter_names(static_cast<std::int64_t>(i)).empty()) continue;
    throw UserError(
        {source.file(), "/adapter"}, "was made from keys that are " + source.info().key_state,
        "the same key_state, or a trace without adapters (`kvreplay adapt` makes them)");
  }
}

}  // namespace

void convert_trace(const TraceReader& source, const ConvertOptions& options,
                   const std::string& out) {
  TraceInfo info = source.info();
  info.dtype = options.dtype.value_or(info.dtype);
  info.key_state = options.key_state.value_or(info.key_state);
  int turn = 0;
  std::vector<RotaryEmbedding> ropes;  // per recorded layer, where they are needed
  if (info.key_state != source.info().key_state) {
    for (std::int64_t i = 0; i < std::ssize(info.recorded_layers); ++i) {
      ropes.emplace_back(source.info(), i, source.file());
    }
    check_adapters(source);
    turn = info.key_state == "post_rope" ? 1 : -1;
  }

  TraceWriter::Queries queries{source.query_start(0), true, true};
  for (std::size_t i = 0; i < info.recorded_layers.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    queries.ahead = queries.ahead && source.has_queries_ahead(index);
    queries.attention_input = queries.attention_input && source.has_attention_input(index);
    if (source.query_start(index) != queries.start) {
      throw UserError({source.file(), "/layer"},
                      "queries of its layers start at different positions",
                      "one query_start for all layers");
    }
  }
  // Loading a layer only samples it: a value that was not sampled would be found, or kept, in the
  // output.
  source.verify();
  TraceWriter writer(out, info, queries, options.storage);
  writer.write_tokens(source.token_ids(), source.token_statistic("entropy"),
                      source.token_statistic("top_probability"),
                      source.token_statistic("log_probability"));
  const bool same_bits = info.dtype == "f16";
  for (std::size_t i = 0; i < info.recorded_layers.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    const TraceLayer layer = source.load_layer(index);
    const RotaryEmbedding* embedding = ropes.empty() ? nullptr : &ropes[i];
    const auto write = [&](LayerTensor tensor, const HalfTensor& rows, std::int64_t start,
                           int turned) {
      convert(writer, index, tensor, rows, start, turned, embedding, same_bits);
    };
    write(LayerTensor::kKey, layer.keys, 0, turn);
    write(LayerTensor::kValue, layer.values, 0, 0);
    write(LayerTensor::kQuery, layer.queries, queries.start, turn);
    if (queries.ahead) write(LayerTensor::kQueryAhead, layer.queries_ahead, queries.start, turn);
    if (queries.attention_input) {
      write(LayerTensor::kAttentionInput, layer.attention_input, queries.start, 0);
    }
    if (const auto weights = source.load_output_weights(index)) {
      writer.write_output_weights(index, *weights);
    }
    for (const std::string& name : source.adapter_names(index)) {
      writer.write_adapter(index, name, *source.load_adapter(index, name));
    }
  }
  source.check_unchanged();
  writer.finish();
}

}  // namespace kvreplay
