#include "sim/time/pipeline/pipeline.hpp"

namespace kvreplay {
namespace {

/// Selection with the layer's own query, then its reads, then its attention: the processor waits
/// for every read.
class Serial final : public Pipeline {
 public:
  Process step(Machine& machine) override {
    for (std::size_t i = 0; i < machine.layers(); ++i) {
      const LayerWork& work = machine.layer(i);
      co_await machine.compute(work.project_ns + work.score_ns, {"project, score", i});
      machine.start_reads(i);
      co_await machine.reads(i);
      co_await machine.compute(work.attend_ns, {"attend, feed forward", i});
      co_await machine.writes(i);
      machine.start_writes(i);
    }
    co_await machine.compute(machine.step().head_ns, {"LM head"});
  }

  [[nodiscard]] std::int64_t landing_buffers() const override { return 1; }
};

const Registered<Pipeline> kRegistered{{
    .name = "serial",
    .help = "each layer selects, reads, then attends; nothing overlaps but writes",
    .source = "ours: the order of Quest's and ClusterKV's decode step",
    .parameters = {},
    .make = [](const Arguments&, const Pipeline::Context&) { return std::make_unique<Serial>(); },
}};

}  // namespace
}  // namespace kvreplay
