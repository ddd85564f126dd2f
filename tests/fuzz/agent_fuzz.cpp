// What the two sides of a connection to an agent read from each other: frames and messages.

#include <nlohmann/json.hpp>

#include "devices/remote/frame.hpp"
#include "devices/remote/messages.hpp"
#include "devices/schedule/schedule_measurement.hpp"
#include "tests/fuzz/fuzz_input.hpp"

namespace {

void take(const std::string& payload) {
  using kvreplay::fuzz::expect_user_error;
  expect_user_error([&] {
    (void)kvreplay::parse_probe_request(kvreplay::ConfigNode::parse(payload, "message"));
  });
  expect_user_error([&] {
    (void)kvreplay::parse_replay_request(kvreplay::ConfigNode::parse(payload, "message"));
  });
  expect_user_error(
      [&] { (void)kvreplay::parse_probe_end(kvreplay::ConfigNode::parse(payload, "message")); });
  expect_user_error([&] { (void)kvreplay::parse_schedule_measurement(payload, "message"); });
  const auto json = nlohmann::ordered_json::parse(payload, nullptr, false);
  if (json.is_discarded()) return;
  expect_user_error([&] { (void)kvreplay::parse_replay_part(json, "message"); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
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
