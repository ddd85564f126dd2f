#include "sim/tuning/recommend.hpp"

#include <gtest/gtest.h>

namespace kvreplay {
namespace {

/// 10 tokens per second, first token after 20 s, 100 MB (120 MB in the prefill), output error 0.2,
/// 10 years.
CellResult known_cell() {
  CellResult cell;
  cell.system = "quest";
  cell.device = "card";
  cell.timing.steps.resize(1);
  cell.timing.steps[0].latency_ns = 100'000'000;
  cell.timing.dram.cache_bytes = 100'000'000;
  cell.timing.prefill.ttft_ns = 20'000'000'000;
  cell.timing.prefill.dram_bytes = 120'000'000;
  cell.timing.prefill.write_bytes = cell.timing.prefill.flash_write_bytes = 1'000'000'000;
  cell.quality.output_error = 0.2;
  cell.conversation = {.tokens = 0, .per_day = 1};
  cell.endurance.rated_bytes = 3652.5e9;
  return cell;
}

TEST(MissedLimits, NameWhatIsMissedAndByHowMuch) {
  const CellResult cell = known_cell();
  EXPECT_TRUE(missed_limits({}, cell).empty());
  EXPECT_TRUE(missed_limits({.min_tokens_per_s = 10,
                             .max_ttft_s = 20,
                             .max_dram_bytes = 120'000'000,
                             .max_output_error = 0.2,
                             .min_years = 9.9},
                            cell)
                  .empty());
  const std::vector<MissedLimit> missed = missed_limits({.min_tokens_per_s = 15,
                                                         .max_ttft_s = 5,
                                                         .max_dram_bytes = 60'000'000,
                                                         .max_output_error = 0.1,
                                                         .min_years = 20},
                                                        cell);
  ASSERT_EQ(missed.size(), 5u);
  EXPECT_EQ(missed[0].text, "10 tokens/s, 67 % of what is asked for");
  EXPECT_DOUBLE_EQ(missed[0].excess, 0.5);
  EXPECT_EQ(missed[1].text, "first token after 20 s, 4.0 times the limit");
  EXPECT_DOUBLE_EQ(missed[1].excess, 3);
  EXPECT_EQ(missed[2].text, "120 MB during the prefill, 2.0 times the limit");
  EXPECT_DOUBLE_EQ(missed[2].excess, 1);
  EXPECT_EQ(missed[3].text, "output error 0.200, 2.0 times the limit");
  EXPECT_EQ(missed[4].text, "card worn out in 10 years");
  EXPECT_NEAR(missed[4].excess, 1, 1e-9);
}

TEST(MissedLimits, TheNextQuestionTakesTheFasterWay) {
  const CellResult cell = known_cell();
  const UserLimits limits{.max_next_ttft_s = 2};
  EXPECT_EQ(limits.text(), "that of the next question within 2 s");
  EXPECT_TRUE(limits.any());
  EXPECT_TRUE(missed_limits(limits, cell).empty()) << "it is not known";
  const NextQuestion read{.read_back_s = 6, .compute_anew_s = 9};
  EXPECT_TRUE(read.reads_back());
  const std::vector<MissedLimit> missed = missed_limits(limits, {cell, read});
  ASSERT_EQ(missed.size(), 1u);
  EXPECT_EQ(missed[0].text, "that of the next question after 6.0 s, 3.0 times the limit");
  EXPECT_DOUBLE_EQ(missed[0].excess, 2);
  const NextQuestion anew{.read_back_s = 6, .compute_anew_s = 1.5};
  EXPECT_FALSE(anew.reads_back());
  EXPECT_EQ(anew.ttft_s(), 1.5);
  EXPECT_TRUE(missed_limits(limits, {cell, anew}).empty());
  EXPECT_TRUE(recommended_before(limits, {cell, anew}, {cell, read}));
  EXPECT_FALSE(recommended_before({}, {cell, anew}, {cell, read})) << "no limit, no difference";
}

TEST(Recommendation, RanksByWhatIsMissedThenByWhatHasNoLimit) {
  const CellResult cell = known_cell();
  CellResult faster = cell;
  faster.timing.steps[0].latency_ns = 50'000'000;
  faster.quality.output_error = 0.3;
  // Without limits, fidelity comes first; what is within a limit is not rewarded.
  EXPECT_TRUE(recommended_before({}, cell, faster));
  EXPECT_FALSE(recommended_before({}, faster, cell));
  EXPECT_TRUE(recommended_before({.max_output_error = 0.5}, faster, cell));
  EXPECT_TRUE(recommended_before({.min_tokens_per_s = 5}, cell, faster));
  EXPECT_FALSE(recommended_before({.min_tokens_per_s = 5, .max_output_error = 0.5}, faster, cell));
  // Whatever misses less.
  EXPECT_TRUE(recommended_before({.min_tokens_per_s = 15}, faster, cell));
}

}  // namespace
}  // namespace kvreplay
