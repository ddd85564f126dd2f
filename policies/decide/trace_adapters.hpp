#pragma once

#include <string>
#include <utility>

#include "policies/decide/scoring/scoring.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

/// Throws UserError unless the trace is of the model that `model` describes: its layers, heads,
/// head size, form of keys, and either its weights or, where these were stored in another form, its
/// name.
void check_adapters_fit(const TraceReader& trace, const TraceInfo& model);

/// The adapters that a trace carries, for a system, which errors name. The trace must outlive this
/// object.
class TraceAdapters final : public AdapterSource {
 public:
  TraceAdapters(const TraceReader& trace, std::string system)
      : trace_(trace), system_(std::move(system)) {}
  [[nodiscard]] Adapter adapter(std::int64_t layer, const std::string& name) const override;

 private:
  const TraceReader& trace_;
  std::string system_;
};

}  // namespace kvreplay
