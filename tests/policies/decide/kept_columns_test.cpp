#include "policies/decide/kept_columns.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/config_folder.hpp"
#include "tests/support/random_layer.hpp"

namespace kvreplay {
namespace {

TEST(KeptColumns, AsManyAsTheModelKeeps) {
  // 32 of a model's 1,024 columns, on a recording of 256 columns whose adapter has 48.
  const KeptColumns kept = kept_columns(32, 1024, 256, 48);
  EXPECT_EQ(kept.used, 32);
  // Projected by width, 8 columns of 256 are 32 of 1,024.
  EXPECT_EQ(kept.cost_per_column * 32, 8);
}

TEST(KeptColumns, NoMoreThanThereAre) {
  const KeptColumns kept = kept_columns(128, 1024, 192, 48);
  EXPECT_EQ(kept.used, 48);
  EXPECT_EQ(kept.cost_per_column * 48, 24);
  EXPECT_EQ(kept_columns(0, 1024, 192, 48).used, 1);
}

TEST(KeptColumns, OfItsOwnModelAreTheShare) {
  const KeptColumns kept = kept_columns(8, 256, 256, 48);
  EXPECT_EQ(kept.used, 8);
  EXPECT_EQ(kept.cost_per_column, 1);
}

DecideSpec partial(const std::string& ratio) {
  return decide_spec(R"({"stream": {"heads": "kv_head"}, "grouping": {"part": "token"},
    "scoring": {"part": "partial", "ratio": )" +
                     ratio + R"(},
    "selection": {"part": "top_groups", "budget_tokens": 9}})");
}

/// A model whose heads are twice as wide keeps twice the columns of the same share: what is picked
/// is what twice the share picks, and the cost, which stage 2 projects, is that of the share.
TEST(KeptColumns, AProjectionSelectsAsTheModelWould) {
  RandomLayer layer(60, 12);
  RandomLayer projected = layer;
  projected.shape.model_heads = {layer.shape.kv_heads, 2 * layer.shape.head_dim};
  const LayerLog share = replay_layer(layer, partial("0.25"));
  const LayerLog twice = replay_layer(layer, partial("0.5"));
  const LayerLog model = replay_layer(projected, partial("0.25"));
  for (std::size_t s = 0; s < model.streams.size(); ++s) {
    EXPECT_EQ(model.streams[s].picked, twice.streams[s].picked);
    EXPECT_NE(model.streams[s].picked, share.streams[s].picked);
    EXPECT_EQ(model.streams[s].score_bytes, share.streams[s].score_bytes);
    EXPECT_EQ(model.streams[s].score_flops, share.streams[s].score_flops);
    EXPECT_EQ(model.streams[s].held_bytes, share.streams[s].held_bytes);
  }
}

TEST(KeptColumns, OnlySystemsThatCountColumnsDependOnTheModel) {
  const ConfigFolder configs = ConfigFolder::standard();
  const auto depends = [&](const std::string& name) {
    return DecideSpec::parse(ConfigNode::load(configs.file("systems", name, {})))
        .depends_on_model();
  };
  for (const char* name : {"kvswap", "infinigen", "loki", "shadowkv"}) EXPECT_TRUE(depends(name));
  for (const char* name : {"in_memory", "quest", "clusterkv", "pqcache", "dynakv", "h2o"}) {
    EXPECT_FALSE(depends(name)) << name;
  }
}

}  // namespace
}  // namespace kvreplay
