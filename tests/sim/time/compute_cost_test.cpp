#include "sim/time/compute_cost.hpp"

#include <gtest/gtest.h>

#include "base/build_info.hpp"
#include "tests/sim/sim_specs.hpp"

namespace kvreplay {
namespace {

TEST(Model, CountsItsWeights) {
  const ModelSpec model = tiny_model();
  EXPECT_EQ(model.qkv_weights(), 64 * (96 + 32 + 32));
  EXPECT_EQ(model.output_weights(), 96 * 64);
  EXPECT_EQ(model.ffn_weights(), 3 * 64 * 128);
  EXPECT_EQ(model.head_weights(), 64000);
  EXPECT_EQ(model.weight_bytes(), 2 * (4 * (10240 + 6144 + 24576) + 64000));
}

TEST(Model, LlamaHasEightBillionWeights) {
  const ModelSpec model = ModelSpec::load(source_folder() + "/configs/models/llama3.1-8b.json");
  // 8.03e9 as published; ours leaves out norms.
  EXPECT_NEAR(static_cast<double>(model.weight_bytes()) / 2, 8.03e9, 0.01e9);
}

TEST(Roofline, IsTheLongerOfArithmeticAndTraffic) {
  const PlatformSpec platform = tiny_platform();
  EXPECT_EQ(platform.kernel_ns(3000, 1000), 3000);
  EXPECT_EQ(platform.kernel_ns(1000, 3000), 3000);
  EXPECT_EQ(platform.kernel_ns(0, 0), 0);
  EXPECT_EQ(platform.kernel_ns(0.5, 0), 1);
}

TEST(Roofline, OfALayerByHand) {
  const ModelSpec model = tiny_model();
  const PlatformSpec platform = tiny_platform();
  // One sequence: 2 bytes and 2 operations per weight, so both sides of the roofline are equal.
  const LayerLoad one{.batch = 1,
                      .score_flops = 700,
                      .score_bytes = 900,
                      .attended_tokens = 10,
                      .attended_bytes = 1280};
  const LayerCompute alone = layer_compute(model, platform, one);
  EXPECT_EQ(alone.project_ns, 10000 + 2 * 10240);
  EXPECT_EQ(alone.score_ns, 5000 + 900);
  // Attention: 4 operations for each of 10 tokens, 6 heads and 16 elements.
  EXPECT_EQ(alone.attend_ns, 3840 + 2 * 6144 + 2 * 24576);
  EXPECT_EQ(head_compute(model, platform, 1), 2 * 64000);

  // Three sequences compute three times as much; the weights are read once.
  const LayerCompute batch = layer_compute(model, platform, {.batch = 3});
  EXPECT_EQ(batch.project_ns, 10000 + 6 * 10240);
  EXPECT_EQ(batch.score_ns, 0);
  PlatformSpec fast = platform;
  fast.flops_s = 1e15;
  EXPECT_EQ(layer_compute(model, fast, {.batch = 3}).project_ns,
            layer_compute(model, fast, {.batch = 1}).project_ns);
}

}  // namespace
}  // namespace kvreplay
