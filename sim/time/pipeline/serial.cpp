#include "sim/time/pipeline/pipeline.hpp"

namespace kvreplay {
namespace {

/// Each layer selects with its own query, reads, then attends. The processor waits for every read.
class Serial final : public Pipeline {
 public:
  StepTask step(Machine& machine) const override {
    using enum Kernels;
    using enum TransferKind;
    for (std::size_t i = 0; i < machine.layers(); ++i) {
      co_await machine.compute(kProject | kScore, i);
      machine.start(kReads, i);
      co_await machine.wait(kReads, i);
      co_await machine.compute(kAttend, i);
      co_await machine.wait(kWrites, i);
      machine.start(kWrites, i);
    }
    co_await machine.compute_head();
  }

  [[nodiscard]] std::int64_t read_buffers() const override { return 1; }
};

const Registered<Pipeline> kSerial{{
    .name = "serial",
    .help = "each layer selects, reads, then attends; nothing overlaps but writes",
    .source = "ours: the order of Quest's and ClusterKV's decode step",
    .parameters = {},
    .make = [](const Arguments&, const Pipeline::Context&) { return std::make_unique<Serial>(); },
}};

}  // namespace
}  // namespace kvreplay
