#include "sim/replay/system.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

namespace kvreplay {
namespace {

TEST(SystemStages, EveryMemberIsOfTheStageOfItsRole) {
  const auto stage = SystemSpec::stage_of;
  EXPECT_EQ(stage("stream"), Stage::kDecide);
  EXPECT_EQ(stage("scoring"), Stage::kDecide);
  EXPECT_EQ(stage("layout"), Stage::kPlace);
  EXPECT_EQ(stage("pipeline"), Stage::kTime);
  EXPECT_EQ(stage("device"), std::nullopt) << "no member of a system";
  for (const std::string& role : SystemSpec::roles()) {
    for (const auto& [name, part] : part_catalogue()) {
      if (part.role != role) continue;
      EXPECT_EQ(part.stage, stage(role)) << role;
    }
  }
  EXPECT_TRUE(std::ranges::is_sorted(SystemSpec::roles(), {}, stage)) << "stage after stage";
}

TEST(SystemStages, EveryRoleButRealIoHasOne) {
  for (const auto& [name, part] : part_catalogue()) {
    if (part.role == "io_engine") {
      EXPECT_EQ(part.stage, std::nullopt);
    } else {
      EXPECT_TRUE(part.stage.has_value() || part.role.starts_with("test ")) << part.role;
    }
  }
}

}  // namespace
}  // namespace kvreplay
