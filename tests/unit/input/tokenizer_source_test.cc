#include "lib/input/tokenizer_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lib/text/tokenizer/hf_tokenizer.h"
#include "lib/text/tokenizer/tokenizer.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tests/support/tiny_gguf.h"

namespace ktx::input {
namespace {

using namespace ktx::testing;
using ::testing::HasSubstr;

// Every test model's GGUF and HF tokenizers give the ids of the references.
TEST(TokenizerSource, ModelsGiveTheReferenceIds) {
  if (!std::filesystem::exists(test_models_dir()))
    GTEST_SKIP() << test_models_dir() << " is missing";
  int prompts = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(test_models_dir())) {
    const std::string folder = entry.path().parent_path();
    if (!entry.path().filename().string().ends_with("q4_k_m.gguf")) continue;
    SCOPED_TRACE(folder);
    const auto gguf = GgufFile::open(entry.path());
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    auto from_gguf = read_gguf_tokenizer(*gguf);
    ASSERT_TRUE(from_gguf.ok()) << from_gguf.error().message;
    auto from_hf = text::load_hf_tokenizer(folder);
    if (!from_hf.ok() && !std::filesystem::exists(folder + "/tokenizer.json")) continue;
    ASSERT_TRUE(from_hf.ok()) << from_hf.error().message;
    EXPECT_EQ(from_hf->data.ids.bos, from_gguf->ids.bos);
    EXPECT_EQ(from_hf->data.ids.eos, from_gguf->ids.eos);
    EXPECT_EQ(from_hf->data.eog, from_gguf->eog);
    const auto a = text::Tokenizer::create(from_gguf.take());
    const auto b = text::Tokenizer::create(from_hf.take().data);
    ASSERT_TRUE(a.ok() && b.ok());
    if (!std::filesystem::exists(folder + "/reference.json")) continue;
    const auto reference = nlohmann::json::parse(read_file(folder + "/reference.json"));
    for (const auto& one : reference["cases"]) {
      const std::string prompt = one["prompt"];
      const std::vector<int32_t> ids = one["prompt_ids"];
      EXPECT_EQ(a->encode(prompt, {.parse_special = true}), ids) << prompt;
      EXPECT_EQ(b->encode(prompt, {.parse_special = true}), ids) << prompt;
      ++prompts;
    }
  }
  EXPECT_GE(prompts, 1);
}

class GgufTokenizer : public ::testing::Test {
 protected:
  GgufTokenizer() {
    tiny_.tensors = {};
    tiny_.pairs = {
        gguf_str("general.architecture", "llama"),
        gguf_str("tokenizer.ggml.model", "llama"),
        gguf_strs("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<0x41>", "b"}),
        gguf_array("tokenizer.ggml.scores", 6, 5, le(0.f) + le(0.f) + le(0.f) + le(0.f) + le(-1.f)),
        gguf_array(
            "tokenizer.ggml.token_type", 5, 5,
            le<int32_t>(2) + le<int32_t>(3) + le<int32_t>(3) + le<int32_t>(6) + le<int32_t>(1)),
        gguf_u32("tokenizer.ggml.bos_token_id", 1),
        gguf_u32("tokenizer.ggml.eos_token_id", 2),
    };
  }
  std::string error() {
    const auto gguf = GgufFile::open(dir_.write("m.gguf", tiny_.bytes()));
    if (!gguf.ok()) return gguf.error().message;
    const auto data = read_gguf_tokenizer(*gguf);
    return data.ok() ? "" : data.error().message;
  }
  TempDir dir_;
  TinyGguf tiny_;
};

TEST_F(GgufTokenizer, OpensTheGoodControl) {
  EXPECT_EQ(error(), "");
}

TEST_F(GgufTokenizer, RefusesMissingAndUnknownKinds) {
  tiny_.pairs[1] = gguf_str("tokenizer.ggml.model", "rwkv");
  EXPECT_THAT(error(), HasSubstr("m.gguf: tokenizer.ggml.model 'rwkv' is not supported"));
  tiny_.pairs[1] = gguf_u32("tokenizer.ggml.model", 1);
  EXPECT_THAT(error(), HasSubstr("key 'tokenizer.ggml.model' is u32 1, expected a string"));
  tiny_.pairs.erase(tiny_.pairs.begin() + 1);
  EXPECT_THAT(error(), HasSubstr("key 'tokenizer.ggml.model' is missing"));
}

// Scores or types of another element type or count once led to reads past the end.
TEST_F(GgufTokenizer, RefusesConfusedArrays) {
  const TinyGguf good = tiny_;
  tiny_.pairs[2] = gguf_array("tokenizer.ggml.tokens", 4, 2, le(1u) + le(2u));
  EXPECT_THAT(error(),
              HasSubstr("'tokenizer.ggml.tokens' is array of 2 u32, expected an array of strings"));
  tiny_ = good;
  tiny_.pairs[3] = gguf_strs("tokenizer.ggml.scores", {"a", "b", "c", "d", "e"});
  EXPECT_THAT(error(), HasSubstr("'tokenizer.ggml.scores' is array of 5 string"));
  tiny_.pairs[3] = gguf_array("tokenizer.ggml.scores", 6, 2, le(0.f) + le(0.f));
  EXPECT_THAT(error(), HasSubstr("scores"));
  tiny_.pairs[3] = gguf_array("tokenizer.ggml.scores", 6, 5, std::string(20, '\xff'));
  EXPECT_THAT(error(), HasSubstr("not a number"));
  tiny_ = good;
  tiny_.pairs[4] = gguf_array("tokenizer.ggml.token_type", 6, 5, std::string(20, '\0'));
  EXPECT_THAT(error(), HasSubstr("token_type"));
  tiny_.pairs[4] = gguf_array("tokenizer.ggml.token_type", 11, 5, std::string(40, '\x7f'));
  EXPECT_EQ(error(), "");  // unknown numbers are undefined tokens
  tiny_.pairs[4] = gguf_array("tokenizer.ggml.token_type", 5, 1, le<int32_t>(1));
  EXPECT_THAT(error(), HasSubstr("token_type"));
}

// Ids past a tiny vocabulary, also those that wrap to a valid int32.
TEST_F(GgufTokenizer, RefusesIdsOutsideOfTheVocabulary) {
  for (const uint64_t id : {uint64_t{5}, uint64_t{32000}, uint64_t{0xFFFFFFFF},
                            (uint64_t{1} << 32) + 1, ~uint64_t{0}}) {
    tiny_.pairs[5] = gguf_pair("tokenizer.ggml.bos_token_id", 10, le(id));
    EXPECT_THAT(error(), HasSubstr("bos_token_id")) << id;
  }
  tiny_.pairs[5] = gguf_str("tokenizer.ggml.bos_token_id", "1");
  EXPECT_THAT(error(), HasSubstr("expected a token id"));
}

TEST_F(GgufTokenizer, RefusesByteTokensThatAreNone) {
  for (const char* text : {"<0x-1>", "<0xGG>", "<0x4>", "<0x041>", "0x41", "<0xFFFFFFF>"}) {
    tiny_.pairs[2] = gguf_strs("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", text, "b"});
    EXPECT_THAT(error(), HasSubstr("byte token")) << text;
  }
}

constexpr const char* kTiny = R"({"model": {"type": "BPE",
    "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]},
    "added_tokens": [{"id": 3, "content": "<s>", "special": true, "rstrip": true},
                     {"id": 6, "content": "<tool>", "special": false}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": {"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]}})";

TEST(HfTokenizer, EveryTruncationOfTheFilesIsHandled) {
  const TempDir dir;
  const std::string json = kTiny;
  for (size_t size = 1; size < json.size(); ++size) {
    EXPECT_FALSE(text::load_hf_tokenizer(dir.write("t.json", json.substr(0, size))).ok()) << size;
  }
  const std::string model = read_file(test_models_dir() + "/mixtral/tokenizer.model");
  if (model.empty()) GTEST_SKIP() << "no mixtral/tokenizer.model under " << test_models_dir();
  ASSERT_TRUE(text::load_hf_tokenizer(dir.write("t.model", model)).ok());
  for (size_t size = 1; size < model.size(); size += 37) {
    (void)text::load_hf_tokenizer(dir.write("t.model", model.substr(0, size)));  // must return
  }
  for (size_t at = 1; at < model.size(); at += 101) {
    std::string broken = model;
    broken[at] = '\xff';
    (void)text::load_hf_tokenizer(dir.write("t.model", broken));
  }
}

}  // namespace
}  // namespace ktx::input
