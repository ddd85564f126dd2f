#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "traces/trace.hpp"

namespace kvreplay {

/// Which part of a trace to keep.
struct CutOptions {
  /// The model's layer numbers, increasing; empty = all recorded.
  std::vector<std::int64_t> layers = {};
  /// Position in the source of the cut's first token. 0 keeps the text's beginning and therefore
  /// the attention sink. Above 0, every position shifts; attention under RoPE depends only on
  /// differences of positions, so scores stay what the model computed, over the remaining tokens.
  std::int64_t window_start = 0;
  /// None: to the source's first decode step.
  std::optional<std::int64_t> prompt_tokens = std::nullopt;
  /// None: to the source's end.
  std::optional<std::int64_t> decode_tokens = std::nullopt;
  /// Adapters by the model's layer number and by name: added to the source's, or replacing those of
  /// the same name.
  std::map<std::int64_t, std::map<std::string, Adapter>> adapters = {};
};

/// Writes a smaller trace to `out`: the layers named, the tokens from window_start on, and the
/// adapters of those layers, bit for bit (bf16 vectors become f16). The prompt must end where the
/// source has queries, because every decode step needs one: past `query_start`, unless it ends with
/// the source's own prompt. text_source says what was cut from which file. query_ahead and
/// attention_input are kept where every layer has them. An option outside these ranges is a
/// UserError that names what is allowed.
void cut_trace(const TraceReader& source, const CutOptions& options, const std::string& out);

}  // namespace kvreplay
