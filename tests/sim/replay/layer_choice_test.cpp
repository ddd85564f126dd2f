#include "sim/replay/layer_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/sim/sim_specs.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

ModelSpec model_that_sees(const std::string& windows) {
  return ModelSpec::parse(ConfigNode::parse(R"({
      "title": "tiny", "source": "test", "layers": 4, "hidden_size": 64, "query_heads": 6,
      "kv_heads": 2, "head_dim": 16, "ffn_size": 128, "vocabulary": 1000,
      "tied_embeddings": true, "sliding_window": )" +
                                                windows + "}",
                                            "tiny.json"),
                          "tiny");
}

const std::vector<WindowedLayer> kBothKinds{{0, 512}, {1, 0}, {2, 512}};

TEST(LayerChoice, WithoutWindowsInTheModelAllAreAsRecorded) {
  EXPECT_EQ(layers_for(tiny_model(), kBothKinds, "a"), kBothKinds);
}

TEST(LayerChoice, AKindFollowsTheLayersThatWereRecordedSo) {
  EXPECT_EQ(layers_for(model_that_sees("[512, 512, 0, 512]"), kBothKinds, "a"), kBothKinds);
  EXPECT_THAT(layers_for(model_that_sees("512"), kBothKinds, "a"),
              ElementsAre(WindowedLayer{0, 512}, WindowedLayer{2, 512}));
  EXPECT_THAT(layers_for(model_that_sees("0"), kBothKinds, "a"), ElementsAre(WindowedLayer{1, 0}));
}

TEST(LayerChoice, ANarrowerWindowFollowsWhatSawMore) {
  EXPECT_THAT(layers_for(model_that_sees("[32, 32, 32, 0]"), kBothKinds, "a"),
              ElementsAre(WindowedLayer{0, 32}, WindowedLayer{1, 0}, WindowedLayer{1, 32},
                          WindowedLayer{2, 32}));
  EXPECT_THAT(layers_for(model_that_sees("1024"), kBothKinds, "a"),
              ElementsAre(WindowedLayer{1, 1024}));
}

TEST(LayerChoice, RefusesAWindowWiderThanAllThatWasRecorded) {
  const std::vector<WindowedLayer> narrow{{0, 512}, {1, 256}};
  EXPECT_THAT(
      user_error_of([&] {
        static_cast<void>(layers_for(model_that_sees("[512, 0, 512, 512]"), narrow, "a.h5"));
      }),
      AllOf(HasSubstr("tiny.json"), HasSubstr("sliding_window"), HasSubstr("a.h5"),
            HasSubstr("all tokens"), HasSubstr("the latest 256 tokens and the latest 512")));
}

}  // namespace
}  // namespace kvreplay
