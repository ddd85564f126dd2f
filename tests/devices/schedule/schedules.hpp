#pragma once

#include <vector>

#include "base/random.hpp"
#include "devices/schedule/schedule.hpp"

namespace kvreplay::test {

struct ScheduleShape {
  std::size_t steps = 5;
  std::uint32_t block = 4096;
  std::uint64_t space_bytes = 8 << 20;
  double write_share = 0.3;
  std::int64_t max_compute_ns = 200'000;
};

/// Steps of random operations. Waits are for any batch, including batches that were waited for
/// before.
inline Schedule random_schedule(const ScheduleShape& shape, std::uint64_t seed) {
  Random random(seed);
  constexpr std::uint32_t kMaxBlocks = 8;
  Schedule schedule({shape.block, kMaxBlocks * shape.block, 4}, "random");
  for (std::size_t step = 0; step < shape.steps; ++step) {
    schedule.begin_step();
    for (std::uint64_t operations = random.below(12); operations > 0; --operations) {
      switch (random.below(3)) {
        case 0: {
          std::vector<IoCommand> batch(1 + random.below(9));
          for (IoCommand& command : batch) {
            command.bytes = static_cast<std::uint32_t>(1 + random.below(kMaxBlocks)) * shape.block;
            const std::uint64_t places = (shape.space_bytes - command.bytes) / shape.block + 1;
            command.offset = random.below(places) * shape.block;
            command.write = random.uniform() < shape.write_share;
          }
          schedule.submit(batch);
          break;
        }
        case 1:
          if (schedule.batches() == 0) break;
          schedule.wait(static_cast<std::int64_t>(random.below(schedule.batches())));
          break;
        case 2:
          schedule.compute(static_cast<std::int64_t>(
              random.below(static_cast<std::uint64_t>(shape.max_compute_ns))));
          break;
      }
    }
  }
  return schedule;
}

inline Schedule ten_steps_of_six_reads() {
  Schedule schedule({4096, 4096, 4}, "test");
  for (std::uint64_t step = 0; step < 10; ++step) {
    schedule.begin_step();
    std::vector<IoCommand> commands;
    for (std::uint64_t i = 0; i < 6; ++i) commands.push_back({(6 * step + i) * 4096, 4096, false});
    schedule.wait(schedule.submit(commands));
  }
  return schedule;
}

}  // namespace kvreplay::test
