#include "sim/time/pipeline/pipeline.hpp"

namespace kvreplay {
namespace {

/// There are two overlaps. Within a layer, its representatives are read during the Q projection,
/// and the groups that they select during the K and V projections. Between layers, the cached
/// groups of the next layer are read while a layer attends and runs its feed-forward part. The
/// cached groups of the first layer are read from the start of the step.
class TwoStage final : public Pipeline {
 public:
  explicit TwoStage(bool index_on_flash) : index_on_flash_(index_on_flash) {}

  StepTask step(Machine& machine) const override {
    using enum Kernels;
    using enum TransferKind;
    const std::size_t layers = machine.layers();
    machine.start(kCacheReads, 0);
    for (std::size_t i = 0; i < layers; ++i) {
      machine.start(kIndexReads, i);
      co_await machine.compute(kProjectQuery, i);
      co_await machine.wait(kIndexReads, i);
      co_await machine.compute(kScore, i);
      machine.start(kReads, i);
      co_await machine.compute(kProjectKeyValue, i);
      co_await machine.wait(kCacheReads, i);
      co_await machine.wait(kReads, i);
      if (i + 1 < layers) machine.start(kCacheReads, i + 1);
      co_await machine.compute(kAttend, i);
      co_await machine.wait(kWrites, i);
      machine.start(kWrites, i);
    }
    co_await machine.compute_head();
  }

  [[nodiscard]] bool index_on_flash() const override { return index_on_flash_; }
  [[nodiscard]] bool pages_cache() const override { return true; }
  [[nodiscard]] std::int64_t read_buffers() const override { return 1; }

 private:
  bool index_on_flash_;
};

const Registered<Pipeline> kTwoStage{{
    .name = "two_stage",
    .help = "representatives and groups are read under the projections, the next layer's cached "
            "groups under attention and feed-forward",
    .source = "DynaKV 5, the two pipelines",
    .parameters = {flag_parameter("index_on_flash", true,
                                  "representatives are read for each step; false: they stay in "
                                  "memory")},
    .make =
        [](const Arguments& arguments, const Pipeline::Context&) {
          return std::make_unique<TwoStage>(arguments.flag("index_on_flash"));
        },
}};

}  // namespace
}  // namespace kvreplay
