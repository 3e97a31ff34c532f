#include "lib/input/model_source.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/support/temp_dir.h"
#include "tests/support/tiny_gguf.h"

namespace ktx::input {
namespace {

using namespace ktx::testing;
using ::testing::HasSubstr;

// A vocabulary-only GGUF beside whatever JSON files a test writes.
class ModelSourceTest : public ::testing::Test {
 protected:
  ModelSourceTest() {
    tiny_.tensors = {{"blk.0.attn_norm.weight", {32}, 0, 128}};
    tiny_.pairs = {
        gguf_str("general.architecture", "llama"),
        gguf_u32("llama.block_count", 2),
        gguf_str("tokenizer.ggml.model", "llama"),
        gguf_strs("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>"}),
        gguf_array("tokenizer.ggml.scores", 6, 3, std::string(12, '\0')),
        gguf_array("tokenizer.ggml.token_type", 5, 3,
                   le<int32_t>(2) + le<int32_t>(3) + le<int32_t>(3)),
    };
  }
  Result<ModelSource> open(ModelInputs inputs = {}) {
    inputs.gguf_path = dir_.write("m.gguf", tiny_.bytes());
    return open_model(inputs, diags_);
  }
  std::string first_message() const { return diags_.all().empty() ? "" : diags_.all()[0].message; }

  TempDir dir_;
  TinyGguf tiny_;
  DiagSink diags_;
};

TEST_F(ModelSourceTest, NeedsNothingBesideTheGguf) {
  const auto source = open();
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->config.i64("num_hidden_layers"), 2);
  EXPECT_EQ(source->config.i64("vocab_size"), 3);
  EXPECT_EQ(source->tokenizer.tokens.size(), 3u);
  EXPECT_TRUE(source->chat_templates.empty());
  EXPECT_EQ(diags_.all().size(), 0u);
}

TEST_F(ModelSourceTest, FindsTheFilesBesideIt) {
  dir_.write("config.json", R"({"model_type": "llama", "hidden_size": 64, "eos_token_id": 2})");
  dir_.write("generation_config.json",
             R"({"temperature": 0.6, "top_k": 20, "eos_token_id": [2, 1, 99, -1]})");
  dir_.write("tokenizer_config.json", R"({"chat_template": "T"})");
  const auto source = open();
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ(source->config.i64("hidden_size"), 64);
  EXPECT_EQ(source->generation.temperature, 0.6);
  EXPECT_EQ(source->generation.top_k, 20);
  EXPECT_EQ(source->generation.eos_token_ids, (std::vector<int64_t>{2, 1}));
  ASSERT_EQ(source->chat_templates.size(), 1u);
  EXPECT_EQ(source->chat_templates[0].text, "T");
}

TEST_F(ModelSourceTest, TheGgufsTemplatesComeFirst) {
  dir_.write("tokenizer_config.json", R"({"chat_template": "other"})");
  tiny_.pairs.push_back(gguf_str("tokenizer.chat_template.tool_use", "tools"));
  tiny_.pairs.push_back(gguf_str("tokenizer.chat_template", "default"));
  tiny_.pairs.push_back(gguf_strs("tokenizer.chat_templates", {"tool_use"}));
  const auto source = open();
  ASSERT_TRUE(source.ok());
  ASSERT_EQ(source->chat_templates.size(), 2u);
  EXPECT_EQ(source->chat_templates[0].text, "default");
  EXPECT_EQ(source->chat_templates[1].name, "tool_use");
}

TEST_F(ModelSourceTest, ReadsListsOfTemplatesAndJinjaFiles) {
  dir_.write("tokenizer_config.json",
             R"({"chat_template": [{"name": "tool_use", "template": "A"},
                                   {"name": "default", "template": "B"}]})");
  auto source = open();
  ASSERT_TRUE(source.ok());
  ASSERT_EQ(source->chat_templates.size(), 2u);
  EXPECT_EQ(source->chat_templates[0].text, "B");
  dir_.write("chat_template.jinja", "C");
  source = open();
  EXPECT_EQ(source->chat_templates[0].text, "C");
}

TEST_F(ModelSourceTest, ABrokenConfigIsAnError) {
  dir_.write("config.json", "{");
  const auto source = open();
  ASSERT_FALSE(source.ok());
  EXPECT_THAT(source.error().message, HasSubstr("config.json:1:"));
}

TEST_F(ModelSourceTest, ABrokenOptionalFileIsAWarning) {
  dir_.write("generation_config.json", "{");
  EXPECT_TRUE(open().ok());
  EXPECT_THAT(first_message(), HasSubstr("going on without it"));
  EXPECT_EQ(diags_.warnings(), 1);
}

TEST_F(ModelSourceTest, AMissingNamedConfigIsAnError) {
  const auto source = open({.gguf_path = "", .hf_config_path = dir_.path("elsewhere")});
  ASSERT_FALSE(source.ok());
  EXPECT_THAT(source.error().message, HasSubstr("elsewhere"));
}

TEST_F(ModelSourceTest, MoreTokensThanEmbeddingsAreAnError) {
  tiny_.pairs.push_back(gguf_u32("llama.vocab_size", 2));
  EXPECT_TRUE(open().ok());
  EXPECT_EQ(diags_.errors(), 1);
  EXPECT_THAT(first_message(),
              HasSubstr("the tokenizer has 3 tokens, expected at most vocab_size, 2"));
}

}  // namespace
}  // namespace ktx::input
