#include "sim/time/model_spec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/build_info.hpp"
#include "sim/time/compute_cost.hpp"
#include "sim/time/time_plan.hpp"
#include "tests/devices/flash/flash_spec.hpp"
#include "tests/sim/sim_specs.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// The tiny model with more members.
ModelSpec model_with(const std::string& members) {
  return ModelSpec::parse(ConfigNode::parse(R"({
      "title": "tiny", "source": "test", "layers": 4, "hidden_size": 64, "query_heads": 6,
      "kv_heads": 2, "head_dim": 16, "ffn_size": 128, "vocabulary": 1000, "weight_bits": 16,
      "tied_embeddings": true)" + members + "}",
                                            "tiny.json"),
                          "tiny");
}

/// The same, with a member of its own in place of one.
ModelSpec model_but(const std::string& name, const std::string& value) {
  const ConfigNode node = ConfigNode::parse(R"({
      "title": "tiny", "source": "test", "layers": 4, "hidden_size": 64, "query_heads": 6,
      "kv_heads": 2, "head_dim": 16, "ffn_size": 128, "vocabulary": 1000, "weight_bits": 16,
      "tied_embeddings": true})",
                                            "tiny.json");
  return ModelSpec::parse(node.with(name, value), "tiny");
}

TEST(ModelKinds, AlikeLayersAreOneKindThatFollowsAnyWindow) {
  const ModelSpec model = tiny_model();
  EXPECT_THAT(model.kv_kinds(), ElementsAre(KvShape{4, 6, 2, 16}));
  EXPECT_FALSE(model.has_windows());
  EXPECT_EQ(model.attention_layers(), 4);
}

TEST(ModelKinds, WindowsHeadsAndSizesByLayer) {
  const ModelSpec model =
      model_with(R"(, "sliding_window": {"value": [8, 8, 0, 8], "source": "s"})");
  ASSERT_EQ(model.kv_kinds().size(), 2U);
  EXPECT_EQ(model.kv_kinds()[0].sliding_window, 8);
  EXPECT_EQ(model.kv_kinds()[1].sliding_window, 0);
  EXPECT_TRUE(model.has_windows());
  EXPECT_EQ(model.layer(2).kind, 1);
  EXPECT_EQ(model.layer(3).kind, 0);

  const ModelSpec wide = model_but("head_dim", "[16, 16, 32, 16]");
  ASSERT_EQ(wide.kv_kinds().size(), 2U);
  EXPECT_EQ(wide.kv_kinds()[1].head_dim, 32);
  EXPECT_EQ(wide.layer(2).query_weights, 64 * 6 * 32);
  EXPECT_EQ(wide.layer(2).key_value_weights, 64 * 2 * 2 * 32);
  EXPECT_NE(wide.by_layer, tiny_model().by_layer) << "results depend on it";
}

TEST(ModelKinds, LayersThatUseEarlierEntriesHaveNoProjectionsOfThem) {
  const ModelSpec model = model_with(R"(, "sliding_window": [8, 0, 8, 0], "kv_shared_layers": 2)");
  EXPECT_EQ(model.layer(2).source, 0);
  EXPECT_EQ(model.layer(3).source, 1);
  EXPECT_EQ(model.layer(3).key_value_weights, 0);
  EXPECT_GT(model.layer(3).query_weights, 0);
  EXPECT_EQ(model.weight_bytes(), tiny_model().weight_bytes() - 2 * 2 * (64 * 2 * 2 * 16));
}

TEST(ModelKinds, KeyIsValueSavesAMatrixAndStoredOnceAlsoBytes) {
  const std::int64_t plain = tiny_model().layer(0).key_value_weights;
  const ModelSpec projected = model_with(R"(, "key_is_value": "projected")");
  EXPECT_EQ(projected.layer(0).key_value_weights, plain / 2);
  EXPECT_FALSE(projected.kv_shape().one_vector);
  const ModelSpec stored = model_with(R"(, "key_is_value": ["stored", "no", "no", "no"])");
  EXPECT_EQ(stored.layer(0).key_value_weights, plain / 2);
  EXPECT_TRUE(stored.kv_shape().one_vector);
  EXPECT_FALSE(stored.kv_kinds().at(1).one_vector);
}

TEST(ModelKinds, ExpertsThatABatchReads) {
  const ModelSpec model = model_with(
      R"(, "experts": 8, "active_experts": 2, "expert_ffn_size": 32, "expert_weight_bits": 4)");
  const LayerSpec& layer = model.layer(0);
  EXPECT_EQ(layer.expert_weights, 3 * 64 * 32);
  EXPECT_EQ(layer.other_weights, 64 * 8) << "the router";
  EXPECT_DOUBLE_EQ(ModelSpec::experts_read(layer, 1), 2);
  EXPECT_DOUBLE_EQ(ModelSpec::experts_read(layer, 2), 8 * (1 - 0.75 * 0.75));
  EXPECT_NEAR(ModelSpec::experts_read(layer, 1000), 8, 1e-9);
  EXPECT_EQ(model.weight_bytes(),
            tiny_model().weight_bytes() + 4 * (2 * 64 * 8 + 8 * layer.expert_weights / 2));
  // One token: two experts' bytes and operations; the DRAM is the slower at 4 bits only if it must.
  const PlatformSpec platform = tiny_platform();
  const double more = layer_compute(model, platform, {.batch = 1}).dram_bytes -
                      layer_compute(tiny_model(), platform, {.batch = 1}).dram_bytes;
  EXPECT_DOUBLE_EQ(more, 2 * 64 * 8 + 2 * static_cast<double>(layer.expert_weights) / 2);
}

TEST(ModelKinds, ALayerWithoutAttentionHasItsOwnWeightsAndAState) {
  const ModelSpec model =
      model_with(R"(, "attention_layers": [3], "mixer_weights": 5000, "state_bytes": 640)");
  EXPECT_EQ(model.attention_layers(), 1);
  EXPECT_EQ(model.layer(0).query_weights, 5000);
  EXPECT_EQ(model.layer(0).output_weights, 0);
  const LayerCompute mixer = layer_compute(model, tiny_platform(), {.batch = 2});
  EXPECT_DOUBLE_EQ(mixer.dram_bytes, 2 * (5000 + 3 * 64 * 128) + 2 * 2 * 640);
}

TEST(ModelKinds, RefusesWhatCannotBe) {
  const auto refused = [](auto&& make) {
    return user_error_of([&] { static_cast<void>(make()); });
  };
  EXPECT_THAT(refused([] { return model_with(R"(, "sliding_window": [8, 8])"); }),
              testing::AllOf(HasSubstr("tiny.json"), HasSubstr("sliding_window"),
                             HasSubstr("found 2 values"), HasSubstr("a list of 4")));
  EXPECT_THAT(refused([] { return model_with(R"(, "sliding_window": [8, -1, 8, 8])"); }),
              testing::AllOf(HasSubstr("sliding_window/1"), HasSubstr("-1")));
  EXPECT_THAT(refused([] { return model_but("kv_heads", "[2, 2, 4, 2]"); }),
              testing::AllOf(HasSubstr("query_heads"), HasSubstr("a multiple of kv_heads, 4")));
  EXPECT_THAT(refused([] { return model_with(R"(, "attention_layers": [1, 1])"); }),
              HasSubstr("attention_layers"));
  EXPECT_THAT(refused([] { return model_with(R"(, "attention_layers": [4])"); }),
              HasSubstr("from 0 to 3"));
  EXPECT_THAT(refused([] { return model_with(R"(, "attention_layers": [])"); }),
              HasSubstr("empty list"));
  EXPECT_THAT(refused([] { return model_with(R"(, "kv_shared_layers": 4)"); }),
              testing::AllOf(HasSubstr("kv_shared_layers"), HasSubstr("layer 0")));
  EXPECT_THAT(refused([] { return model_with(R"(, "experts": 4, "active_experts": 5)"); }),
              testing::AllOf(HasSubstr("active_experts"), HasSubstr("1 to 4")));
  EXPECT_THAT(refused([] { return model_but("ffn_size", "0"); }), HasSubstr("ffn_size"));
  EXPECT_THAT(
      refused([] { return model_with(R"(, "key_is_value": ["perhaps", "no", "no", "no"])"); }),
      testing::AllOf(HasSubstr("key_is_value/0"), HasSubstr("stored")));
}

/// Published totals of the text models, in 1e9 weights.
TEST(ModelPresets, HaveAsManyWeightsAsPublished) {
  const auto weights = [](const std::string& name) {
    const ModelSpec model = ModelSpec::load(source_folder() + "/configs/models/" + name + ".json");
    return static_cast<double>(model.weight_bytes()) * 8 / model.weight_bits / 1e9;
  };
  EXPECT_NEAR(weights("gemma-3-270m"), 0.268, 0.002);
  EXPECT_NEAR(weights("gemma-3-1b"), 1.0, 0.01);
  EXPECT_NEAR(weights("gemma-3-4b"), 3.88, 0.02);
  EXPECT_NEAR(weights("qwen3-0.6b"), 0.596, 0.001);
  EXPECT_NEAR(weights("qwen3-1.7b"), 1.72, 0.01);
  EXPECT_NEAR(weights("qwen3-8b"), 8.19, 0.01);
  EXPECT_NEAR(weights("qwen3-30b-a3b"), 30.5, 0.1);
  EXPECT_NEAR(weights("qwen3.5-0.8b"), 0.752, 0.005);
  EXPECT_NEAR(weights("phi-4-mini"), 3.84, 0.01);
  EXPECT_NEAR(weights("smollm3-3b"), 3.08, 0.01);
  EXPECT_NEAR(weights("lfm2-1.2b"), 1.17, 0.01);
  EXPECT_NEAR(weights("ministral-3b"), 3.43, 0.02);
  const ModelSpec experts = ModelSpec::load(source_folder() + "/configs/models/gpt-oss-20b.json");
  double all = 2 * static_cast<double>(experts.head_weights());
  for (std::int64_t i = 0; i < experts.layers; ++i) {
    const LayerSpec& layer = experts.layer(i);
    all +=
        static_cast<double>(layer.query_weights + layer.key_value_weights + layer.output_weights +
                            layer.other_weights + layer.experts * layer.expert_weights);
  }
  EXPECT_NEAR(all / 1e9, 20.9, 0.05);
}

TEST(ModelPresets, OfGemma4E2bReadTheEffectiveWeightsOnly) {
  const ModelSpec model = ModelSpec::load(source_folder() + "/configs/models/gemma-4-e2b.json");
  EXPECT_NEAR(
      static_cast<double>(model.weight_bytes()) / 2 - static_cast<double>(model.table_weights),
      2.3e9, 0.03e9);
  EXPECT_EQ(model.layer(13).source, 13);
  EXPECT_EQ(model.layer(15).source, 13) << "the last sliding layer that has entries";
  EXPECT_EQ(model.layer(19).source, 14) << "the last full one";
}

// Time, of models whose layers differ.

constexpr std::int64_t kKindPrompt = 100;
constexpr std::int64_t kKindSteps = 6;

/// One layer's plan: every step reads 4 KiB and attends to `attended` tokens.
LayerPlan kind_plan(double attended, std::int64_t kind, std::int64_t window) {
  LayerPlan layer;
  for (std::int64_t step = 0; step < kKindSteps; ++step) add_step(layer, {{0, 4096}}, {}, attended);
  layer.kind = kind;
  layer.sliding_window = window;
  layer.io.region_bytes = 1 << 17;
  layer.io.prompt_write_bytes = 4096;
  layer.dram.entries_bytes = (kKindPrompt + kKindSteps) * 128;
  layer.dram.cache_bytes = 1000;
  layer.dram.fetched_bytes = 4096;
  return layer;
}

Timing time_of_kinds(const IoPlan& plan, const ModelSpec& model) {
  return time_plan(plan, model, tiny_platform(), test::flash(),
                   PartConfig<Pipeline>::by_name("serial"), {});
}

IoPlan kinds_plan(const ModelSpec& model) {
  IoPlan plan{"test", model.kv_kinds(), kKindPrompt, kKindSteps, 0, {}};
  for (std::size_t kind = 0; kind < model.kv_kinds().size(); ++kind) {
    const std::int64_t window = model.kv_kinds()[kind].sliding_window.value_or(0);
    plan.layers.push_back(kind_plan(window == 0 ? 50 : static_cast<double>(window),
                                    static_cast<std::int64_t>(kind), window));
  }
  return plan;
}

TEST(TimeOfKinds, ALayerFollowsThePlanOfItsKind) {
  const ModelSpec model = model_with(R"(, "sliding_window": [8, 8, 0, 8])");
  const Timing timing = time_of_kinds(kinds_plan(model), model);
  EXPECT_DOUBLE_EQ(timing.attended_tokens, (3 * 8 + 50) / 4.0);
  EXPECT_EQ(timing.dram.cache_bytes, 4 * 1000);
}

TEST(TimeOfKinds, LayersWithoutAttentionReadNothing) {
  const ModelSpec model = model_with(R"(, "attention_layers": [3], "state_bytes": 640)");
  const Timing timing = time_of_kinds(kinds_plan(model), model);
  EXPECT_EQ(timing.steps.front().read_bytes, 4096);
  EXPECT_DOUBLE_EQ(timing.attended_tokens, 50);
  EXPECT_EQ(timing.dram.cache_bytes, 1000);
  EXPECT_EQ(timing.dram.buffered_bytes, 3 * 640);
}

TEST(TimeOfKinds, LayersThatUseEarlierEntriesReadAndHoldNothing) {
  const ModelSpec model = model_with(R"(, "sliding_window": [8, 0, 8, 0], "kv_shared_layers": 2)");
  const Timing timing = time_of_kinds(kinds_plan(model), model);
  EXPECT_EQ(timing.steps.front().read_bytes, 2 * 4096);
  EXPECT_EQ(timing.prompt_write_bytes, 2 * 4096);
  EXPECT_EQ(timing.dram.cache_bytes, 2 * 1000);
  EXPECT_DOUBLE_EQ(timing.attended_tokens, (8 + 50) / 2.0) << "they attend all the same";
  const std::int64_t buffers = PartConfig<Pipeline>::by_name("serial").make({})->read_buffers();
  EXPECT_EQ(timing.dram.read_buffer_bytes, (buffers + 2) * 4096) << "kept for the later layers";
}

TEST(TimeOfKinds, FullAttentionInMemoryHoldsTheWindow) {
  const ModelSpec model = model_with(R"(, "sliding_window": [8, 0, 8, 0])");
  IoPlan plan = kinds_plan(model);
  plan.full_attention_layers = 2;
  const Timing timing = time_of_kinds(plan, model);
  EXPECT_EQ(timing.dram.full_attention_bytes, (8 + kKindPrompt + kKindSteps) * 128);
}

}  // namespace
}  // namespace kvreplay
