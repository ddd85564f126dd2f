#pragma once

#include <string>

#include "policies/decide/scoring/scoring.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

/// The adapters that a trace carries. The trace must outlive this object.
class TraceAdapters final : public AdapterSource {
 public:
  explicit TraceAdapters(const TraceReader& trace) : trace_(trace) {}
  [[nodiscard]] Adapter adapter(std::int64_t layer, const std::string& name) const override;

 private:
  const TraceReader& trace_;
};

}  // namespace kvreplay
