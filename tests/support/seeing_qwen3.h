// Small models of Qwen3-VL and Qwen3.5 that see, of random weights: the language models' configs
// and their towers.
//
//   ASSERT_TRUE(write_qwen3(dir, kQwen3Cases[0]));           // m.gguf, mmproj.gguf, config.json
//   const plan::ImagePatches image = random_patches(reader->facts(), 4, 6, 1);
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "lib/input/hf_config.h"
#include "lib/plan/plan_facts.h"
#include "tests/support/named_tokens.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tower_gguf.h"
#include "tools/dev/synth/synth_model.h"

namespace ktx::testing {

inline constexpr int32_t kStart = 300, kPad = 301, kEnd = 302;

struct Qwen3Case {
  const char* name;
  const char* config;  // of the language model
  TowerOptions options;
};
inline const Qwen3Case kQwen3Cases[] = {
    {"qwen3_vl",
     R"({"model_type": "qwen3_vl_text", "architectures": ["Qwen3VLForConditionalGeneration"],
         "hidden_act": "silu", "hidden_size": 96, "intermediate_size": 128, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24, "vocab_size": 512,
         "max_position_embeddings": 4096, "rms_norm_eps": 1e-06, "attention_bias": false,
         "rope_theta": 1000.0, "tie_word_embeddings": false, "rope_scaling": {
           "rope_type": "default", "mrope_interleaved": true, "mrope_section": [5, 4, 3]}})",
     {.image = 20,
      .patch = 4,
      .pool = 2,
      .hidden = 48,
      .heads = 3,
      .inner = 56,
      .layers = 3,
      .width = 96,
      .seed = 31,
      .projector = "qwen3vl_merger",
      .part_layers = {0, 2},
      .least_pixels = 256,
      .most_pixels = 2560}},
    {"qwen3_vl_moe",
     R"({"model_type": "qwen3_vl_moe_text", "architectures": ["Qwen3VLMoeForConditionalGeneration"],
         "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 512,
         "max_position_embeddings": 4096, "rms_norm_eps": 1e-06, "attention_bias": false,
         "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
         "decoder_sparse_step": 1, "mlp_only_layers": [], "rope_theta": 5000.0,
         "tie_word_embeddings": false, "rope_scaling": {
           "rope_type": "default", "mrope_interleaved": true, "mrope_section": [6, 5, 5]}})",
     {.image = 35,
      .patch = 5,
      .pool = 3,
      .hidden = 40,
      .heads = 2,
      .inner = 33,
      .layers = 2,
      .width = 64,
      .seed = 32,
      .projector = "qwen3vl_merger",
      .part_layers = {1},
      .least_pixels = 900,
      .most_pixels = 4500}},
    {"qwen3_5",
     R"({"model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"],
         "hidden_act": "silu", "hidden_size": 80, "intermediate_size": 112, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512,
         "max_position_embeddings": 4096, "rms_norm_eps": 1e-06, "full_attention_interval": 2,
         "layer_types": ["linear_attention", "full_attention", "linear_attention",
                         "full_attention"],
         "linear_conv_kernel_dim": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
         "linear_num_key_heads": 3, "linear_num_value_heads": 3, "tie_word_embeddings": false,
         "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0,
           "partial_rotary_factor": 0.5, "mrope_interleaved": true, "mrope_section": [3, 3, 2]}})",
     {.image = 18,
      .patch = 3,
      .pool = 2,
      .hidden = 32,
      .heads = 4,
      .inner = 40,
      .layers = 1,
      .width = 80,
      .seed = 33,
      .projector = "qwen3vl_merger",
      .least_pixels = 144,
      .most_pixels = 1440}},
};

// Heads as the published models have them, for which GPUs have kernels of their own: 64 in the
// language model, 72 in the tower, which reads up to 1024 patches.
inline const Qwen3Case kWideQwen3 = {
    "qwen3_vl_wide",
    R"({"model_type": "qwen3_vl_text", "architectures": ["Qwen3VLForConditionalGeneration"],
        "hidden_act": "silu", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 512,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-06, "attention_bias": false,
        "rope_theta": 5000.0, "tie_word_embeddings": false, "rope_scaling": {
          "rope_type": "default", "mrope_interleaved": true, "mrope_section": [12, 10, 10]}})",
    {.image = 20,
     .patch = 4,
     .pool = 2,
     .hidden = 288,
     .heads = 4,
     .inner = 320,
     .layers = 2,
     .width = 128,
     .seed = 34,
     .projector = "qwen3vl_merger",
     .part_layers = {0},
     .least_pixels = 256,
     .most_pixels = 16384}};

// `types`: of the language model's weights.
inline Status write_qwen3(const TempDir& dir, const Qwen3Case& c,
                          const std::string& types = "f32") {
  std::ofstream(dir.path("config.json")) << c.config;
  const input::HfConfig config = KTX_TRY(input::HfConfig::read(dir.path("config.json")));
  const auto made = synth::synthesise(config, {.types = types, .strong = true});
  if (!made) return made.error();
  KTX_TRY(made->write(dir.path("plain.gguf")));
  write_with_tokens(
      dir.path("plain.gguf"), dir.path("m.gguf"),
      {{kStart, "<|vision_start|>"}, {kPad, "<|image_pad|>"}, {kEnd, "<|vision_end|>"}});
  return write_tower(dir.path("mmproj.gguf"), c.options);
}

// An image of so many patches, in [-1, 1].
inline plan::ImagePatches random_patches(const plan::ImageFacts& facts, int64_t lines,
                                         int64_t columns, uint32_t seed) {
  plan::ImagePatches image;
  image.columns = columns;
  for (int64_t i = 0; i < lines * columns * facts.patch_floats(); ++i) {
    seed = seed * 1664525 + 1013904223;
    image.floats.push_back(static_cast<float>(seed >> 8) / 8388608.0f - 1);
  }
  return image;
}

}  // namespace ktx::testing
