// Access logs, and what reads them: stage 2 and the statistics of groups.

#include "policies/decide/group_statistics.hpp"
#include "policies/place/place.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/fuzz_targets.hpp"

namespace {

kvreplay::PlaceSpec simple_place() {
  return kvreplay::PlaceSpec::parse(kvreplay::ConfigNode::parse(
      R"({"cache": {"part": "lru", "capacity_groups": 4}, "layout": {"part": "grouped"}})",
      "fuzz.json"));
}

}  // namespace

int kvreplay::fuzz::access_log_target(const std::uint8_t* data, std::size_t size) {
  static const kvreplay::PlaceSpec spec = simple_place();
  return kvreplay::fuzz::expect_user_error([&] {
    const kvreplay::fuzz::InputFile file(data, size);
    const kvreplay::AccessLog log = kvreplay::read_access_log(file.path());
    for (const kvreplay::LayerLog& layer : log.layers) {
      for (const kvreplay::StreamLog& stream : layer.streams) {
        (void)kvreplay::hot_groups(stream, 0.8);
        (void)kvreplay::attended_in_page(stream, 16);
        (void)kvreplay::reencoded_tokens(stream, log.prompt_tokens + log.steps);
      }
    }
    (void)kvreplay::place(log, spec,
                          {std::ssize(log.layers), log.query_heads, log.kv_heads, log.head_dim});
  });
}
