#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "policies/decide/decide.hpp"
#include "policies/decide/layer_means.hpp"
#include "policies/place/io_plan_bytes.hpp"
#include "sim/replay/experiment.hpp"
#include "sim/replay/stage_keys.hpp"
#include "sim/time/timing_bytes.hpp"
#include "tests/sim/sim_specs.hpp"
#include "tests/support/configs.hpp"
#include "tests/support/synthetic_trace.hpp"
#include "tests/support/temporary_folder.hpp"

namespace kvreplay {
namespace {

/// Every shipped system that a plain synthetic trace can serve, so that every kind of plan occurs:
/// in memory, with writes, with a cache that is paged by layer.
const std::vector<std::string> kSystems{"in_memory", "flexgen",       "quest",  "clusterkv",
                                        "dynakv",    "streaming_llm", "kivi_2", "token_exact"};

class StageValues : public testing::TestWithParam<std::string> {
 protected:
  StageValues() {
    write_synthetic_trace(folder_.file("a.kvtrace.h5"), {.layers = 4});
    system_ = SystemSpec::load(kConfigs + "/systems/" + GetParam() + ".json");
    const TraceReader trace(folder_.file("a.kvtrace.h5"));
    const NamedDecideSpec spec{GetParam(), system_.decide};
    log_ = decide(trace, std::span(&spec, 1), {}).front();
  }

  [[nodiscard]] Timing time(const IoPlan& plan) const {
    const DeviceSpec device = DeviceSpec::load(kConfigs + "/devices/ufs40.json");
    return time_plan(plan, tiny_model(), tiny_platform(), device, system_.pipeline,
                     {.prefill_chunk_tokens = 64});
  }

  TemporaryFolder folder_;
  SystemSpec system_;
  AccessLog log_;
};

TEST_P(StageValues, AReplayOfWhatWasKeptIsTheSame) {
  write_access_log(log_, folder_.file("log"));
  const AccessLog log = read_access_log(folder_.file("log"));
  EXPECT_EQ(to_bytes(layer_means(log)), to_bytes(layer_means(log_)));
  const KvShape shape = tiny_model().kv_shape();
  const IoPlan plan = place(log_, system_.place, shape);
  const std::string bytes = to_bytes(plan);
  EXPECT_EQ(to_bytes(place(log, system_.place, shape)), bytes);

  const IoPlan kept = plan_from(bytes);
  EXPECT_EQ(to_bytes(kept), bytes);
  EXPECT_EQ(kept.system, plan.system);
  EXPECT_EQ(kept.full_attention_layers, plan.full_attention_layers);
  ASSERT_EQ(kept.layers.size(), plan.layers.size());
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    EXPECT_EQ(kept.layers[i].io.reads, plan.layers[i].io.reads);
    EXPECT_EQ(kept.layers[i].io.writes, plan.layers[i].io.writes);
    EXPECT_EQ(kept.layers[i].io.prompt_writes, plan.layers[i].io.prompt_writes);
    EXPECT_EQ(kept.layers[i].io.prompt_ready, plan.layers[i].io.prompt_ready);
    EXPECT_EQ(kept.layers[i].prompt.flops, plan.layers[i].prompt.flops);
    EXPECT_EQ(kept.layers[i].io.cache_reads, plan.layers[i].io.cache_reads);
    EXPECT_EQ(kept.layers[i].compute.attended_tokens, plan.layers[i].compute.attended_tokens);
    EXPECT_EQ(kept.layers[i].io.region_bytes, plan.layers[i].io.region_bytes);
  }
  const Timing timing = time(plan);
  EXPECT_EQ(to_bytes(time(kept)), to_bytes(timing));
  const Timing timing_kept = timing_from(to_bytes(timing));
  EXPECT_EQ(to_bytes(timing_kept), to_bytes(timing));
  EXPECT_EQ(timing_kept.steps.size(), timing.steps.size());
  EXPECT_EQ(timing_kept.dram.kv_bytes(), timing.dram.kv_bytes());
  EXPECT_GT(timing.prefill.ttft_ns, 0);
  EXPECT_EQ(timing_kept.prefill.ttft_ns, timing.prefill.ttft_ns);
}

TEST_P(StageValues, MeansOfTurnsAreOfTheirSteps) {
  AccessLog turns = log_;
  const std::int64_t steps = log_.steps;
  turns.turns = {{0, 0, 3}, {3, 5, steps}};
  const std::vector<LayerMeans> means = layer_means_from(to_bytes(layer_means(turns)));
  const std::vector<QualityMeans> of_turns = turn_means(means);
  ASSERT_EQ(of_turns.size(), 2u);
  // Three steps of the first turn, and of the second those after its two prefilled tokens.
  const auto decoded = static_cast<double>(3 + steps - 5);
  const double of_both = (3 * of_turns[0].attention_mass +
                          static_cast<double>(steps - 5) * of_turns[1].attention_mass) /
                         decoded;
  EXPECT_NEAR(of_both, system_means(means).attention_mass, 1e-9);
  turns.turns = {{0, 0, steps}};
  EXPECT_EQ(turn_means(layer_means(turns)).front().attention_mass,
            system_means(layer_means(log_)).attention_mass);
  EXPECT_TRUE(turn_means(layer_means(log_)).empty());
}

TEST_P(StageValues, MeansComeBack) {
  const std::vector<LayerMeans> means = layer_means(log_);
  const std::vector<LayerMeans> kept = layer_means_from(to_bytes(means));
  ASSERT_EQ(kept.size(), means.size());
  for (std::size_t i = 0; i < means.size(); ++i) {
    EXPECT_EQ(kept[i].layer, means[i].layer);
    EXPECT_EQ(kept[i].full_attention, means[i].full_attention);
    EXPECT_EQ(kept[i].means.output_error, means[i].means.output_error);
  }
  EXPECT_EQ(system_means(kept).attention_mass, system_means(means).attention_mass);
}

INSTANTIATE_TEST_SUITE_P(Systems, StageValues, testing::ValuesIn(kSystems));

TEST(StageKeys, AFileCountsByItsContent) {
  TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() / "systems");
  const auto copy = [&](const std::string& from, const std::string& to) {
    std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
  };
  copy(kConfigs + "/systems/dwb.json", folder.file("systems/dwb.json"));
  std::filesystem::create_directories(folder.path() / "controllers");
  const std::string controller = folder.file("controllers/smollm2-135m-dialogue.json");
  copy(kConfigs + "/controllers/smollm2-135m-dialogue.json", controller);
  const SystemSpec system = SystemSpec::load(folder.file("systems/dwb.json"));
  const SystemSpec original = SystemSpec::load(kConfigs + "/systems/dwb.json");
  const std::string key = decide_key("trace", system.decide, 1, 8, false);
  EXPECT_EQ(decide_key("trace", original.decide, 1, 8, false), key) << "wherever it lies";
  std::ofstream(controller, std::ios::app) << "\n";
  EXPECT_NE(decide_key("trace", system.decide, 1, 8, false), key);
}

}  // namespace
}  // namespace kvreplay
