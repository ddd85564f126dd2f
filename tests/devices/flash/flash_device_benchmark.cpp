#include <benchmark/benchmark.h>

#include <string>

#include "base/build_info.hpp"
#include "devices/calibration/measure.hpp"

namespace kvreplay {
namespace {

/// Simulated requests and events per second on one core, including the closed loop.
void simulate(benchmark::State& state, const std::string& preset, double write_share) {
  const DeviceSpec spec =
      DeviceSpec::load(source_folder() + "/configs/devices/" + preset + ".json");
  const Workload workload{.bytes = static_cast<std::uint64_t>(state.range(0)),
                          .depth = static_cast<std::uint32_t>(state.range(1)),
                          .requests = 20'000,
                          .write_share = write_share};
  double requests = 0;
  double events = 0;
  for (auto _ : state) {
    const Measurement result = measure(spec, workload);
    requests += static_cast<double>(result.requests + 2 * workload.depth - 1);
    events += static_cast<double>(result.events);
  }
  state.counters["requests"] = benchmark::Counter(requests, benchmark::Counter::kIsRate);
  state.counters["events"] = benchmark::Counter(events, benchmark::Counter::kIsRate);
}

BENCHMARK_CAPTURE(simulate, ufs40_read, "ufs40", 0.0)
    ->Args({4096, 1})
    ->Args({4096, 32})
    ->Args({24576, 32})
    ->Args({131072, 32});
BENCHMARK_CAPTURE(simulate, nvme_jetson_read, "nvme_jetson", 0.0)->Args({4096, 64});
BENCHMARK_CAPTURE(simulate, ufs40_mixed, "ufs40", 0.3)->Args({4096, 32});

}  // namespace
}  // namespace kvreplay
