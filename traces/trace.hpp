#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/half.hpp"

namespace kvreplay {

/// A stretch of a conversation, from its own first token to the next one's.
struct Segment {
  std::string role;        ///< of kSegmentRoles
  std::int64_t begin = 0;  ///< position of its first token
  bool generated = false;  ///< decode steps; otherwise its tokens were prefilled
  friend bool operator==(const Segment&, const Segment&) = default;
};
inline constexpr std::array kSegmentRoles = {"system", "user", "assistant"};

/// What a conversation prefills at once, and the decode steps that follow: positions.
struct Turn {
  std::int64_t begin = 0;
  std::int64_t generated_begin = 0;
  std::int64_t end = 0;
  friend bool operator==(const Turn&, const Turn&) = default;
};

/// The properties of a trace: the root attributes (docs/trace-format.md).
struct TraceInfo {
  std::string model;
  std::string model_revision;
  std::string weights_sha256;
  std::int64_t layers = 0;  ///< the model's own number; recorded_layers are those in the trace
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t hidden_size = 0;
  std::vector<std::int64_t> recorded_layers;
  std::int64_t prompt_tokens = 0;
  std::int64_t tokens = 0;
  std::string dtype;      ///< "f16" or "bf16", as stored
  std::string key_state;  ///< "post_rope" or "pre_rope"
  double rope_theta = 0;
  std::string rope_pairs;    ///< "half" or "interleaved"
  std::string rope_scaling;  ///< "none", "by layer" or a text
  /// Base per recorded layer, 0 = a layer without RoPE; empty where all have rope_theta, otherwise
  /// rope_scaling is not "none".
  std::vector<double> layer_rope_theta;
  double softmax_scale = 0;
  std::vector<std::int64_t> sliding_window;  ///< per recorded layer; 0 = full attention
  std::string tokenizer;
  std::string text_source;
  std::string text_sha256;
  /// Of a conversation: the first begins at 0, the first generated one at prompt_tokens, and the
  /// last is generated. Empty where the trace is a prompt and its decode steps.
  std::vector<Segment> segments;
  std::string text_mode;  ///< "teacher_forced", "greedy", "sampled", or "" where unknown
  std::string tool;
  std::string tool_version;
  std::int64_t seed = 0;
  std::string created_utc;
  /// Generated from statistics (`kvreplay synth`), not recorded from a model.
  bool synthetic = false;

  /// From the first to the last; one where there are no segments.
  [[nodiscard]] std::vector<Turn> turns() const;
  [[nodiscard]] std::int64_t decode_steps() const { return tokens - prompt_tokens; }
  [[nodiscard]] std::int64_t queries_per_kv_head() const { return query_heads / kv_heads; }
  /// Whether each recorded layer's frequencies follow from its base.
  [[nodiscard]] bool rope_known() const {
    return rope_scaling == "none" || rope_scaling == "by layer";
  }
  /// RoPE's base in the layer at `index` in recorded_layers; 0 = none.
  [[nodiscard]] double rope_theta_at(std::int64_t index) const {
    return layer_rope_theta.empty() ? rope_theta
                                    : layer_rope_theta.at(static_cast<std::size_t>(index));
  }
};

/// A matrix that was computed from another text, under /adapter/NN: joint_lowrank
/// [kv_heads * head_dim, rank], head_pca [kv_heads, head_dim, head_dim], head_skew (same shape).
struct Adapter {
  std::vector<std::int64_t> shape;
  std::vector<float> values;     ///< row-major
  std::string text_sha256;       ///< of the text it was computed from; "" where unknown
  std::int64_t text_tokens = 0;  ///< number of that text's tokens that were used; 0 where unknown
  /// Over how many positions that text's tokens were spread; 0 where they stayed at their own.
  std::int64_t positions = 0;
};

/// How what attention computes enters the residual stream of a layer.
struct OutputWeights {
  /// [rows, query_heads * head_dim], a random projection of the output projection W: for any vector
  /// e, |sketch e|^2 is |W e|^2 up to a relative deviation of sqrt(2 / rows).
  std::vector<float> sketch;
  /// [as queries]: 2-norm of the residual stream at a position, with attention's output added.
  std::vector<float> residual_norm;
};

/// A recorded layer: views into the file's mapping (contiguous f16) or into buffers of this object
/// (chunked, or bf16 converted to f16: exact for magnitudes from 6.1e-5 to 65504, an error above).
/// Valid as long as this object lives.
class TraceLayer {
 public:
  std::int64_t layer = 0;        ///< the model's layer number
  HalfTensor keys;               ///< [kv_heads, tokens, head_dim]
  HalfTensor values;             ///< [kv_heads, tokens, head_dim]
  HalfTensor queries;            ///< [query_heads, tokens - query_start, head_dim]
  HalfTensor queries_ahead;      ///< as queries; tokens == 0 when the trace has none
  HalfTensor attention_input;    ///< [1, as queries, hidden_size]; tokens == 0 when there is none
  std::int64_t query_start = 0;  ///< position of the first query

  /// Keeps the buffers and the mapping alive.
  std::shared_ptr<const void> storage;
};

/// Reads a .kvtrace.h5 file by layer and range, never whole. Opening checks every attribute and
/// shape, the file's size and that it is complete; each layer's vectors are sampled for NaN and
/// infinity as they are loaded. Every failure is a UserError with the HDF5 path. load_layer may be
/// called from several threads.
class TraceReader {
 public:
  explicit TraceReader(std::string file);
  ~TraceReader();
  TraceReader(TraceReader&&) noexcept;
  TraceReader& operator=(TraceReader&&) noexcept;

  [[nodiscard]] const std::string& file() const;
  [[nodiscard]] const TraceInfo& info() const;
  /// Whether the vectors were generated, not recorded: results say so wherever they appear.
  [[nodiscard]] bool synthetic() const { return info().synthetic; }
  /// SHA-256 of the file's bytes; computed on first use, in pieces.
  [[nodiscard]] const std::string& content_hash() const;

  /// The layer at `index` in recorded_layers.
  [[nodiscard]] TraceLayer load_layer(std::int64_t index) const;
  /// The adapter /adapter/NN/`name` of that layer, or nothing.
  [[nodiscard]] std::optional<Adapter> load_adapter(std::int64_t index,
                                                    const std::string& name) const;
  /// The adapters of that layer, sorted.
  [[nodiscard]] std::vector<std::string> adapter_names(std::int64_t index) const;

  /// Of that layer, or nothing where the trace does not hold it.
  [[nodiscard]] std::optional<OutputWeights> load_output_weights(std::int64_t index) const;

  /// What load_layer(index) will report, without loading the layer.
  [[nodiscard]] std::int64_t query_start(std::int64_t index) const;
  [[nodiscard]] bool has_queries_ahead(std::int64_t index) const;
  [[nodiscard]] bool has_attention_input(std::int64_t index) const;

  [[nodiscard]] std::vector<std::int32_t> token_ids() const;
  /// /tokens/`name` (entropy, top_probability, log_probability), [tokens].
  [[nodiscard]] std::vector<float> token_statistic(const std::string& name) const;

  /// Checks everything that a run may read and every byte that it may depend on: each value and its
  /// range, every object of the file, and the checksums where the file holds them.
  void verify() const;
  /// Whether the file holds checksums, so that verify() finds every changed bit that matters.
  [[nodiscard]] bool has_checksums() const;
  /// Throws UserError when the file was changed since it was opened: what was read may be of
  /// neither state. To be called after the last layer was used.
  void check_unchanged() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvreplay
