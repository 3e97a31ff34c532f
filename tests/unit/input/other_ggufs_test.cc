// GGUF files that are not language models are named for what they are.
#include "lib/input/other_ggufs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lib/input/model_source.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_gguf.h"

namespace ktx::input {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace ktx::testing;

// What open_model() says of a file with these keys.
std::string refusal(const std::vector<std::string>& pairs, bool weights = true) {
  const TempDir dir;
  TinyGguf gguf = TinyGguf::good();
  gguf.pairs = pairs;
  if (!weights) gguf.tensors.clear();
  DiagSink diags;
  const auto source = open_model({.gguf_path = dir.write("m.gguf", gguf.bytes())}, diags);
  return source.ok() ? "" : source.error().message;
}

// None has a tokenizer, but the message must not be about what is missing of it.
TEST(OtherGgufs, EveryRowIsNamedBeforeTheTokenizer) {
  constexpr const char* Type = "general.type";
  constexpr const char* Architecture = "general.architecture";
  constexpr const char* Adapter = "adapter.type";
  int rows = 0;
  const auto expect = [&](const char* key, const char* value, const char* what, const char* mend) {
    ++rows;
    std::vector<std::string> pairs = {gguf_str(key, value)};
    // A LoRA adapter has the architecture of its model.
    if (key != Architecture) pairs.push_back(gguf_str(Architecture, "llama"));
    const std::string said = refusal(pairs);
    EXPECT_THAT(said,
                AllOf(HasSubstr(std::string("m.gguf: this is ") + what),
                      HasSubstr(std::string("is '") + value + "'), not a causal language model; "),
                      HasSubstr(mend), HasSubstr("[KTX-C002]")));
    EXPECT_THAT(said, ::testing::Not(HasSubstr("tokenizer.ggml")));
  };
#define KTX_OTHER_GGUF(key, value, what, mend) expect(key, value, what, mend);
#include "lib/input/other_ggufs.def"
#undef KTX_OTHER_GGUF
  EXPECT_GE(rows, 30);
}

TEST(OtherGgufs, UnknownTypesAndFilesWithoutWeightsAreRefused) {
  const std::string llama = gguf_str("general.architecture", "llama");
  EXPECT_THAT(refusal({llama, gguf_str("general.type", "dataset")}),
              HasSubstr("general.type is 'dataset', not 'model'"));
  EXPECT_THAT(refusal({llama, gguf_strs("tokenizer.ggml.tokens", {"a"})}, false),
              HasSubstr("holds no weights, a vocabulary only; give the GGUF of the model itself"));
  EXPECT_THAT(refusal({llama}, false), HasSubstr("m.gguf: holds no weights; give"));
  // A model goes on to its tokenizer.
  EXPECT_THAT(refusal({llama, gguf_str("general.type", "model")}),
              HasSubstr("tokenizer.ggml.model"));
}

TEST(OtherGgufs, WhatNobodyCanBuildIsToldBeforeTheTokenizer) {
  const TempDir dir;
  TinyGguf gguf = TinyGguf::good();
  gguf.pairs = {gguf_str("general.architecture", "mamba")};
  ModelInputs inputs = {.gguf_path = dir.write("m.gguf", gguf.bytes())};
  inputs.accept = [](const HfConfig& config) -> Status {
    return Error{"unknown '" + config.model_type() + "'"};
  };
  DiagSink diags;
  const auto source = open_model(inputs, diags);
  ASSERT_FALSE(source.ok());
  EXPECT_EQ(source.error().message, "unknown 'mamba'");
}

TEST(OtherGgufs, FilesFromBeforeGgufAreNamed) {
  const TempDir dir;
  const auto said = [&](const std::string& bytes) {
    DiagSink diags;
    return open_model({.gguf_path = dir.write("f", bytes)}, diags).error().message;
  };
  const std::string name = "blk.0.attn_q.weight";
  EXPECT_THAT(said(le<int32_t>(224) + le<int32_t>(19) + name + std::string(64, '\1')),
              HasSubstr("it is an importance matrix (imatrix.dat), data for quantising; give"));
  EXPECT_THAT(said("lmgg" + std::string(64, '\1')),
              HasSubstr("it is a GGML file from before GGUF; convert the model again"));
}

}  // namespace
}  // namespace ktx::input
