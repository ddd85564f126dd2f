#include "traces/trace_writer.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "base/hdf5/hdf5_file.hpp"
#include "base/output_file.hpp"
#include "traces/trace_paths.hpp"

namespace kvreplay {
namespace {

const char* tensor_name(LayerTensor tensor) {
  switch (tensor) {
    case LayerTensor::kKey:
      return "key";
    case LayerTensor::kValue:
      return "value";
    case LayerTensor::kQuery:
      return "query";
    case LayerTensor::kQueryAhead:
      return "query_ahead";
    case LayerTensor::kAttentionInput:
      return "attention_input";
  }
  throw std::logic_error("unknown LayerTensor");
}

/// Whether the tensor's rows begin at the first query.
bool of_queries(LayerTensor tensor) {
  return tensor != LayerTensor::kKey && tensor != LayerTensor::kValue;
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::logic_error("trace writer: " + what);
}

void write_attributes(Hdf5File& hdf5, const TraceInfo& info) {
  const auto text = [&](const char* name, const std::string& value) {
    hdf5.write_text_attribute("/", name, value);
  };
  const auto integer = [&](const char* name, std::int64_t value) {
    hdf5.write_integer_attribute("/", name, value);
  };
  text("format", kTraceFormat);
  integer("format_version",
          info.segments.empty() ? kTraceFormatVersion : kConversationFormatVersion);
  text("model", info.model);
  text("model_revision", info.model_revision);
  text("weights_sha256", info.weights_sha256);
  integer("layers", info.layers);
  integer("query_heads", info.query_heads);
  integer("kv_heads", info.kv_heads);
  integer("head_dim", info.head_dim);
  integer("hidden_size", info.hidden_size);
  hdf5.write_integers_attribute("/", "recorded_layers", info.recorded_layers);
  integer("prompt_tokens", info.prompt_tokens);
  integer("tokens", info.tokens);
  text("dtype", info.dtype);
  text("key_state", info.key_state);
  hdf5.write_real_attribute("/", "rope_theta", info.rope_theta);
  text("rope_pairs", info.rope_pairs);
  text("rope_scaling", info.rope_scaling);
  if (!info.layer_rope_theta.empty()) {
    hdf5.write_reals_attribute("/", "layer_rope_theta", info.layer_rope_theta);
  }
  hdf5.write_real_attribute("/", "softmax_scale", info.softmax_scale);
  hdf5.write_integers_attribute("/", "sliding_window", info.sliding_window);
  text("tokenizer", info.tokenizer);
  text("text_source", info.text_source);
  text("text_sha256", info.text_sha256);
  if (!info.segments.empty()) {
    std::string roles;
    std::vector<std::int64_t> begin;
    std::vector<std::int64_t> generated;
    for (const Segment& segment : info.segments) {
      roles += (roles.empty() ? "" : " ") + segment.role;
      begin.push_back(segment.begin);
      generated.push_back(segment.generated ? 1 : 0);
    }
    text(kSegmentRolesName, roles);
    hdf5.write_integers_attribute("/", kSegmentBegin, begin);
    hdf5.write_integers_attribute("/", kSegmentGenerated, generated);
  }
  if (!info.text_mode.empty()) text("text_mode", info.text_mode);
  text("tool", info.tool);
  text("tool_version", info.tool_version);
  integer("seed", info.seed);
  text("created_utc", info.created_utc);
  if (info.synthetic) integer("synthetic", 1);
}

/// About 128 KiB per chunk, within one head: what one stream's reader reads.
Hdf5Layout archive_layout(std::span<const std::int64_t> shape) {
  Hdf5Layout layout;
  layout.chunk.assign(shape.size(), 1);
  layout.chunk.back() = shape.back();
  const std::int64_t rows = shape[shape.size() - 2];
  layout.chunk[shape.size() - 2] = std::clamp<std::int64_t>(65536 / shape.back(), 1, rows);
  layout.gzip_level = 6;
  return layout;
}

}  // namespace

struct TraceWriter::State {
  State(const std::string& path, TraceInfo given, Queries query_range)
      : output(path),
        hdf5(Hdf5File::create(output.temporary_path(), path)),
        info(std::move(given)),
        queries(query_range) {}

  [[nodiscard]] std::int64_t heads(LayerTensor tensor) const {
    if (tensor == LayerTensor::kAttentionInput) return 1;
    return of_queries(tensor) ? info.query_heads : info.kv_heads;
  }
  [[nodiscard]] std::int64_t width(LayerTensor tensor) const {
    return tensor == LayerTensor::kAttentionInput ? info.hidden_size : info.head_dim;
  }
  [[nodiscard]] std::int64_t rows(LayerTensor tensor) const {
    return of_queries(tensor) ? info.tokens - queries.start : info.tokens;
  }

  /// Reserves `count` rows in the data set; returns where to write them.
  struct Slot {
    std::string path;
    std::vector<std::int64_t> start;
    std::vector<std::int64_t> extent;
  };
  [[nodiscard]] Slot next_slot(std::int64_t index, LayerTensor tensor, std::int64_t head,
                               std::size_t values) {
    const auto found = written.find({index, tensor});
    require(found != written.end(), "no such layer or tensor");
    require(head >= 0 && head < heads(tensor), "no such head");
    const std::int64_t dim = width(tensor);
    const std::int64_t count = static_cast<std::int64_t>(values) / dim;
    require(count * dim == static_cast<std::int64_t>(values), "rows must be whole");
    std::int64_t& done = found->second[static_cast<std::size_t>(head)];
    require(done + count <= rows(tensor), "more rows than the trace has");
    const std::int64_t layer = info.recorded_layers[static_cast<std::size_t>(index)];
    Slot slot{layer_path(layer, tensor_name(tensor)), {head, done, 0}, {1, count, dim}};
    if (tensor == LayerTensor::kAttentionInput) {
      slot.start.erase(slot.start.begin());
      slot.extent.erase(slot.extent.begin());
    }
    done += count;
    return slot;
  }

  OutputFile output;  // outlives hdf5: the file is closed before it is removed
  Hdf5File hdf5;
  TraceInfo info;
  Queries queries;
  bool tokens_written = false;
  /// Adds rows, as they are stored, to the checksum of their head.
  void add_to_checksum(std::int64_t index, LayerTensor tensor, std::int64_t head,
                       std::span<const std::byte> rows) {
    checksums.at({index, tensor})[static_cast<std::size_t>(head)].update(rows);
  }
  void write_checksums() {
    for (auto& [key, heads] : checksums) {
      const auto& [index, tensor] = key;
      const std::int64_t layer = info.recorded_layers[static_cast<std::size_t>(index)];
      Sha256 whole;
      for (Sha256& head : heads) whole.update(head.hex());
      hdf5.write_digest_attribute(layer_path(layer, tensor_name(tensor)), kVectorsSha256,
                                  whole.hex());
    }
  }

  /// Rows written so far, by layer index and tensor, per head.
  std::map<std::pair<std::int64_t, LayerTensor>, std::vector<std::int64_t>> written;
  std::map<std::pair<std::int64_t, LayerTensor>, std::vector<Sha256>> checksums;  ///< likewise
};

TraceWriter::TraceWriter(const std::string& path, const TraceInfo& info, Queries queries,
                         Storage storage) {
  require(info.dtype == "f16" || info.dtype == "bf16", "dtype must be f16 or bf16");
  require(info.prompt_tokens >= 1 && info.prompt_tokens < info.tokens,
          "prompt_tokens must lie in 1..tokens-1");
  require(queries.start >= 0 && queries.start <= info.prompt_tokens,
          "queries must start within the prompt");
  require(
      !info.recorded_layers.empty() && info.sliding_window.size() == info.recorded_layers.size(),
      "sliding_window must have one value per recorded layer");
  state_ = std::make_unique<State>(path, info, queries);

  Hdf5File& hdf5 = state_->hdf5;
  write_attributes(hdf5, info);
  std::vector<LayerTensor> tensors = {LayerTensor::kKey, LayerTensor::kValue, LayerTensor::kQuery};
  if (queries.ahead) tensors.push_back(LayerTensor::kQueryAhead);
  if (queries.attention_input) tensors.push_back(LayerTensor::kAttentionInput);
  for (std::size_t i = 0; i < info.recorded_layers.size(); ++i) {
    for (const LayerTensor tensor : tensors) {
      const std::string path_within = layer_path(info.recorded_layers[i], tensor_name(tensor));
      const std::int64_t extents[] = {state_->heads(tensor), state_->rows(tensor),
                                      state_->width(tensor)};
      const bool has_heads = tensor != LayerTensor::kAttentionInput;
      const std::span<const std::int64_t> shape = std::span(extents).subspan(has_heads ? 0 : 1);
      const Hdf5Layout layout = storage == Storage::kArchive ? archive_layout(shape) : Hdf5Layout{};
      const Hdf5Type type = info.dtype == "f16" ? Hdf5Type::kHalf : Hdf5Type::kUint16;
      hdf5.create_dataset(path_within, type, shape, layout);
      if (has_heads && of_queries(tensor)) {
        hdf5.write_integer_attribute(path_within, "query_start", queries.start);
      }
      const auto heads = static_cast<std::size_t>(state_->heads(tensor));
      state_->written[{static_cast<std::int64_t>(i), tensor}].resize(heads);
      state_->checksums[{static_cast<std::int64_t>(i), tensor}] = std::vector<Sha256>(heads);
    }
  }
}

TraceWriter::~TraceWriter() = default;

void TraceWriter::write_tokens(std::span<const std::int32_t> ids, std::span<const float> entropy,
                               std::span<const float> top_probability,
                               std::span<const float> log_probability) {
  const auto tokens = static_cast<std::size_t>(state_->info.tokens);
  for (const std::size_t size :
       {ids.size(), entropy.size(), top_probability.size(), log_probability.size()}) {
    require(size == tokens, "token data must have one value per token");
  }
  Hdf5File& hdf5 = state_->hdf5;
  hdf5.write_vector(token_path("id"), ids);
  hdf5.write_vector(token_path("entropy"), entropy);
  hdf5.write_vector(token_path("top_probability"), top_probability);
  hdf5.write_vector(token_path("log_probability"), log_probability);
  state_->tokens_written = true;
}

void TraceWriter::append(std::int64_t index, LayerTensor tensor, std::int64_t head,
                         std::span<const Half> rows) {
  require(state_->info.dtype == "f16", "halves are for f16");
  const State::Slot slot = state_->next_slot(index, tensor, head, rows.size());
  state_->hdf5.write_box<Half>(slot.path, slot.start, slot.extent, rows);
  state_->add_to_checksum(index, tensor, head, std::as_bytes(rows));
}

void TraceWriter::append(std::int64_t index, LayerTensor tensor, std::int64_t head,
                         std::span<const float> rows) {
  const State::Slot slot = state_->next_slot(index, tensor, head, rows.size());
  const auto check = [&](std::size_t i, bool fits) {
    if (fits) return;
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t dim = state_->width(tensor);
    std::vector<std::int64_t> position = slot.start;
    position[position.size() - 2] += at / dim;
    position.back() = at % dim;
    std::string text;
    for (const std::int64_t place : position) {
      text += (text.empty() ? "[" : ", ") + std::to_string(place);
    }
    throw UserError(
        state_->hdf5.place(slot.path),
        std::to_string(rows[i]) + " at " + text + "] does not fit in " + state_->info.dtype,
        "values that do; bf16 has the wider range");
  };
  if (state_->info.dtype == "f16") {
    std::vector<Half> halves(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      halves[i] = to_half(rows[i]);
      check(i, std::isfinite(to_float(halves[i])));
    }
    state_->hdf5.write_box<Half>(slot.path, slot.start, slot.extent, halves);
    state_->add_to_checksum(index, tensor, head, std::as_bytes(std::span(halves)));
    return;
  }
  std::vector<std::uint16_t> brain(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    brain[i] = to_bfloat16(rows[i]);
    check(i, std::isfinite(bfloat16_to_float(brain[i])));
  }
  state_->hdf5.write_box<std::uint16_t>(slot.path, slot.start, slot.extent, brain);
  state_->add_to_checksum(index, tensor, head, std::as_bytes(std::span(brain)));
}

void TraceWriter::write_adapter(std::int64_t index, const std::string& name,
                                const Adapter& adapter) {
  const std::string path =
      adapter_group(state_->info.recorded_layers.at(static_cast<std::size_t>(index))) + "/" + name;
  state_->hdf5.write_array(path, adapter.shape, adapter.values);
  if (!adapter.text_sha256.empty()) {
    state_->hdf5.write_text_attribute(path, "text_sha256", adapter.text_sha256);
  }
  if (adapter.text_tokens > 0) {
    state_->hdf5.write_integer_attribute(path, "tokens", adapter.text_tokens);
  }
  if (adapter.positions > 0) {
    state_->hdf5.write_integer_attribute(path, "positions", adapter.positions);
  }
}

void TraceWriter::write_output_weights(std::int64_t index, const OutputWeights& weights) {
  const TraceInfo& info = state_->info;
  const std::int64_t layer = info.recorded_layers.at(static_cast<std::size_t>(index));
  const std::int64_t width = info.query_heads * info.head_dim;
  const std::int64_t shape[] = {std::ssize(weights.sketch) / width, width};
  require(shape[0] * width == std::ssize(weights.sketch), "a sketch must have whole rows");
  require(std::ssize(weights.residual_norm) == info.tokens - state_->queries.start,
          "residual_norm must have one value per query");
  state_->hdf5.write_array(layer_path(layer, kOutputSketch), shape, weights.sketch);
  state_->hdf5.write_vector(layer_path(layer, kResidualNorm), weights.residual_norm);
}

void TraceWriter::finish() {
  require(state_->tokens_written, "token data is missing");
  for (const auto& [key, heads] : state_->written) {
    for (const std::int64_t rows : heads) {
      require(rows == state_->rows(key.second),
              std::string("rows are missing of ") + tensor_name(key.second));
    }
  }
  state_->write_checksums();
  state_->hdf5.write_integer_attribute("/", "complete", 1);
  state_->hdf5.write_content_sha256(holds_vectors);
  state_->hdf5.close();
  state_->output.commit();
}

}  // namespace kvreplay
