// Measurements of a device: the JSON of `device probe`, or of fio.

#include "devices/calibration/measured_points.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/fuzz_targets.hpp"

int kvreplay::fuzz::measurement_target(const std::uint8_t* data, std::size_t size) {
  return kvreplay::fuzz::expect_user_error([&] {
    const kvreplay::fuzz::InputFile file(data, size);
    (void)kvreplay::load_measured_points(file.path());
  });
}
