// What the two sides of a connection to an agent read from each other: frames and messages.

#include <nlohmann/json.hpp>
#include <vector>

#include "devices/remote/frame.hpp"
#include "devices/remote/messages.hpp"
#include "devices/schedule/schedule_measurement.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/fuzz_targets.hpp"

namespace {

kvreplay::Schedule two_reads() {
  kvreplay::Schedule schedule({4096, 4096, 4}, "fuzz");
  schedule.begin_step();
  const std::vector<kvreplay::IoCommand> commands{{0, 4096, false}, {4096, 4096, false}};
  schedule.wait(schedule.submit(commands));
  return schedule;
}

void take(const std::string& payload) {
  using kvreplay::fuzz::expect_user_error;
  static const kvreplay::Schedule schedule = two_reads();
  expect_user_error([&] {
    (void)kvreplay::parse_probe_request(kvreplay::ConfigNode::parse(payload, "message"));
  });
  expect_user_error([&] {
    (void)kvreplay::parse_replay_request(kvreplay::ConfigNode::parse(payload, "message"));
  });
  expect_user_error(
      [&] { (void)kvreplay::parse_probe_end(kvreplay::ConfigNode::parse(payload, "message")); });
  expect_user_error([&] {
    kvreplay::check_measurement(kvreplay::parse_schedule_measurement(payload, "message"), schedule,
                                0, 0, "message");
  });
  expect_user_error([&] {
    const auto event = kvreplay::parse_event(payload);
    if (event.contains("setting")) kvreplay::check_setting(event["setting"], "message");
    if (!event.contains("part")) return;
    const kvreplay::ReplayPart part = kvreplay::parse_replay_part(event["part"], "message");
    kvreplay::check_measurement(part.measured, schedule, 0, part.first_request, "message");
    kvreplay::ScheduleMeasurement so_far;
    kvreplay::add_part(part, "message", so_far);
  });
}

}  // namespace

int kvreplay::fuzz::agent_target(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = kvreplay::fuzz::text_of(data, size);
  return kvreplay::fuzz::expect_user_error([&] {
    take(std::string(bytes));
    kvreplay::FrameDecoder decoder;
    // In the pieces in which a pipe may hand it over.
    for (std::size_t begin = 0; begin < bytes.size(); begin += 7) {
      decoder.feed(bytes.substr(begin, 7));
      while (const auto payload = decoder.next()) take(*payload);
    }
  });
}
