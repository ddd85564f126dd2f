#include "sim/time/model_config.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>

#include "sim/time/model_spec.hpp"
#include "tests/support/user_error.hpp"

namespace kvreplay {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

ConvertedModel converted(const std::string& text) {
  return model_of_config(ConfigNode::parse(text, "config.json"), "A model", "Hugging Face x/y");
}

/// The members of a config.json that the sources of each preset name, with its values.
const std::pair<const char*, const char*> kConfigs[] = {
    {"qwen3-0.6b",
     R"({"model_type": "qwen3", "num_hidden_layers": 28, "hidden_size": 1024,
         "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
         "intermediate_size": 3072, "vocab_size": 151936, "torch_dtype": "bfloat16",
         "tie_word_embeddings": true, "sliding_window": null, "use_sliding_window": false,
         "max_window_layers": 28})"},
    {"gemma-3-1b",
     R"({"model_type": "gemma3_text", "num_hidden_layers": 26, "hidden_size": 1152,
         "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
         "intermediate_size": 6912, "vocab_size": 262144, "torch_dtype": "bfloat16",
         "sliding_window": 512, "sliding_window_pattern": 6})"},
    {"phi-4-mini",
     R"({"model_type": "phi3", "num_hidden_layers": 32, "hidden_size": 3072,
         "num_attention_heads": 24, "num_key_value_heads": 8, "intermediate_size": 8192,
         "vocab_size": 200064, "torch_dtype": "bfloat16", "tie_word_embeddings": true})"},
    {"lfm2-1.2b",
     R"({"model_type": "lfm2", "num_hidden_layers": 16, "hidden_size": 2048,
         "num_attention_heads": 32, "num_key_value_heads": 8, "block_ff_dim": 12288,
         "block_auto_adjust_ff_dim": true, "block_multiple_of": 256, "vocab_size": 65536,
         "torch_dtype": "bfloat16", "conv_dim": 2048, "conv_L_cache": 3,
         "full_attn_idxs": [2, 5, 8, 10, 12, 14]})"},
    {"qwen3.5-0.8b",
     R"({"model_type": "qwen3_5", "tie_word_embeddings": true, "text_config": {
         "model_type": "qwen3_5_text", "num_hidden_layers": 24, "hidden_size": 1024,
         "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
         "intermediate_size": 3584, "vocab_size": 248320, "dtype": "bfloat16",
         "full_attention_interval": 4, "attn_output_gate": true, "linear_num_key_heads": 16,
         "linear_num_value_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
         "linear_conv_kernel_dim": 4, "mamba_ssm_dtype": "float32"}})"},
    {"gpt-oss-20b",
     R"({"model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880,
         "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
         "intermediate_size": 2880, "vocab_size": 201088, "tie_word_embeddings": false,
         "sliding_window": 128, "num_local_experts": 32, "num_experts_per_tok": 4,
         "quantization_config": {"quant_method": "mxfp4"}})"},
    {"qwen3-30b-a3b",
     R"({"model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048,
         "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
         "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
         "num_experts_per_tok": 8, "vocab_size": 151936, "torch_dtype": "bfloat16",
         "tie_word_embeddings": false, "decoder_sparse_step": 1, "mlp_only_layers": []})"},
};

TEST(ModelOfConfig, IsThePresetOfTheSameModel) {
  for (const auto& [preset, config] : kConfigs) {
    const ModelSpec wanted = ModelSpec::load(ConfigFolder::standard().file("models", preset, {}));
    const ModelSpec made =
        ModelSpec::parse(ConfigNode::parse(converted(config).json, "made.json"), "made");
    for (const auto& [name, argument] : wanted.arguments.all()) {
      EXPECT_EQ(to_text(made.arguments.all().at(name).value), to_text(argument.value))
          << preset << ": " << name;
    }
    EXPECT_EQ(made.by_layer, wanted.by_layer) << preset;
    EXPECT_EQ(made.weight_bytes(), wanted.weight_bytes()) << preset;
    EXPECT_EQ(made.kv_kinds(), wanted.kv_kinds()) << preset;
  }
}

TEST(ModelOfConfig, EveryNumberHasItsSource) {
  const ConvertedModel made = converted(kConfigs[0].second);
  const json file = json::parse(made.json);
  EXPECT_EQ(file["title"], "A model");
  EXPECT_EQ(file["layers"]["source"], "Hugging Face x/y, config.json: num_hidden_layers");
  for (const auto& [name, member] : file.items()) {
    if (name == "title" || name == "source") continue;
    EXPECT_THAT(member["source"].get<std::string>(), HasSubstr("config.json: ")) << name;
  }
  EXPECT_TRUE(made.notes.empty());
}

std::string llama(const std::string& more = "") {
  return R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
             "num_attention_heads": 8, "intermediate_size": 96, "vocab_size": 100)" +
         more + "}";
}

TEST(ModelOfConfig, WhatIsLeftOutHasTheDefaultOfItsType) {
  const ModelSpec made =
      ModelSpec::parse(ConfigNode::parse(converted(llama()).json, "made.json"), "made");
  EXPECT_EQ(made.kv_heads, 8);
  EXPECT_EQ(made.head_dim, 8);
  EXPECT_EQ(made.weight_bits, 16);
  EXPECT_FALSE(made.tied_embeddings);
  EXPECT_FALSE(made.has_windows());
}

TEST(ModelOfConfig, OtherForms) {
  const auto of = [](const std::string& text) {
    return ModelSpec::parse(ConfigNode::parse(converted(text).json, "made.json"), "made");
  };
  // Two matrices of a layer that is not gated count as two thirds of three.
  const ModelSpec gpt2 = of(R"({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12,
                                "vocab_size": 50257})");
  EXPECT_EQ(gpt2.layer(0).ffn_weights, 2 * 768 * 3072);
  EXPECT_TRUE(gpt2.tied_embeddings);
  EXPECT_EQ(of(llama(R"(, "sliding_window": 4096)")).kv_shape().sliding_window, 4096);
  EXPECT_EQ(of(llama(R"(, "quantization_config": {"quant_method": "awq", "bits": 4,
                          "group_size": 128})"))
                .weight_bits,
            4.125);
  EXPECT_EQ(of(llama(R"(, "dtype": "float32")")).weight_bits, 32);
  // Qwen2: the windows begin at max_window_layers.
  const ModelSpec later =
      of(llama(R"(, "sliding_window": 32, "use_sliding_window": true, "max_window_layers": 1)"));
  ASSERT_EQ(later.kv_kinds().size(), 2U);
  EXPECT_EQ(later.kv_kinds()[0].sliding_window, 0);
  EXPECT_EQ(later.kv_kinds()[1].sliding_window, 32);
  // The first layer without experts.
  const ModelSpec mixed = of(llama(
      R"(, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
         "n_shared_experts": 1, "first_k_dense_replace": 1)"));
  EXPECT_EQ(mixed.layer(0).experts, 0);
  EXPECT_EQ(mixed.layer(0).ffn_weights, 3 * 64 * 96);
  EXPECT_EQ(mixed.layer(1).experts, 4);
  EXPECT_EQ(mixed.layer(1).ffn_weights, 3 * 64 * 24);
}

TEST(ModelOfConfig, AnUnknownTypeIsTold) {
  std::string text = llama(R"(, "tie_word_embeddings": false)");
  text.replace(text.find("llama"), 5, "novel");
  EXPECT_THAT(converted(text).notes, testing::ElementsAre(HasSubstr("'novel'")));
  text = llama();
  text.replace(text.find("llama"), 5, "novel");
  EXPECT_THAT(user_error_of([&] { (void)converted(text); }),
              AllOf(HasSubstr("'tie_word_embeddings' is missing"), HasSubstr("'novel'")));
}

TEST(ModelOfConfig, RefusesByNameWhatNoMemberSays) {
  const auto error = [](const std::string& text) {
    return user_error_of([&] { (void)converted(text); });
  };
  EXPECT_THAT(error(llama(R"(, "kv_lora_rank": 512)")),
              AllOf(HasSubstr("config.json: /kv_lora_rank"), HasSubstr("multi-head latent")));
  EXPECT_THAT(error(llama(R"(, "mamba_d_state": 16)")), HasSubstr("state space"));
  EXPECT_THAT(error(llama(R"(, "is_encoder_decoder": true)")), HasSubstr("an encoder"));
  EXPECT_THAT(error(llama(R"(, "layer_types": ["full_attention", "hyper"])")),
              HasSubstr("layers of type 'hyper'"));
  EXPECT_THAT(error(llama(R"(, "layer_types": ["full_attention"])")),
              HasSubstr("one for each of 2"));
  EXPECT_THAT(error("{}"),
              AllOf(HasSubstr("'num_hidden_layers', 'hidden_size', 'num_attention_heads'"),
                    HasSubstr("'vocab_size' are missing")));
  EXPECT_THAT(error(llama(R"(, "num_key_value_heads": "eight")")),
              HasSubstr("/num_key_value_heads: found"));
}

}  // namespace
}  // namespace kvreplay
