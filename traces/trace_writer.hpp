#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/half.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

/// The vectors of a layer, by their names in the file.
enum class LayerTensor { kKey, kValue, kQuery, kQueryAhead, kAttentionInput };

/// Writes a .kvtrace.h5 file in pieces, so that no data set need be held whole. The file appears
/// under its name, complete, with finish(), and otherwise not at all. A write failure (full disk,
/// no permission) is a UserError; writing more or less than `info` says is a std::logic_error. The
/// same calls give the same bytes.
class TraceWriter {
 public:
  /// How the layers' vectors are stored.
  enum class Storage {
    kMapped,   ///< contiguous: a reader uses f16 vectors in place
    kArchive,  ///< chunks with shuffle and gzip: an eighth smaller, read into memory
  };

  /// The parts of the file's shape that TraceInfo does not give.
  struct Queries {
    std::int64_t start = 0;        ///< position of the first query: at most prompt_tokens
    bool ahead = false;            ///< the layers hold query_ahead too
    bool attention_input = false;  ///< and attention_input, at the queries' positions
  };

  /// `info` describes the file.
  TraceWriter(const std::string& path, const TraceInfo& info, Queries queries,
              Storage storage = Storage::kMapped);
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  /// Each [tokens]: statistics of the next-token distribution at each position, natural log.
  void write_tokens(std::span<const std::int32_t> ids, std::span<const float> entropy,
                    std::span<const float> top_probability, std::span<const float> log_probability);

  /// Appends `rows` ([n, head_dim], row-major, any n) to the head's rows of recorded layer `index`.
  /// Keys and values start at position 0, the others at Queries::start. attention_input belongs to
  /// head 0, and its rows are [n, hidden_size]. For dtype "f16".
  void append(std::int64_t index, LayerTensor tensor, std::int64_t head,
              std::span<const Half> rows);
  /// The same, rounded to the file's dtype. A magnitude that does not fit is a UserError.
  void append(std::int64_t index, LayerTensor tensor, std::int64_t head,
              std::span<const float> rows);

  /// Writes the weights of recorded layer `index`; a trace may lack them.
  void write_output_weights(std::int64_t index, const OutputWeights& weights);

  /// Writes /adapter/NN/`name` of recorded layer `index`.
  void write_adapter(std::int64_t index, const std::string& name, const Adapter& adapter);

  /// Checks that every row was written, marks the file complete and gives it its name.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvreplay
