// Outputs of stages as a store keeps them: a plan, a timing, means by layer, as the first byte
// says. std::logic_error is what bytes give that nobody wrote: they count as absent.

#include <stdexcept>

#include "policies/decide/layer_means.hpp"
#include "policies/place/io_plan_bytes.hpp"
#include "sim/time/timing_bytes.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/fuzz_targets.hpp"

int kvreplay::fuzz::stored_target(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes = kvreplay::fuzz::text_of(data + 1, size - 1);
  try {
    switch (data[0] % 3) {
      case 0: {
        const kvreplay::IoPlan plan = kvreplay::plan_from(bytes);
        for (const kvreplay::LayerPlan& layer : plan.layers) {
          for (std::int64_t step = 0; step < plan.steps; ++step) {
            (void)layer.io.reads_at(step);
            (void)layer.io.writes_at(step);
          }
        }
        break;
      }
      case 1:
        (void)kvreplay::timing_from(bytes);
        break;
      default:
        (void)kvreplay::layer_means_from(bytes);
    }
  } catch (const std::logic_error&) {
    return 0;
  }
  return 0;
}
