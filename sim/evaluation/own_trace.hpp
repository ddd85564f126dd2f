#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "policies/decide/decide.hpp"
#include "sim/models/model_file.hpp"
#include "sim/models/model_text.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

/// Whether the trace was recorded from this very text. Matrices computed from it look better than
/// they would on another text.
[[nodiscard]] bool is_trace_of(const std::string& trace, const ModelText& text);

struct OwnTraceOptions {
  std::string folder{};         ///< where the trace is kept while it is used
  std::string adapter_trace{};  ///< a recording of another text by the same model; "" = none
  std::int64_t prompt_tokens = 0;
  std::int64_t steps = 0;
  int threads = 1;
};

/// A trace of the text's first tokens, with the matrices of the adapter trace where one is given.
/// Both loops take their adapters from it. The file is removed at the end.
class OwnTrace {
 public:
  OwnTrace(const Model& model, const ModelText& text, const OwnTraceOptions& options);
  ~OwnTrace();
  OwnTrace(const OwnTrace&) = delete;
  OwnTrace& operator=(const OwnTrace&) = delete;

  [[nodiscard]] const TraceReader& trace() const { return *trace_; }
  /// Where a system needs a matrix and there is no adapter trace, throws an error that names the
  /// missing option.
  [[nodiscard]] const AdapterSource& adapters() const { return *adapters_; }

 private:
  std::string file_;
  std::unique_ptr<TraceReader> trace_;
  std::shared_ptr<const AdapterSource> adapters_;
};

}  // namespace kvreplay
