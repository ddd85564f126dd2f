#include "sim/time/compute_cost.hpp"

#include <gtest/gtest.h>

#include "base/build_info.hpp"
#include "tests/sim/sim_specs.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

TEST(Model, CountsItsWeights) {
  const ModelSpec model = tiny_model();
  EXPECT_EQ(model.layer(0).query_weights + model.layer(0).key_value_weights, 64 * (96 + 32 + 32));
  EXPECT_EQ(model.layer(0).output_weights, 96 * 64);
  EXPECT_EQ(model.layer(0).ffn_weights, 3 * 64 * 128);
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

TEST(Roofline, KeepingReadsAndWritingTakeTimeOfTheProcessor) {
  const ModelSpec model = tiny_model();
  PlatformSpec platform = tiny_platform();
  const LayerLoad load{.batch = 4, .inserted_reads = 3, .writing_sequences = 1};
  const SimTime without = layer_compute(model, platform, load).attend_ns;
  platform.cache_insert_ns = 1500;
  EXPECT_EQ(layer_compute(model, platform, load).attend_ns, without + 3 * 1500);
  platform.append_overhead_ns = 8000;
  EXPECT_EQ(layer_compute(model, platform, load).attend_ns, without + 3 * 1500 + 8000 / 4);
  EXPECT_EQ(platform.buffer_ns(0, 0), 0);
}

PlatformSpec measured_platform(const std::string& kernels) {
  return PlatformSpec::parse(ConfigNode::parse(R"({
      "title": "tiny", "source": "test", "compute_gflop_s": 2, "compute_share": 0.5,
      "dram_bandwidth_gb_s": 4, "dram_bandwidth_share": 0.25, "dram_bytes": 1000000000,
      "layer_overhead_us": 10, "selection_overhead_us": 5, "kernels": )" +
                                                   kernels + "}",
                                               "measured.json"),
                             "measured");
}

TEST(MeasuredKernels, TakeThePlaceOfTheRoofline) {
  const ModelSpec model = tiny_model();
  const PlatformSpec platform = measured_platform(
      R"({"source": "test", "weight_bits": 16, "threads": 2,
          "matrix_vector": [[10240, 10], [30720, 30], [64000, 100]],
          "score": [[1000, 7], [3000, 9]]})");
  const LayerLoad load{.batch = 1,
                       .score_flops = 2000,
                       .score_bytes = 900,
                       .attended_tokens = 10,
                       .attended_bytes = 1280};
  const LayerCompute compute = layer_compute(model, platform, load);
  EXPECT_EQ(compute.project_ns, 10000);
  EXPECT_EQ(compute.score_ns, 8000);
  // Attention is not measured: an estimate. The products are one, of 30720 weights.
  EXPECT_EQ(compute.attend_ns, 3840 + 30000);
  EXPECT_EQ(head_compute(model, platform, 1), 100000);

  // A batch, and weights of another width, are estimates.
  EXPECT_EQ(head_compute(model, platform, 2), head_compute(model, tiny_platform(), 2));
  ModelSpec four_bits = model;
  four_bits.weight_bits = 4;
  EXPECT_EQ(head_compute(four_bits, platform, 1), head_compute(four_bits, tiny_platform(), 1));
  EXPECT_NE(platform.resolved(), tiny_platform().resolved());
}

TEST(MeasuredKernels, AreChosenByPartAndChargedOnlyWhereMeasured) {
  const ModelSpec model = tiny_model();
  const LayerLoad load{.score_flops = 2000,
                       .attended_tokens = 10,
                       .fetched_entries = 30,
                       .decoded_entries = 40,
                       .buffered_entries = 5,
                       .appended_entries = 2,
                       .regrouped_entries = 8,
                       .looks_ahead = true,
                       .heads_attend_alone = true,
                       .grouping = "page",
                       .scoring = "centroid",
                       .precision = "fp8"};
  const std::string head = R"({"source": "test", "weight_bits": 16, "threads": 1)";
  const auto cost = [&](const std::string& kinds) {
    return layer_compute(model, measured_platform(head + kinds + "}"), load);
  };
  const LayerCompute roofline = cost("");
  EXPECT_EQ(cost(R"(, "score": {"min_max": [[1000, 1]]}, "decode": {"fp16": [[1, 9]]})").score_ns,
            roofline.score_ns)
      << "of another part";
  EXPECT_EQ(cost(R"(, "score": {"centroid": [[1000, 1]]})").score_ns, 2000);
  EXPECT_EQ(cost(R"(, "fetch": [[10, 2], [20, 3]])").score_ns, roofline.score_ns + 4000);
  // Queries that are computed ahead of their layer are one more product.
  const std::int64_t queries = model.layer(0).query_weights;
  EXPECT_EQ(cost(R"(, "matrix_vector": [[1000, 1]])").score_ns, roofline.score_ns + queries);
  EXPECT_EQ(cost(R"(, "decode": {"fp8": [[10, 2]]}, "buffered": {"fp8": [[5, 3]]})").attend_ns,
            roofline.attend_ns + 8000 + 3000);
  EXPECT_EQ(cost(R"(, "append": {"page": [[2, 1], [4, 2]]})").attend_ns, roofline.attend_ns + 5000);
  const SimTime alone = cost(R"(, "attention": {"page": [[100, 5], [200, 5]]})").attend_ns;
  EXPECT_NE(alone, roofline.attend_ns);
  EXPECT_EQ(cost(R"(, "attention": {"together": [[100, 5], [200, 5]]})").attend_ns,
            roofline.attend_ns);

  EXPECT_EQ(submit_compute(measured_platform(head + "}"), 3), 0);
  const PlatformSpec submits = measured_platform(head + R"(, "submit": [[1, 20], [2, 25]]})");
  EXPECT_EQ(submit_compute(submits, 3), 30000);
  EXPECT_EQ(submit_compute(submits, 0), 0);
  // A batch is an estimate as a whole.
  LayerLoad batch = load;
  batch.batch = 2;
  const PlatformSpec fetches = measured_platform(head + R"(, "fetch": [[10, 2], [20, 3]]})");
  EXPECT_EQ(layer_compute(model, fetches, batch).score_ns,
            layer_compute(model, measured_platform(head + "}"), batch).score_ns);
}

TEST(MeasuredKernels, AFactorisationHasARateOfItsOwnWhereItWasMeasured) {
  const std::string head = R"({"source": "test", "weight_bits": 16, "threads": 1)";
  const PlatformSpec without = measured_platform(head + "}");
  const PlatformSpec with = measured_platform(head + R"(, "factorise": [[1000, 5]]})");
  const IndexWork work{.flops = 50'000, .bytes = 10, .factorise_flops = 20'000};
  EXPECT_EQ(index_compute(without, work),
            without.selection_overhead_ns + without.kernel_ns(50'000, 10))
      << "at the rate of products";
  EXPECT_EQ(index_compute(with, work),
            with.selection_overhead_ns + with.kernel_ns(30'000, 10) + 100'000);
  EXPECT_EQ(index_compute(with, {.flops = 50'000, .bytes = 10}),
            index_compute(without, {.flops = 50'000, .bytes = 10}));
  IndexWork batch = work;
  batch.batch = 2;
  EXPECT_EQ(index_compute(with, batch), index_compute(without, batch)) << "measured for one";
  EXPECT_EQ(index_compute(with, {}), 0);
}

TEST(MeasuredKernels, GoOnBeyondTheirEnds) {
  const MeasuredKernel two({{.work = 10, .us = 2}, {.work = 20, .us = 3}});
  EXPECT_EQ(two.ns(30), 4000);
  EXPECT_EQ(two.ns(15), 2500);
  EXPECT_EQ(two.ns(0), 1000);
  EXPECT_EQ(MeasuredKernel({{.work = 10, .us = 2}}).ns(5), 1000);
  EXPECT_EQ(MeasuredKernel({{.work = 10, .us = 1}, {.work = 20, .us = 9}}).ns(1), 0);
  EXPECT_EQ(MeasuredKernel({{.work = 1, .us = 1}, {.work = 1.000001, .us = 1e9}}).ns(1e18),
            1'000'000'000'000)
      << "no more than a point may say";
}

TEST(MeasuredKernels, HandsOverAsAtTheNearestPauseMeasured) {
  MeasuredKernels kernels;
  EXPECT_EQ(kernels.hand_over_time_ns(10'000), 0) << "not measured";
  kernels.hand_over.any = MeasuredKernel({{.work = 10, .us = 2}, {.work = 20, .us = 12}});
  EXPECT_EQ(kernels.hand_over_time_ns(0), 2000);
  EXPECT_EQ(kernels.hand_over_time_ns(15'000), 7000);
  EXPECT_EQ(kernels.hand_over_time_ns(90'000), 12'000);
}

TEST(MeasuredKernels, TransfersWakeTheDeviceUpToTheLongestPauseMeasured) {
  MeasuredKernels kernels;
  EXPECT_EQ(kernels.transfer_delay_ns(5000, 3, 4096, false, true), 0);
  kernels.wake.parts["transfer"] = MeasuredKernel({{.work = 10, .us = 2}, {.work = 20, .us = 12}});
  kernels.wake.parts["command"] = MeasuredKernel({{.work = 10, .us = 1}, {.work = 20, .us = 2}});
  EXPECT_EQ(kernels.transfer_delay_ns(10'000, 3, 4096, false, false), 2000 + 3 * 1000);
  EXPECT_EQ(kernels.transfer_delay_ns(15'000, 3, 4096, false, false), 7000 + 3 * 1500);
  EXPECT_EQ(kernels.transfer_delay_ns(90'000, 3, 4096, false, false), 12000 + 3 * 2000);
  EXPECT_EQ(kernels.transfer_delay_ns(1000, 3, 4096, false, false), 2000 + 3 * 1000)
      << "as after 10 us";
  EXPECT_EQ(kernels.transfer_delay_ns(0, 3, 8192, false, false), 0) << "others are under way";
  EXPECT_EQ(kernels.transfer_delay_ns(10'000, 3, 8192, false, true), 0) << "not measured";
  kernels.wake.parts["kib"] = MeasuredKernel({{.work = 10, .us = 0.5}, {.work = 20, .us = 0.75}});
  EXPECT_EQ(kernels.transfer_delay_ns(10'000, 3, 4096, false, false), 2000 + 3 * 1000 + 4 * 500);
  EXPECT_EQ(kernels.transfer_delay_ns(10'000, 3, 512, false, false), 2000 + 3 * 1000 + 250);
  kernels.beside.parts["kib"] = MeasuredKernel({{.work = 1, .us = 1}, {.work = 20, .us = 2}});
  EXPECT_EQ(kernels.transfer_delay_ns(0, 3, 8192, false, true), 8000) << "others are under way";
  EXPECT_EQ(kernels.transfer_delay_ns(20'000, 3, 8192, false, true), 16000);
  EXPECT_EQ(kernels.transfer_delay_ns(10'000, 3, 8192, true, false), 0) << "not measured";
  kernels.wake.parts["write"] = MeasuredKernel({{.work = 10, .us = 7}, {.work = 20, .us = 9}});
  EXPECT_EQ(kernels.transfer_delay_ns(20'000, 3, 8192, true, false), 9000);
}

TEST(MeasuredKernels, BadPointsAreNamed) {
  const auto error = [](const std::string& points, const std::string& kind = "score") {
    return user_error_of([&] {
      (void)measured_platform(R"({"source": "test", "weight_bits": 16, "threads": 2, ")" + kind +
                              R"(": )" + points + "}");
    });
  };
  EXPECT_NE(error("[[10, 2], [10, 3]]").find("/kernels/score/1"), std::string::npos);
  EXPECT_NE(error("[[10, -2]]").find("above 0"), std::string::npos);
  EXPECT_NE(error("[7]").find("[work, us]"), std::string::npos);
  EXPECT_NE(error("[]").find("/kernels/score: found no points"), std::string::npos);
  EXPECT_NE(error(R"({"page": []})").find("/kernels/score/page"), std::string::npos);
  EXPECT_NE(error("[[1, 1e10]]").find("up to 1e9"), std::string::npos);
  EXPECT_NE(error("[[1, 2]]", "wake").find("found no parts"), std::string::npos);
  EXPECT_NE(error(R"({"bogus": [[1, 2]]})", "wake").find("transfer"), std::string::npos);
  EXPECT_NE(error(R"({"x": [[1, 2]]})", "submit").find("found parts"), std::string::npos);
}

}  // namespace
}  // namespace kvreplay
