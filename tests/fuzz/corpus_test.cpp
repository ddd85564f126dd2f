// The fuzz targets without a fuzzer: every seed, among them all inputs that were once found, and
// some random changes of each.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/build_info.hpp"
#include "base/files.hpp"
#include "base/random.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/fuzz_targets.hpp"

namespace kvreplay::fuzz {
namespace {

struct NamedTarget {
  const char* name;
  int (*run)(const std::uint8_t* data, std::size_t size);
};

constexpr NamedTarget kTargets[] = {
    {"access_log", access_log_target},
    {"agent", agent_target},
    {"config", config_target},
    {"io_log", io_log_target},
    {"measurement", measurement_target},
    {"model_file", model_file_target},
    {"plugin_options", plugin_options_target},
    {"schedule", schedule_target},
    {"settings", settings_target},
    {"stored", stored_target},
    {"trace", trace_target},
};

class FuzzCorpus : public ::testing::TestWithParam<NamedTarget> {
 protected:
  static void run(const std::string& bytes) {
    EXPECT_EQ(GetParam().run(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()), 0);
  }
};

void change(std::string& bytes, Random& random) {
  if (bytes.empty()) return;
  const std::size_t at = random.below(bytes.size());
  switch (random.below(4)) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
      break;
    case 1:
      bytes[at] = static_cast<char>(random.below(256));
      break;
    case 2:
      bytes.erase(at, 1 + random.below(8));
      break;
    default:
      bytes.insert(at, bytes, at, 1 + random.below(8));
  }
}

int number_of(const char* variable, int otherwise) {
  const char* const given = std::getenv(variable);
  return given == nullptr ? otherwise : std::atoi(given);
}

std::string changed(std::string bytes, Random& random) {
  for (std::uint64_t count = 1 + random.below(4); count > 0; --count) change(bytes, random);
  return bytes;
}

// FUZZ_CHANGES=N takes more changes per seed; FUZZ_SECONDS=N goes on with changes of any seed.
TEST_P(FuzzCorpus, IsReadOrRefused) {
  const int changes = number_of("FUZZ_CHANGES", 100);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::seconds(number_of("FUZZ_SECONDS", 0));
  const std::filesystem::path folder =
      std::filesystem::path(source_folder()) / "tests/fuzz/corpus" / GetParam().name;
  std::vector<std::string> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    seeds.push_back(entry.path().string());
  }
  ASSERT_FALSE(seeds.empty());
  std::sort(seeds.begin(), seeds.end());
  run("");
  const std::string name = GetParam().name;
  bool one_is_sound =
      name == "agent" || name == "stored";  // which try several readers of each input
  Random random(1);
  for (const std::string& seed : seeds) {
    SCOPED_TRACE(seed);
    const std::string bytes = read_text_file(seed, "a seed");
    const int before = refusals;
    run(bytes);
    one_is_sound = one_is_sound || refusals == before;
    for (int i = 0; i < changes; ++i) run(changed(bytes, random));
  }
  while (std::chrono::steady_clock::now() < end && !HasFailure()) {
    const std::string& seed = seeds[random.below(seeds.size())];
    SCOPED_TRACE(seed);
    run(changed(read_text_file(seed, "a seed"), random));
  }
  EXPECT_TRUE(one_is_sound) << "every seed is refused: is its format an old one?";
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzCorpus, ::testing::ValuesIn(kTargets),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace kvreplay::fuzz
