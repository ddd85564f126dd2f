#include "policies/decide/trace_adapters.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "traces/trace_paths.hpp"

namespace kvreplay {

void check_adapters_fit(const TraceReader& trace, const TraceInfo& model) {
  const auto shape = [](const TraceInfo& info) {
    return std::to_string(info.layers) + " layers " + std::to_string(info.query_heads) + "/" +
           std::to_string(info.kv_heads) + "x" + std::to_string(info.head_dim);
  };
  const TraceInfo& own = trace.info();
  const auto refuse = [&](const std::string& found, const std::string& wanted) {
    throw UserError({"--adapters", ""},
                    trace.file() + " is of " + own.model + ", " + found + ", where " + model.model +
                        " has " + wanted,
                    "a trace of the model that is run");
  };
  if (shape(own) != shape(model)) refuse(shape(own), shape(model));
  if (own.key_state != model.key_state) refuse("keys " + own.key_state, model.key_state);
  if (own.weights_sha256 != model.weights_sha256 && own.model != model.model) {
    refuse("weights_sha256 " + own.weights_sha256, model.weights_sha256);
  }
}

Adapter TraceAdapters::adapter(std::int64_t layer, const std::string& name) const {
  const std::vector<std::int64_t>& recorded = trace_.info().recorded_layers;
  const auto index = std::find(recorded.begin(), recorded.end(), layer) - recorded.begin();
  if (index == std::ssize(recorded)) {
    throw UserError({trace_.file(), adapter_group(layer)},
                    "there is no such layer, which " + system_ + " needs an adapter of",
                    "a trace of every layer of this model (`kvreplay record` without --layers)");
  }
  std::optional<Adapter> found = trace_.load_adapter(index, name);
  if (!found) {
    throw UserError(
        {trace_.file(), adapter_group(layer) + "/" + name},
        "there is no such adapter, which " + system_ + " needs",
        "a trace of `kvreplay record --adapt-text OTHER.txt`, or one that `kvreplay adapt` "
        "made: kvreplay adapt OTHER.kvtrace.h5 " +
            std::filesystem::path(trace_.file()).filename().string() + " NEW.kvtrace.h5");
  }
  return std::move(*found);
}

}  // namespace kvreplay
