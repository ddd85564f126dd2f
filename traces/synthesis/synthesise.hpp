#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "traces/operations/head_statistics.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

class Progress;

/// The properties of a synthetic trace. Those not set are taken from the source.
struct SynthesisOptions {
  /// The source's layer numbers to learn from; empty = all. Layer i of the synthetic trace follows
  /// the i-th of them, repeating from the first when there are more.
  std::vector<std::int64_t> like_layers = {};
  std::optional<std::int64_t> layers = std::nullopt;
  std::optional<std::int64_t> query_heads = std::nullopt;
  std::optional<std::int64_t> kv_heads = std::nullopt;
  std::optional<std::int64_t> head_dim = std::nullopt;
  std::optional<std::int64_t> prompt_tokens = std::nullopt;
  std::optional<std::int64_t> decode_steps = std::nullopt;
  std::optional<std::string> dtype = std::nullopt;
  std::int64_t query_window = 64;  ///< prompt positions before the first step that have a query
  std::optional<std::int64_t> clusters = std::nullopt;  ///< per KV head; none = fitted
  double drift = 1;  ///< factor on the fitted wandering of clusters
  std::optional<double> splits_per_1000_tokens = std::nullopt;  ///< none = fitted
  std::uint64_t seed = 1;
  int threads = 1;
};

/// One query head: the recording against the generator's result at the recording's own length.
struct HeadFit {
  std::int64_t layer = 0;  ///< the source's number
  std::int64_t kv_head = 0;
  std::int64_t query_head = 0;
  HeadStatistics recorded;
  HeadStatistics synthetic;
};

/// What was learnt about the keys of one KV head.
struct KeyFit {
  std::int64_t layer = 0;
  std::int64_t kv_head = 0;
  std::int64_t clusters = 0;
  double between_share = 0;  ///< share of the keys' variance that lies between clusters, 0 to 1
  double stay = 0;           ///< probability of staying in a cluster beyond drawing it again
  double drift_share = 0;    ///< variance of the clusters' wandering / variance within them
  double splits_per_1000_tokens = 0;
};

struct SynthesisReport {
  std::string source;
  std::string source_sha256;
  std::int64_t measured_steps = 0;
  std::vector<KeyFit> keys;
  std::vector<HeadFit> heads;
};

/// A model of a recording's vectors, from which traces of any shape and length can be drawn.
///
/// Before RoPE, each KV head's keys are a mixture of clusters. A token stays in its predecessor's
/// cluster or draws one by its share; the cluster's centre wanders (a mean-reverting walk) and
/// splits; the remainder is Gaussian noise of the fitted covariance, correlated from token to
/// token. Values and queries work the same way, with means that depend on the token's cluster, so
/// that queries aim where their cluster's queries aimed. The first tokens, the sinks, keep their
/// recorded vectors. RoPE is applied last: local attention follows from it, as in a model. For each
/// query head, three numbers are then searched over runs of the generator at the recording's own
/// length: a temperature (entropy and top mass), a correlation (overlap from step to step), and a
/// shift towards the sinks (their mass).
class Synthesiser {
 public:
  /// Fits the model. Throws UserError when the source cannot be used (scaled RoPE, a layer it
  /// lacks, options out of range). `progress` advances once per (layer, KV head) of the source.
  Synthesiser(const TraceReader& source, SynthesisOptions options, Progress* progress = nullptr);
  ~Synthesiser();
  Synthesiser(const Synthesiser&) = delete;
  Synthesiser& operator=(const Synthesiser&) = delete;

  /// Progress units of the fit and of write().
  [[nodiscard]] static std::int64_t fit_work(const TraceReader& source,
                                             const SynthesisOptions& options);
  [[nodiscard]] std::int64_t write_work() const;

  [[nodiscard]] const TraceInfo& info() const;
  /// The approximate size of the synthetic trace's file.
  [[nodiscard]] std::int64_t file_bytes() const;
  [[nodiscard]] const SynthesisReport& report() const;

  /// Writes the trace in pieces: memory does not depend on its length. The same options give the
  /// same bytes on any number of threads.
  void write(const std::string& out, Progress* progress = nullptr) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// For people: one row per layer and KV head, with means over its query heads.
[[nodiscard]] std::string to_text(const SynthesisReport& report);

}  // namespace kvreplay
