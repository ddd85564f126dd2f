// What libFuzzer calls: the target of this program, whose name the build gives.

#include "tests/fuzz/fuzz_targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return kvreplay::fuzz::KVREPLAY_FUZZ_TARGET(data, size);
}
