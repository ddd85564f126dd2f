#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/models/model_file.hpp"
#include "sim/models/next_token.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

struct RecordOptions {
  /// A text to follow (at least prompt_tokens + steps ids), or a prompt to continue.
  std::vector<std::int32_t> ids = {};
  std::int64_t prompt_tokens = 2048;
  std::int64_t steps = 512;
  /// The model draws the steps' tokens. Without it, those of `ids` are followed.
  std::optional<SamplingOptions> sampling = std::nullopt;
  std::vector<std::int64_t> layers = {};  ///< increasing; empty = all
  std::int64_t query_window = 64;         ///< last positions of the prompt with queries
  bool queries_ahead = true;
  bool attention_input = false;
  /// By recorded layer and name: what the trace carries besides (/adapter/NN). Empty = none.
  std::vector<std::map<std::string, Adapter>> adapters = {};
  int threads = 1;
  std::int64_t chunk_tokens = 256;  ///< rows per matrix product; results do not depend on it
  // What the trace states about itself.
  std::vector<Segment> segments = {};  ///< TraceInfo's; `ids` is then the whole conversation
  /// How the model wrote some of `ids` before.
  std::optional<SamplingOptions> drawn = std::nullopt;
  std::string text_source = {};
  std::string text_sha256 = {};
  std::string created_utc = {};
  bool show_progress = true;
};

struct RecordResult {
  double perplexity = 0;         ///< over all tokens but the last
  double decode_perplexity = 0;  ///< from the first step on; NaN for a single step
  double prompt_s = 0;
  double steps_s = 0;
  /// Counts a multiply-add as two operations. Norms, softmax and RoPE are not counted.
  double prompt_flops = 0;
  double steps_flops = 0;
};

/// Runs the model under its own attention and writes what it computed as a trace. The trace's bytes
/// depend on the model and the options but not on threads or chunk_tokens. Throws UserError for
/// ids, layers or lengths that the model does not have, and for a vector beyond half precision.
RecordResult record_trace(const Model& model, const RecordOptions& options, const std::string& out);

/// What the trace of such a recording says of itself.
[[nodiscard]] TraceInfo trace_info(const Model& model, const RecordOptions& options);

/// UserError unless the model has these tokens, and prompt and steps fit its context and the text,
/// of which `needed` tokens are used.
void check_text(const Model& model, std::span<const std::int32_t> ids, std::int64_t prompt_tokens,
                std::int64_t steps, std::int64_t needed);

/// Floating-point operations for a token at a position, including its logits. A multiply-add counts
/// as two.
[[nodiscard]] double token_flops(const Architecture& architecture, std::int64_t position);

}  // namespace kvreplay
