#include "policies/trace_adapters.hpp"

#include <algorithm>
#include <optional>

namespace kvreplay {

Adapter TraceAdapters::adapter(std::int64_t layer, const std::string& name) const {
  const std::vector<std::int64_t>& recorded = trace_.info().recorded_layers;
  const auto index = std::find(recorded.begin(), recorded.end(), layer) - recorded.begin();
  std::optional<Adapter> found = trace_.load_adapter(index, name);
  if (!found) {
    const std::string number = (layer < 10 ? "0" : "") + std::to_string(layer);
    throw UserError({trace_.file(), "/adapter/" + number + "/" + name},
                    "there is no such adapter, which a system's scoring needs",
                    "a trace to which the adapter was added");
  }
  return std::move(*found);
}

}  // namespace kvreplay
