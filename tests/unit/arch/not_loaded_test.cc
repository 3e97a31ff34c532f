#include "lib/families/not_loaded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "lib/arch/build_graph.h"
#include "lib/families/family.h"
#include "lib/input/gguf.h"
#include "lib/input/gguf_writer.h"
#include "lib/input/hf_config.h"
#include "lib/input/other_ggufs.h"
#include "lib/support/strings.h"
#include "tests/support/paths.h"

namespace ktx::families {
namespace {

// What general.architecture may be in files for llama.cpp of August 2026 (its LLM_ARCH_NAMES).
constexpr std::string_view kLlamaCpp =
    "clip llama llama4 deci falcon grok gpt2 gptj gptneox mpt baichuan starcoder refact bert "
    "modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert bloom "
    "stablelm qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3next qwen3vl qwen3vlmoe qwen35 "
    "qwen35moe phi2 phi3 phimoe plamo plamo2 plamo3 codeshell orion internlm2 minicpm "
    "minicpm3 gemma gemma2 gemma3 gemma3n gemma4 gemma4-assistant gemma-embedding starcoder2 "
    "mamba mamba2 jamba falcon-h1 xverse command-r cohere2 cohere2moe dbrx olmo olmo2 olmoe "
    "openelm arctic deepseek deepseek2 deepseek2-ocr deepseek32 deepseek4 chatglm glm4 "
    "glm4moe glm-dsa bitnet t5 t5encoder jais jais2 nemotron nemotron_h nemotron_h_moe exaone "
    "exaone4 exaone-moe rwkv6 rwkv6qwen2 rwkv7 arwkv7 granite granitemoe granitehybrid "
    "chameleon wavtokenizer-dec plm bailingmoe bailingmoe2 dots1 arcee afmoe laguna ernie4_5 "
    "ernie4_5-moe hunyuan-moe hunyuan-dense hunyuan_vl hy_v3 smollm3 gpt-oss lfm2 lfm2moe "
    "dream smallthinker llada llada-moe seed_oss grovemoe apertus minimax-m2 minimax-m3 "
    "cogvlm rnd1 pangu-embedded mistral3 eagle3 dflash mistral4 paddleocr mimo2 step35 "
    "llama-embed maincoder kimi-linear talkie mellum nanbeige qwen3tts";

std::string refusal_of(std::string_view name) {
  input::HfConfig config;
  config.set_file("model.gguf");
  config.set("model_type", std::string(name), input::ConfigOrigin::Gguf);
  const Status status = arch::accept_architecture(config);
  return status.ok() ? "" : status.error().message;
}

TEST(NotLoaded, EachSaysWhatItWouldNeed) {
  for (const NotLoaded& row : all_not_loaded()) {
    for (std::string_view name : split(row.names, ' ')) {
      EXPECT_EQ(refusal_of(name), "model.gguf: '" + std::string(name) +
                                      "' is not loaded: it would need " + std::string(row.needs) +
                                      " [KTX-C002]");
    }
  }
}

TEST(NotLoaded, NoneHasAFamilyOrTwoRows) {
  std::set<std::string_view> seen;
  for (const Family* family : all_families()) {
    seen.insert(family->gguf_arch);
    for (std::string_view type : split(family->model_types, ' ')) seen.insert(type);
  }
  for (const NotLoaded& row : all_not_loaded()) {
    for (std::string_view name : split(row.names, ' ')) {
      EXPECT_TRUE(seen.insert(name).second) << name;
    }
  }
}

// A family stores its models so, or a file is refused with what it is or what it would need.
TEST(NotLoaded, NoArchitectureOfLlamaCppIsUnknown) {
  std::set<std::string_view> stored;
  for (const Family* family : all_families()) stored.insert(family->gguf_arch);
  const ktx::testing::TempDir dir;
  for (std::string_view name : split(kLlamaCpp, ' ')) {
    if (stored.contains(name)) continue;
    input::GgufWriter writer;
    writer.add_string("general.architecture", name);
    writer.add_tensor("token_embd.weight", DType::F32, {2, 1}, std::vector<std::byte>(8));
    ASSERT_TRUE(writer.write(dir.path("m.gguf")));
    const auto gguf = input::GgufFile::open(dir.path("m.gguf"));
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    const Status status = input::check_language_model(*gguf);
    EXPECT_THAT(status.ok() ? refusal_of(name) : status.error().message,
                ::testing::AnyOf(::testing::HasSubstr("it would need "),
                                 ::testing::HasSubstr(": this is ")))
        << name;
  }
}

TEST(NotLoaded, OthersAreUnknown) {
  EXPECT_EQ(needs_of(""), "");
  EXPECT_EQ(needs_of("jam"), "");
  EXPECT_THAT(refusal_of("jam"), ::testing::HasSubstr("unknown architecture 'jam'"));
}

}  // namespace
}  // namespace ktx::families
