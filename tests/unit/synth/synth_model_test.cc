#include "tools/dev/synth/synth_model.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "lib/input/gguf_config.h"
#include "lib/input/tokenizer_source.h"
#include "lib/text/tokenizer/tokenizer.h"
#include "tests/support/diag_text.h"
#include "tests/support/paths.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"
#include "tools/dev/synth/random_blocks.h"
#include "tools/dev/synth/type_mix.h"

namespace ktx::synth {
namespace {

using input::GgufFile;
using input::HfConfig;
using ktx::testing::read_file;
using ktx::testing::TempDir;
using ktx::testing::test_models_dir;
using ktx::testing::text_of;

Result<GgufFile> make(const TempDir& dir, const HfConfig& config, SynthOptions options,
                      int threads = 2) {
  options.pool_bytes = size_t{1} << 18;
  const auto writer = synthesise(config, options);
  if (!writer.ok()) return Error{writer.error()};
  KTX_TRY(writer->write(dir.path("s.gguf"), threads));
  return GgufFile::open(dir.path("s.gguf"));
}

// The converters and llama-quantize wrote the test models; ours must have the same
// tensors, shapes and types, and metadata that say the same.
TEST(SynthModel, HasTheTensorsAndTypesOfTheTestModels) {
  int count = 0;
  for (const char* name : ktx::testing::present_models()) {
    SCOPED_TRACE(name);
    const std::string folder = ktx::testing::test_model_dir(name);
    const auto real = GgufFile::open(folder + "/" + name + "-q4_k_m.gguf");
    const auto config = HfConfig::read(folder);
    if (!real.ok() || !config.ok()) continue;
    const TempDir dir;
    const auto synth = make(dir, *config, {.vocabulary = &*real});
    ASSERT_TRUE(synth.ok()) << synth.error().message;
    EXPECT_EQ(synth->tensors().size(), real->tensors().size());
    // llama.cpp quantises neither of these two itself, so their types are others.
    const bool same_types = std::string(name) != "deepseek2" && std::string(name) != "deepseek2g";
    for (const input::GgufTensor& tensor : real->tensors()) {
      const input::GgufTensor* ours = synth->find(tensor.name);
      ASSERT_NE(ours, nullptr) << tensor.name;
      EXPECT_EQ(ours->shape, tensor.shape) << tensor.name;
      if (same_types) {
        EXPECT_EQ(ktx::name(ours->dtype), ktx::name(tensor.dtype)) << tensor.name;
      }
    }
    DiagSink diags;
    input::merge_configs(*config, *synth, input::Trust::Neither, diags);
    EXPECT_EQ(text_of(diags), "");
    ++count;
  }
  if (count == 0) GTEST_SKIP() << "no models under " << test_models_dir();
}

TEST(SynthModel, TheRealConfigsGiveHeadersThatAgree) {
  const std::string folder = source_dir() + "/tests/configs";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path());
    const auto config = HfConfig::read(entry.path());
    const auto writer = synthesise(*config, {});
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    const TempDir dir;
    const auto gguf =
        GgufFile::open(dir.write("h.gguf", writer->header()), {.header_only_ok = true});
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    DiagSink diags;
    input::merge_configs(*config, *gguf, input::Trust::Neither, diags);
    EXPECT_EQ(text_of(diags), "");
  }
}

TEST(SynthModel, BytesDependOnTheSeedAndNotOnThreads) {
  const auto config = HfConfig::read(test_models_dir() + "/qwen3moe");
  if (!config.ok()) GTEST_SKIP() << config.error().message;
  const TempDir dir;
  ASSERT_TRUE(make(dir, *config, {}, 1).ok());
  const std::string one = read_file(dir.path("s.gguf"));
  ASSERT_TRUE(make(dir, *config, {}, 4).ok());
  EXPECT_EQ(one, read_file(dir.path("s.gguf")));
  ASSERT_TRUE(make(dir, *config, {.seed = 2}).ok());
  EXPECT_NE(one, read_file(dir.path("s.gguf")));
}

TEST(SynthModel, ItsTokenizerEncodesAnyText) {
  const auto config = HfConfig::read(test_models_dir() + "/qwen3moe");
  if (!config.ok()) GTEST_SKIP() << config.error().message;
  const TempDir dir;
  const auto gguf = make(dir, *config, {.layers = 1});
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  auto data = input::read_gguf_tokenizer(*gguf);
  ASSERT_TRUE(data.ok()) << data.error().message;
  const auto tokenizer = text::Tokenizer::create(data.take());
  ASSERT_TRUE(tokenizer.ok());
  const std::string text = "The fox says 你好 in the rain.\n\x01";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST(SynthModel, OldAndExtraFormsOpen) {
  const auto deepseek = HfConfig::read(test_models_dir() + "/deepseek3");
  const auto mixtral = HfConfig::read(test_models_dir() + "/mixtral");
  if (!deepseek.ok() || !mixtral.ok()) GTEST_SKIP() << "no models under " << test_models_dir();
  const TempDir dir;
  DiagSink diags;
  const auto old_mla = make(dir, *deepseek, {.unsplit_kv = true, .mtp = true});
  ASSERT_TRUE(old_mla.ok()) << old_mla.error().message;
  EXPECT_TRUE(old_mla->has("blk.0.attn_kv_b.weight"));
  EXPECT_TRUE(old_mla->has("blk.3.nextn.eh_proj.weight"));
  input::merge_configs(*deepseek, *old_mla, input::Trust::Neither, diags);
  EXPECT_EQ(text_of(diags), "");
  const auto old_experts = make(dir, *mixtral, {.split_experts = true});
  ASSERT_TRUE(old_experts.ok()) << old_experts.error().message;
  EXPECT_TRUE(old_experts->has("blk.2.ffn_down.7.weight"));
}

// As converters do, it writes nothing about a missing matrix. But llama.cpp knows such models by
// their number of layers, so that a model with fewer layers has to say it.
TEST(SynthModel, ACutModelWithoutAQueryMatrixSaysSo) {
  const auto whole = HfConfig::read(std::string(shared_dir()) + "/configs/DeepSeek-V2-Lite.json");
  if (!whole.ok()) GTEST_SKIP() << whole.error().message;
  const auto rank = [&](std::optional<int64_t> layers) {
    const auto writer = synthesise(*whole, {.layers = layers});
    EXPECT_TRUE(writer.ok());
    return writer->header().find("deepseek2.attention.q_lora_rank") != std::string::npos;
  };
  EXPECT_FALSE(rank(std::nullopt));
  EXPECT_TRUE(rank(2));
}

TEST(SynthModel, MissingKeysAndUnknownNamesAreErrors) {
  const auto config = HfConfig::parse(R"({"model_type": "qwen3"})", "c.json");
  EXPECT_EQ(synthesise(*config, {}).error().message,
            "c.json: key 'hidden_size' is missing or no count above 0");
  EXPECT_THAT(synthesise(*config, {.types = "q4_k_n"}).error().message,
              ::testing::HasSubstr("did you mean 'q4_k_m'?"));
}

TEST(RandomBlocks, EveryTypeHasZeroMeanAndTheAskedDeviation) {
  for (const DTypeInfo& row : all_dtypes()) {
    if (row.dtype == DType::I32) continue;
    SCOPED_TRACE(row.name);
    for (const float sigma : {1.f, 0.02f, 0.002f}) {
      const BlockPool pool(row.dtype, sigma, 7, 1 << 19);
      const auto bytes = pool.bytes();
      std::vector<float> values(bytes.size() / static_cast<size_t>(row.block_bytes) *
                                static_cast<size_t>(row.block_elems));
      dequantize_row(row.dtype, bytes.data(), static_cast<int64_t>(values.size()), values.data());
      double sum = 0, squares = 0;
      for (const float value : values) {
        ASSERT_TRUE(std::isfinite(value));
        sum += value;
        squares += double{value} * value;
      }
      const auto n = static_cast<double>(values.size());
      // Formats of few levels cannot be as small as asked when scales are normal halves.
      const double deviation = std::sqrt(squares / n);
      EXPECT_GT(deviation, 0.5 * sigma);
      EXPECT_LT(deviation, 6.0 * sigma);
      EXPECT_LT(std::fabs(sum / n), 0.03 * deviation);
    }
  }
}

TEST(RandomBlocks, AreTheSameInWhateverOrderTheyAreRead) {
  for (const DTypeInfo& row : all_dtypes()) {
    if (row.dtype == DType::I32) continue;
    const auto block = static_cast<size_t>(row.block_bytes);
    const BlockPool whole(row.dtype, 0.5f, 7, 5000 * block),
        parts(row.dtype, 0.5f, 7, 5000 * block);
    ASSERT_EQ(whole.bytes().size(), 5000 * block);
    std::vector<std::byte> a(3000 * block), b(a.size());
    whole.fill(9, 0, a);
    for (const size_t at : {2100, 0, 900}) {
      const size_t blocks = at == 0 ? 900 : at == 900 ? 1200 : 900;
      parts.fill(9, at * block, std::span(b).subspan(at * block, blocks * block));
    }
    EXPECT_TRUE(a == b) << row.name;
  }
}

TEST(TypeMix, FollowsTheQuantisersRules) {
  const auto mix = *find_type_mix("q4_k_m");
  const MixFacts dense{.layers = 32, .experts = 0, .heads_per_kv_head = 4, .tied = false};
  const auto type = [&](const char* name, int64_t layer, int64_t row = 4096) {
    return mixed_type(mix, dense, name, layer, row);
  };
  EXPECT_EQ(type("blk.0.attn_v.weight", 0), DType::Q6_K);
  EXPECT_EQ(type("blk.4.attn_v.weight", 4), DType::Q4_K);
  EXPECT_EQ(type("blk.6.ffn_down.weight", 6), DType::Q6_K);
  EXPECT_EQ(type("blk.31.ffn_down.weight", 31), DType::Q6_K);
  EXPECT_EQ(type("blk.0.ffn_up.weight", 0), DType::Q4_K);
  EXPECT_EQ(type("output.weight", -1), DType::Q6_K);
  EXPECT_EQ(type("token_embd.weight", -1), DType::Q4_K);
  EXPECT_EQ(type("blk.0.attn_k_b.weight", 0, 128), DType::Q5_0);
  EXPECT_EQ(type("blk.0.ffn_down.weight", 0, 10944), DType::Q8_0);
  EXPECT_EQ(type("blk.4.ffn_up.weight", 4, 33), DType::F16);
  const MixFacts eight{.layers = 32, .experts = 8, .heads_per_kv_head = 4, .tied = true};
  EXPECT_EQ(mixed_type(mix, eight, "blk.4.attn_k.weight", 4, 4096), DType::Q8_0);
  EXPECT_EQ(mixed_type(mix, eight, "blk.4.attn_output.weight", 4, 4096), DType::Q5_K);
  EXPECT_EQ(mixed_type(mix, eight, "token_embd.weight", -1, 4096), DType::Q6_K);
}

TEST(TypeMix, EachHasAllTypesThatARowCanHave) {
  const auto mix = *find_type_mix("each");
  const auto types = [&](int64_t row, uint64_t seed) {
    const MixFacts facts{.layers = 4, .seed = seed};
    std::vector<DType> found;
    for (int i = 0; i < 400; ++i) {
      found.push_back(mixed_type(mix, facts, "blk." + std::to_string(i) + ".x", i, row));
    }
    return found;
  };
  const auto kinds = [](const std::vector<DType>& found) {
    return std::set<DType>(found.begin(), found.end()).size();
  };
  EXPECT_EQ(kinds(types(256, 1)), all_dtypes().size() - 1);  // but I32
  EXPECT_EQ(kinds(types(33, 1)), 3u);                        // F32, F16, BF16
  EXPECT_EQ(types(256, 1), types(256, 1));
  EXPECT_NE(types(256, 1), types(256, 2));
}

}  // namespace
}  // namespace ktx::synth
