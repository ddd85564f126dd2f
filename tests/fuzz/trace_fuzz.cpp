// Traces: attributes, shapes and offsets of an HDF5 file that may say anything.

#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/fuzz_targets.hpp"
#include "traces/trace.hpp"

int kvreplay::fuzz::trace_target(const std::uint8_t* data, std::size_t size) {
  return kvreplay::fuzz::expect_user_error([&] {
    const kvreplay::fuzz::InputFile file(data, size);
    const kvreplay::TraceReader trace(file.path());
    for (std::int64_t i = 0; i < std::ssize(trace.info().recorded_layers); ++i) {
      (void)trace.load_layer(i);
    }
    trace.verify();
  });
}
