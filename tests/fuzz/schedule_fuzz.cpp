// Schedules of `kvreplay device schedule`.

#include "devices/schedule/schedule.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/fuzz_targets.hpp"

int kvreplay::fuzz::schedule_target(const std::uint8_t* data, std::size_t size) {
  return kvreplay::fuzz::expect_user_error([&] {
    const std::string text(kvreplay::fuzz::text_of(data, size));
    const kvreplay::Schedule schedule = kvreplay::Schedule::parse(text, "fuzz.schedule");
    // What was read is what would be written, and means the same.
    const std::string written = schedule.text();
    if (kvreplay::Schedule::parse(written, "written").text() != written) std::abort();
    (void)schedule.first_steps(1).space_bytes();
  });
}
