#pragma once

#include <optional>
#include <string>

#include "traces/trace.hpp"
#include "traces/trace_writer.hpp"

namespace kvreplay {

/// What to change; properties that are not set stay as they are.
struct ConvertOptions {
  std::optional<std::string> dtype = std::nullopt;      ///< "f16" or "bf16"
  std::optional<std::string> key_state = std::nullopt;  ///< "post_rope" or "pre_rope"
  TraceWriter::Storage storage = TraceWriter::Storage::kMapped;
};

/// Writes the same trace to `out` in another form. Keys, queries and look-ahead queries are rotated
/// by their positions (with each layer's base and rope_pairs); nothing else is rotated, and
/// adapters stay as they are. query_ahead and attention_input are kept where every layer has them.
/// Throws UserError for a NaN or infinity, with its place in the source; for scaled RoPE where
/// rotation is requested; for adapters computed from keys in the other state; and for a value that
/// the new dtype cannot hold.
void convert_trace(const TraceReader& source, const ConvertOptions& options,
                   const std::string& out);

}  // namespace kvreplay
