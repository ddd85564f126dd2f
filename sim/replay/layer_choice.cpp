#include "sim/replay/layer_choice.hpp"

#include <cstdint>
#include <set>
#include <utility>

#include "base/error.hpp"

namespace kvreplay {
namespace {

std::string window_text(std::int64_t window) {
  return window == 0 ? "all tokens" : "the latest " + std::to_string(window) + " tokens";
}

}  // namespace

std::vector<WindowedLayer> layers_for(const ModelSpec& model,
                                      std::span<const WindowedLayer> recorded,
                                      const std::string& trace) {
  if (!model.has_windows()) return {recorded.begin(), recorded.end()};
  std::set<WindowedLayer> chosen;
  for (const KvShape& kind : model.kv_kinds()) {
    const std::int64_t window = *kind.sliding_window;
    std::vector<WindowedLayer> followed;
    std::vector<WindowedLayer> narrowed;
    for (const WindowedLayer& layer : recorded) {
      const std::int64_t own = layer.sliding_window;
      if (own == window) followed.push_back(layer);
      if (window > 0 && (own == 0 || own > window)) narrowed.push_back({layer.index, window});
    }
    if (followed.empty()) followed = std::move(narrowed);
    if (followed.empty()) {
      std::set<std::int64_t> windows;
      for (const WindowedLayer& layer : recorded) windows.insert(layer.sliding_window);
      std::string found;
      for (const std::int64_t of_trace : windows) {
        found += (found.empty() ? "" : " and ") + window_text(of_trace);
      }
      throw UserError(model.arguments.place("sliding_window"),
                      "has layers that see " + window_text(window) + ", but " + trace +
                          " was recorded from layers that see " + found,
                      "windows no wider than recorded ones, or a trace with a layer that sees " +
                          window_text(window));
    }
    chosen.insert(followed.begin(), followed.end());
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace kvreplay
