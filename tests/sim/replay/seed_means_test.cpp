#include "sim/replay/seed_means.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/number_text.hpp"

namespace kvreplay {
namespace {

using testing::HasSubstr;

CellResult cell(const std::string& system, std::int64_t seed, double mass) {
  CellResult made;
  made.trace = "t";
  made.system = system;
  made.settings = {{"experiment.seed", Value(seed)}};
  made.quality.attention_mass = mass;
  StepTiming step;
  step.latency_ns = 2'000'000;
  made.timing.steps = {step};
  return made;
}

TEST(SeedMeans, GroupWhatDiffersInTheSeedAlone) {
  const std::vector<CellResult> cells{cell("a", 1, 0.8), cell("b", 1, 0.5), cell("a", 2, 0.9),
                                      cell("b", 2, 0.5), cell("a", 3, 0.7), cell("b", 3, 0.5)};
  EXPECT_TRUE(has_several_seeds(cells));
  EXPECT_FALSE(has_several_seeds(std::vector<CellResult>{cells[0], cells[1]}));
  const std::string table = seeds_table(cells);
  // The standard deviation is 0.1; t of 2 degrees of freedom is 4.303.
  EXPECT_THAT(table, HasSubstr("0.8000 +- " + fixed_text(4.303 * 0.1 / std::sqrt(3.0), 4)));
  EXPECT_THAT(table, HasSubstr("0.5000 +- 0.0000"));
  EXPECT_THAT(table, HasSubstr("2.00 +- 0.00"));
  const std::string csv = seeds_csv(cells);
  EXPECT_THAT(csv, testing::StartsWith("trace,model,platform,device,system,batch,seeds,"));
  EXPECT_THAT(csv, HasSubstr("attention_mass,attention_mass_interval"));
  EXPECT_THAT(csv, HasSubstr("\nt,,,,a,1,3,"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
}

}  // namespace
}  // namespace kvreplay
