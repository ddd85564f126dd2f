#include "sim/evaluation/own_trace.hpp"

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "policies/adapters/adapt.hpp"
#include "policies/decide/trace_adapters.hpp"
#include "sim/models/record.hpp"

namespace kvreplay {
namespace {

/// Throws for a system that needs a matrix where no trace was given to compute it from.
class NoAdapters final : public AdapterSource {
 public:
  [[nodiscard]] Adapter adapter(std::int64_t, const std::string& name) const override {
    throw UserError({"--adapter-trace", ""}, "not given, but a system needs " + name,
                    "a recording of another text by the same model, with all layers");
  }
};

}  // namespace

bool is_trace_of(const std::string& trace, const ModelText& text) {
  return !text.sha256.empty() && TraceReader(trace).info().text_sha256 == text.sha256;
}

OwnTrace::OwnTrace(const Model& model, const ModelText& text, const OwnTraceOptions& options)
    : file_(options.folder + "/own.kvtrace.h5") {
  RecordOptions record{.ids = text.ids,
                       .prompt_tokens = options.prompt_tokens,
                       .steps = options.steps,
                       .threads = options.threads,
                       .text_source = text.source,
                       .text_sha256 = text.sha256,
                       .created_utc = "1970-01-01T00:00:00Z"};
  record.query_window = std::min(record.query_window, options.prompt_tokens);
  record_trace(model, record, file_);
  if (options.adapter_trace.empty()) {
    trace_ = std::make_unique<TraceReader>(file_);
    adapters_ = std::make_shared<NoAdapters>();
    return;
  }
  const std::string plain = file_ + ".plain";
  std::filesystem::rename(file_, plain);
  const std::int64_t rank = std::min<std::int64_t>(48, model.architecture().kv_size());
  adapt_trace(TraceReader(options.adapter_trace), TraceReader(plain), {.rank = rank}, file_);
  std::filesystem::remove(plain);
  trace_ = std::make_unique<TraceReader>(file_);
  adapters_ = std::make_shared<TraceAdapters>(*trace_);
}

OwnTrace::~OwnTrace() {
  std::error_code ignored;
  std::filesystem::remove(file_, ignored);
}

}  // namespace kvreplay
