#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "traces/trace.hpp"

namespace kvreplay {

struct AdaptOptions {
  /// Columns of joint_lowrank, of which a system uses the first; none: kUsualRank, or all where
  /// there are fewer.
  std::optional<std::int64_t> rank = std::nullopt;
  /// Positions over which a shorter text's keys and queries are spread evenly: RoPE turns each to
  /// its new place. Keys of a few thousand tokens do not span what RoPE makes of keys that lie
  /// further on. 0: they stay where they were recorded.
  std::int64_t positions = 0;
};

/// What a model of 1,024 key elements per token has at a compression of 8.
inline constexpr std::int64_t kUsualRank = 128;

/// A line of a warning where matrices are made of fewer tokens than a token's keys have elements
/// (`width`), so that the tokens cannot say what all columns are; otherwise empty.
[[nodiscard]] std::string few_tokens_warning(std::int64_t tokens, std::int64_t width);

/// The matrices that scoring parts need, made from the recorded layer at `index`, by name:
///
///   joint_lowrank [kv_heads * head_dim, rank]           leading right singular vectors of the keys
///                                                       of all heads, side by side (KVSwap)
///   head_pca      [kv_heads, head_dim, head_dim]        principal components of each head's keys,
///                                                       by falling variance (Loki)
///   head_skew     [kv_heads, head_dim, head_dim]        right singular vectors of the queries that
///                                                       read each KV head, in ascending order of
///                                                       s_q s_k (InfiniGen): both lists of
///                                                       singular values fall, so this is the
///                                                       reverse order
///
/// Vectors are columns: a row vector k becomes k P. Throws UserError for a rank above kv_heads *
/// head_dim, and for positions where the trace does not say its RoPE.
[[nodiscard]] std::map<std::string, Adapter> make_adapters(const TraceReader& trace,
                                                           std::int64_t index,
                                                           const AdaptOptions& options);

/// Writes a copy of `to` whose adapters are computed from `from`, a recording of the same model on
/// another text that holds all of its layers. Each adapter records its text. Throws UserError where
/// the two do not fit.
void adapt_trace(const TraceReader& from, const TraceReader& to, const AdaptOptions& options,
                 const std::string& out);

/// The adapters, at any layer, that were computed from the trace's own text; sorted.
[[nodiscard]] std::vector<std::string> adapters_of_own_text(const TraceReader& trace);

}  // namespace kvreplay
