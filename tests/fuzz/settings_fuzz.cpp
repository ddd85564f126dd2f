// --set: each line of the input is one KEY=VALUE for the experiment that ships as the first.

#include <sstream>
#include <vector>

#include "sim/replay/experiment_request.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "tests/fuzz/fuzz_targets.hpp"

int kvreplay::fuzz::settings_target(const std::uint8_t* data, std::size_t size) {
  kvreplay::ExperimentRequest request{.experiment = "first"};
  std::istringstream lines{std::string(kvreplay::fuzz::text_of(data, size))};
  for (std::string line; std::getline(lines, line) && request.sets.size() < 8;) {
    request.sets.push_back(line);
  }
  return kvreplay::fuzz::expect_user_error([&] { (void)request.load().resolved(); });
}
