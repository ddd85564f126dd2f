#include <algorithm>

#include "sim/time/pipeline/pipeline.hpp"

namespace kvreplay {
namespace {

/// A layer's reads are selected and started when the computation of the layer `depth` before it
/// starts, so that the two overlap. The reads of the first layers start when the step begins.
class LayerPrefetch final : public Pipeline {
 public:
  explicit LayerPrefetch(std::int64_t depth) : depth_(static_cast<std::size_t>(depth)) {}

  StepTask step(Machine& machine) const override {
    using enum Kernels;
    using enum TransferKind;
    const std::size_t layers = machine.layers();
    std::size_t selected = 0;  // layers whose reads have been started
    for (std::size_t i = 0; i < layers; ++i) {
      for (; selected < std::min(i + depth_ + 1, layers); ++selected) {
        co_await machine.compute(kScore, selected);
        machine.start(kReads, selected);
      }
      co_await machine.compute(kProject, i);
      co_await machine.wait(kReads, i);
      co_await machine.compute(kAttend, i);
      co_await machine.wait(kWrites, i);
      machine.start(kWrites, i);
    }
    co_await machine.compute_head();
  }

  [[nodiscard]] bool selects_ahead() const override { return true; }
  [[nodiscard]] std::int64_t read_buffers() const override {
    return static_cast<std::int64_t>(depth_) + 1;
  }

 private:
  std::size_t depth_;
};

const Registered<Pipeline> kLayerPrefetch{{
    .name = "layer_prefetch",
    .help = "the reads of a layer overlap with the computation of the layers before it",
    .source = "KVSwap 3.3 (depth 1); FlexGen's overlapped schedule",
    .parameters = {integer_parameter("depth", "layers", 1, {1, 64},
                                     "how many layers ahead reads are started")},
    .make =
        [](const Arguments& arguments, const Pipeline::Context&) {
          return std::make_unique<LayerPrefetch>(arguments.integer("depth"));
        },
}};

}  // namespace
}  // namespace kvreplay
