#include "sim/tuning/tuning.hpp"

#include <gmock/gmock.h>

#include <array>

#include "sim/tuning/tuning_report.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

TunedRow row(const std::string& name, Objectives objectives, bool reference = false,
             double violation = 0) {
  TunedRow made;
  made.name = name;
  made.reference = reference;
  made.reached = objectives;
  made.score = {objectives, violation};
  return made;
}

/// Quality lost, latency, DRAM: two references, and three that were found.
Tuning five_rows() {
  Tuning tuning;
  tuning.rows = {row("slow", {0.10, 9, 400}, true), row("out", {0.01, 1, 100}, true, 0.5),
                 row("fast", {0.20, 2, 300}), row("faithful", {0.05, 8, 350}),
                 row("middle", {0.10, 3, 320})};
  return tuning;
}

std::vector<std::string> front_of(const Tuning& tuning) {
  std::vector<std::string> names;
  for (const TunedRow& one : tuning.rows) {
    if (one.on_front) names.push_back(one.name);
  }
  return names;
}

TEST(Judge, MarksTheFrontOfWhatMeetsTheLimits) {
  Tuning tuning = five_rows();
  judge(tuning, "latency");
  // "middle" is no worse than "slow" in anything; "out" is best in all, and misses the limits.
  EXPECT_THAT(front_of(tuning), testing::ElementsAre("fast", "faithful", "middle"));
}

TEST(Judge, EachRulePicksItsOwn) {
  for (const auto& [rule, best] : {std::pair{"latency", "fast"},
                                   {"quality", "faithful"},
                                   // Of the ranges 0.15, 6 and 50: (1/3, 1/6, 2/5).
                                   {"balance", "middle"},
                                   {"auto", "middle"}}) {
    Tuning tuning = five_rows();
    judge(tuning, rule);
    EXPECT_EQ(tuning.rows[tuning.best].name, best) << rule;
    EXPECT_FALSE(tuning.best_reason.empty());
  }
  EXPECT_THAT(best_rules(), testing::UnorderedElementsAre("auto", "latency", "quality", "balance"));
}

TEST(Judge, EqualRowsAreOnTheFrontOnce) {
  Tuning tuning;
  tuning.rows = {row("first", {0.1, 4, 300}), row("again", {0.1, 4, 300}),
                 row("ships", {0.2, 3, 200}, true), row("like it", {0.2, 3, 200}),
                 row("other", {0.3, 2, 100})};
  judge(tuning, "latency");
  EXPECT_THAT(front_of(tuning), testing::ElementsAre("first", "ships", "other"));
  // Where memory has a limit, it is not minimised, and less of it decides between equals.
  tuning.goal.max_dram_bytes = 400;
  for (TunedRow& one : tuning.rows) one.score.objectives[kDram] = 0;
  tuning.rows[1].reached[kDram] = 250;
  judge(tuning, "latency");
  EXPECT_THAT(front_of(tuning), testing::ElementsAre("again", "ships", "other"));
}

TEST(Judge, BalanceIsMeasuredWithoutOutliers) {
  Tuning tuning;
  tuning.rows = {row("a", {0.10, 10, 1}), row("b", {0.12, 8, 1}),   row("c", {0.15, 6, 1}),
                 row("d", {0.30, 5, 1}),  row("e", {0.40, 4.5, 1}), row("useless", {40, 1, 1})};
  judge(tuning, "balance");
  // Beside an error of 40 all others look alike, and the fastest of them would be best: "e".
  EXPECT_EQ(tuning.rows[tuning.best].name, "c");
}

TEST(Judge, BalanceMindsNoSmallDifferences) {
  Tuning tuning;
  tuning.rows = {row("a", {0.30, 16.5, 1}), row("b", {0.17, 16.6, 1})};
  judge(tuning, "balance");
  // The range of latency is less than 1 % of it, and nearly half of the error goes.
  EXPECT_EQ(tuning.rows[tuning.best].name, "b");
}

TEST(Judge, TheBestMayBeASystemAsItShips) {
  Tuning tuning;
  tuning.rows = {row("ships", {0.1, 2, 300}, true), row("found", {0.2, 3, 200})};
  tuning.rows[1].score.objectives[kDram] = tuning.rows[0].score.objectives[kDram] = 0;
  tuning.goal.max_dram_bytes = 400;
  judge(tuning, "auto");
  EXPECT_EQ(tuning.rows[tuning.best].name, "ships");
  for (TunedRow& one : tuning.rows)
    one.composition =
        composition_of(SystemSpec::load(ConfigFolder::standard().file("systems", "quest", {})));
  const std::string answer = answer_text(tuning, {});
  EXPECT_THAT(answer, testing::HasSubstr("ships, a system as it ships"));
  EXPECT_THAT(answer, testing::HasSubstr("Minimised: lost quality and latency."));
  EXPECT_THAT(answer, testing::HasSubstr("No system, as it ships or tuned, is better than ships"));

  // On another text all but one miss the limit.
  Validation other{
      .trace = "other",
      .rows = {row("ships", {0.1, 2, 600}, true, 0.5), row("near", {0.2, 2, 500}, true, 0.2),
               row("fits", {0.3, 3, 300}, true)}};
  for (TunedRow& one : other.rows) one.composition = tuning.rows[0].composition;
  EXPECT_THAT(answer_text(tuning, {other}),
              testing::HasSubstr("ships misses the limits here. Within them: fits. Outside, but "
                                 "nearer to them: near.\n"));
}

TEST(Judge, AutoFollowsTheLimits) {
  Tuning of_quality = five_rows();
  of_quality.goal.max_output_error = 1;
  judge(of_quality, "auto");
  EXPECT_EQ(of_quality.rows[of_quality.best].name, "fast");
  Tuning of_latency = five_rows();
  of_latency.goal.max_latency_ms = 100;
  judge(of_latency, "auto");
  EXPECT_EQ(of_latency.rows[of_latency.best].name, "faithful");
}

TEST(Judge, SaysWhatComesNearestWhereNothingFits) {
  Tuning tuning;
  tuning.goal.max_dram_bytes = 1 << 20;
  tuning.rows = {row("a", {0.1, 4, 3 << 20}, true, 2), row("b", {0.2, 5, 2 << 20}, false, 1)};
  EXPECT_THAT(
      user_error_of([&] { judge(tuning, "auto"); }),
      testing::AllOf(testing::HasSubstr("none of 2 compositions"),
                     testing::HasSubstr("dram_kv_bytes at most 1.0 MiB"),
                     testing::HasSubstr("5.00 ms per token, output error 0.2000, 2.0 MiB")));
}

TEST(Comparisons, AreOfEqualQualityOrLatency) {
  const Tuning tuning = five_rows();
  const std::vector<Comparison> all = comparisons(tuning.rows, tuning.goal);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].reference->name, "slow");
  EXPECT_EQ(all[0].faster->name, "middle");           // "fast" has worse quality
  EXPECT_EQ(all[0].more_faithful->name, "faithful");  // 8 ms are no more than 9
  EXPECT_EQ(all[1].reference->name, "out");
  EXPECT_EQ(all[1].faster, nullptr);
  EXPECT_EQ(all[1].more_faithful, nullptr);
}

TEST(Comparisons, ASystemIsComparedWithItsBestParameters) {
  Tuning tuning = five_rows();
  tuning.rows.push_back(row("slow-tuned-1", {0.09, 4, 400}));
  tuning.rows.back().variant_of = "slow";
  const Comparison one = comparisons(tuning.rows, tuning.goal, "quality").front();
  ASSERT_NE(one.tuned, nullptr);
  EXPECT_EQ(one.tuned->name, "slow-tuned-1");
  EXPECT_EQ(one.shown().name, "slow-tuned-1");
  EXPECT_EQ(one.faster->name, "faithful");  // 0.05; "middle" has worse quality than the tuned one
  // A variant that is worse changes nothing.
  tuning.rows.back().reached = {0.5, 20, 500};
  tuning.rows.back().score.objectives = {0.5, 20, 500};
  EXPECT_EQ(comparisons(tuning.rows, tuning.goal).front().tuned, nullptr);
}

TEST(Comparisons, VolumesGrowWithWhatIsFound) {
  const Tuning tuning = five_rows();
  const Volumes shares = volumes(tuning.rows, tuning.goal);
  // The box ends at the worst of those within the limits: 0.2, 9, 400.
  EXPECT_EQ(shares.references, 0);
  EXPECT_GT(shares.found, 0);
  EXPECT_GE(shares.together, shares.found);
  EXPECT_LT(shares.together, 1);
}

TEST(Comparisons, ComeAsCsv) {
  Tuning tuning = five_rows();
  EXPECT_EQ(comparison_csv(tuning),
            "system,feasible,quality_lost,latency_ms,dram_kv_bytes,tuned,tuned_quality_lost,"
            "tuned_latency_ms,tuned_dram_kv_bytes,faster,faster_latency_ms,"
            "speedup,more_faithful,more_faithful_quality_lost\n"
            "slow,1,0.1,9,400,,,,,middle,3,3,faithful,0.05\n"
            "out,0,0.01,1,100,,,,,,,,,\n");
}

TEST(Goal, WhatHasALimitIsNotMinimised) {
  using Minimised = std::array<bool, kObjectives>;
  Goal goal;
  EXPECT_EQ(goal.minimised(), (Minimised{true, true, true}));
  EXPECT_EQ(goal.minimised_text(), "lost quality, latency and dram");
  goal.max_dram_bytes = 1 << 20;
  EXPECT_EQ(goal.minimised(), (Minimised{true, true, false}));
  goal.max_output_error = 0.2;
  EXPECT_EQ(goal.minimised(), (Minimised{false, true, false}));
  EXPECT_EQ(goal.minimised_text(), "latency");
  goal.also = {"dram"};
  EXPECT_EQ(goal.minimised(), (Minimised{false, true, true}));
  goal.also = {};
  goal.max_latency_ms = 9;  // nothing would be left
  EXPECT_EQ(goal.minimised(), (Minimised{true, true, true}));
}

TEST(Goal, SaysWhatARowReaches) {
  Goal goal;
  EXPECT_EQ(goal.text({0.01234, 12.345, 1.5 * (1 << 20)}),
            "12.35 ms per token, output error 0.0123, 1.5 MiB");
  goal.quality = "attention_mass";
  EXPECT_EQ(goal.quality_text(0.25), "attention mass 0.7500");
}

}  // namespace
}  // namespace kvreplay
