#include "lib/lora/read_lora.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "lib/support/result.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_gguf.h"

namespace ktx::lora {
namespace {

using testing::gguf_f32;
using testing::gguf_str;
using testing::TempDir;
using testing::TinyGguf;

// A pair of rank 4 in F32, with 32 inputs and 8 outputs, and a pair of rank 2 in F16.
TinyGguf good() {
  TinyGguf gguf;
  gguf.pairs = {gguf_str("general.architecture", "llama"), gguf_str("general.type", "adapter"),
                gguf_str("adapter.type", "lora"), gguf_f32("adapter.lora.alpha", 8.f)};
  gguf.tensors = {{"blk.0.attn_q.weight.lora_a", {32, 4}, 0, 512},
                  {"blk.0.attn_q.weight.lora_b", {4, 8}, 0, 128},
                  {"blk.0.ffn_up.weight.lora_a", {32, 2}, 1, 128},
                  {"blk.0.ffn_up.weight.lora_b", {2, 64}, 1, 256}};
  return gguf;
}

Result<std::shared_ptr<LoraAdapter>> read(const TinyGguf& gguf) {
  const TempDir dir;
  dir.write("poet.gguf", gguf.bytes());
  return read_adapter(dir.path("poet.gguf"));
}

TEST(ReadLora, GivesThePairsOfAFile) {
  const auto adapter = read(good());
  ASSERT_TRUE(adapter.ok()) << adapter.error().message;
  EXPECT_EQ((*adapter)->name, "poet");
  EXPECT_EQ((*adapter)->architecture, "llama");
  ASSERT_EQ((*adapter)->pairs.size(), 2u);
  const LoraPair& q = (*adapter)->pairs[0];
  EXPECT_EQ(q.tensor, "blk.0.attn_q.weight");
  EXPECT_EQ(q.a.rows, 4);
  EXPECT_EQ(q.a.cols, 32);
  EXPECT_EQ(q.b.rows, 8);
  EXPECT_EQ(q.b.cols, 4);
  EXPECT_EQ(q.a.bytes.size(), 512u);
  EXPECT_EQ(q.scale, 2.f);  // 8 / 4
  EXPECT_EQ((*adapter)->pairs[1].scale, 4.f);
  EXPECT_EQ((*adapter)->pairs[1].b.dtype, DType::F16);
}

TEST(ReadLora, TakesMatricesAsTheyAreWithoutAlpha) {
  TinyGguf gguf = good();
  gguf.pairs.pop_back();
  const auto adapter = read(gguf);
  ASSERT_TRUE(adapter.ok()) << adapter.error().message;
  EXPECT_EQ((*adapter)->pairs[0].scale, 1.f);
}

TEST(ReadLora, GivesStacksForExperts) {
  TinyGguf gguf = good();
  gguf.tensors[0] = {"blk.0.ffn_up_exps.weight.lora_a", {32, 2, 2}, 0, 512};
  gguf.tensors[1] = {"blk.0.ffn_up_exps.weight.lora_b", {2, 8, 2}, 0, 128};
  const auto adapter = read(gguf);
  ASSERT_TRUE(adapter.ok()) << adapter.error().message;
  const LoraPair& pair = (*adapter)->pairs[1];
  EXPECT_EQ(pair.tensor, "blk.0.ffn_up_exps.weight");
  EXPECT_EQ(pair.matrices, 2);
  EXPECT_EQ(pair.a.rows, 2);
  EXPECT_EQ(pair.b.rows, 8);
  EXPECT_EQ(pair.a.bytes.size(), 512u);
}

struct Bad {
  const char* name;
  std::function<void(TinyGguf&)> spoil;
  std::string message;
};

TEST(ReadLora, RefusesWhatIsNoAdapter) {
  const Bad cases[] = {
      {"model", [](TinyGguf& g) { g.pairs[1] = gguf_str("general.type", "model"); },
       "general.type is 'model', expected 'adapter'"},
      {"type is a number", [](TinyGguf& g) { g.pairs[1] = testing::gguf_u32("general.type", 1); },
       "general.type is 'model', expected 'adapter'"},
      {"kind", [](TinyGguf& g) { g.pairs[2] = gguf_str("adapter.type", "ia3"); },
       "adapter.type is 'ia3', expected 'lora'"},
      {"invocation",
       [](TinyGguf& g) {
         g.pairs.push_back(testing::gguf_array("adapter.alora.invocation_tokens", 4, 1,
                                               testing::le<uint32_t>(7)));
       },
       "has invocation tokens (aLoRA)"},
      {"alpha", [](TinyGguf& g) { g.pairs[3] = gguf_f32("adapter.lora.alpha", INFINITY); },
       "adapter.lora.alpha is not finite"},
      {"no tensors", [](TinyGguf& g) { g.tensors.clear(); }, "has no tensors"},
      {"half", [](TinyGguf& g) { g.tensors.pop_back(); },
       "tensor 'blk.0.ffn_up.weight.lora_b' is missing"},
      {"other half", [](TinyGguf& g) { g.tensors.erase(g.tensors.begin()); },
       "tensor 'blk.0.attn_q.weight.lora_a' is missing"},
      {"unknown", [](TinyGguf& g) { g.tensors[0].name = "blk.0.attn_norm.weight"; },
       "tensor 'blk.0.attn_norm.weight' is not part of a low-rank pair"},
      {"control bytes", [](TinyGguf& g) { g.tensors[0].name = "a\x1b[2J"; }, "tensor 'a\\x1b[2J'"},
      {"rank",
       [](TinyGguf& g) {
         g.tensors[1].dims = {8, 4};
       },
       "'blk.0.attn_q.weight': lora_a has rank 4, lora_b 8"},
      {"experts",
       [](TinyGguf& g) {
         g.tensors[0].dims = {16, 4, 2};
       },
       "'blk.0.attn_q.weight': lora_a has 2 matrices, lora_b 1"},
      {"four dimensions",
       [](TinyGguf& g) {
         g.tensors[0].dims = {8, 4, 2, 2};
       },
       "is no weight matrix and no stack of them (F32, 4 dimensions)"},
      {"vector", [](TinyGguf& g) { g.tensors[0].dims = {128}; }, "is no weight matrix"},
      {"integers", [](TinyGguf& g) { g.tensors[0].type = 26; }, "is no weight matrix"},
      {"huge rank",
       [](TinyGguf& g) {
         g.tensors[0] = {"x.lora_a", {1, 5000}, 0, 20000};
         g.tensors[1] = {"x.lora_b", {5000, 1}, 0, 20000};
       },
       "'x' has rank 5000, expected 1 to 4096"},
  };
  for (const Bad& bad : cases) {
    TinyGguf gguf = good();
    bad.spoil(gguf);
    const auto adapter = read(gguf);
    ASSERT_FALSE(adapter.ok()) << bad.name;
    EXPECT_NE(adapter.error().message.find("poet.gguf: " /* the path */), std::string::npos)
        << adapter.error().message;
    EXPECT_NE(adapter.error().message.find(bad.message), std::string::npos)
        << bad.name << ": " << adapter.error().message;
  }
}

// Each is an error, or a file that reads well: no byte of it is read outside.
TEST(ReadLora, SurvivesEveryTruncationAndChangedByte) {
  const std::string whole = good().bytes();
  const TempDir dir;
  const std::string path = dir.path("poet.gguf");
  const size_t header = good().header().size();
  for (size_t size = 0; size < whole.size(); size += size < header ? 1 : 97) {
    dir.write("poet.gguf", whole.substr(0, size));
    EXPECT_FALSE(read_adapter(path).ok()) << size;
  }
  for (size_t at = 0; at < header; ++at) {
    for (const char byte : {'\x00', '\x7f', '\xff'}) {
      std::string changed = whole;
      changed[at] = byte;
      dir.write("poet.gguf", changed);
      const auto adapter = read_adapter(path);
      if (!adapter.ok()) continue;
      for (const LoraPair& pair : (*adapter)->pairs) {
        ASSERT_EQ(pair.a.rows, pair.b.cols);
        for (const LoraMatrix& m : {pair.a, pair.b}) {
          ASSERT_EQ(std::ssize(m.bytes), m.rows * *row_bytes(m.dtype, m.cols));
        }
      }
    }
  }
}

}  // namespace
}  // namespace ktx::lora
