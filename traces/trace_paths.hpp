#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

namespace kvreplay {

// Names inside a .kvtrace.h5 file, for its reader and its writer (docs/trace-format.md).

inline constexpr const char* kTraceFormat = "kvtrace";
inline constexpr std::int64_t kTraceFormatVersion = 1;
/// Of a trace with segments.
inline constexpr std::int64_t kConversationFormatVersion = 2;
inline constexpr const char* kSegmentRolesName = "segment_roles";
inline constexpr const char* kSegmentBegin = "segment_begin";
inline constexpr const char* kSegmentGenerated = "segment_generated";
inline constexpr std::array kTokenStatistics = {"entropy", "top_probability", "log_probability"};

/// The model's layer number, two digits or more.
[[nodiscard]] inline std::string layer_name(std::int64_t layer) {
  return (layer < 10 ? "0" : "") + std::to_string(layer);
}
[[nodiscard]] inline std::string layer_group(std::int64_t layer) {
  return "/layer/" + layer_name(layer);
}
[[nodiscard]] inline std::string layer_path(std::int64_t layer, const std::string& name) {
  return layer_group(layer) + "/" + name;
}
[[nodiscard]] inline std::string adapter_group(std::int64_t layer) {
  return "/adapter/" + layer_name(layer);
}
/// The data sets of a layer that hold vectors; the first three are in every trace.
inline constexpr std::array kVectorNames = {"key", "value", "query", "query_ahead",
                                            "attention_input"};
/// Data sets of a layer that hold OutputWeights: both, or none.
inline constexpr const char* kOutputSketch = "output_sketch";
inline constexpr const char* kResidualNorm = "residual_norm";
/// Attribute of a data set of vectors: SHA-256 of the SHA-256 of each head's rows, as 64 digits
/// each (of the only rows, where there are no heads).
inline constexpr const char* kVectorsSha256 = "sha256";
/// Whether the data set at `path` holds vectors, which have that checksum of their own.
[[nodiscard]] inline bool holds_vectors(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  return path.starts_with("/layer/") &&
         std::find(kVectorNames.begin(), kVectorNames.end(), name) != kVectorNames.end();
}
[[nodiscard]] inline std::string token_path(const std::string& name) {
  return "/tokens/" + name;
}

}  // namespace kvreplay
