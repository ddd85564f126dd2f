#include "sim/replay/experiment_request.hpp"

#include <gmock/gmock.h>

namespace kvreplay {
namespace {

TEST(ExperimentRequest, LaterSettingsWin) {
  const ExperimentRequest request{"first", {"system=quest", "device=emmc51", "seed=7"}};
  const Experiment experiment = request.load({"device=ufs40"});
  ASSERT_EQ(experiment.devices.size(), 1U);
  EXPECT_EQ(experiment.devices.front().name, "ufs40");
  EXPECT_EQ(experiment.systems.front().name, "quest");
  EXPECT_EQ(experiment.cells.front().seed, 7U);
}

}  // namespace
}  // namespace kvreplay
