// The helper that end-to-end tests use to get the older form of MLA weights.
#include "tests/support/unsplit_kv_b.h"
#include "tests/support/paths.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "lib/input/gguf_config.h"
#include "tests/support/temp_dir.h"

namespace ktx::testing {
namespace {

TEST(UnsplitKvB, GivesTheOldFormOfTheSameModel) {
  std::string folder = source_dir() + "/tests/models/deepseek2";
  if (!std::filesystem::exists(folder)) folder = shared_dir() + "/models/deepseek2";
  const auto split = input::GgufFile::open(folder + "/deepseek2-q4_k_m.gguf");
  if (!split.ok()) GTEST_SKIP() << split.error().message;
  const TempDir dir;
  const Status done = unsplit_kv_b(*split, dir.path("u.gguf"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  const auto joined = input::GgufFile::open(dir.path("u.gguf"));
  ASSERT_TRUE(joined.ok()) << joined.error().message;
  EXPECT_EQ(joined->tensors().size(), split->tensors().size() - 3);
  const input::GgufTensor* kv_b = joined->find("blk.1.attn_kv_b.weight");
  ASSERT_NE(kv_b, nullptr);
  EXPECT_EQ(kv_b->shape, (std::array<int64_t, 4>{256, 4 * (64 + 64), 1, 1}));
  // Row 2 of k of head 1 is column 2 of that head's transposed matrix.
  const auto k = dequantized(*split->find("blk.1.attn_k_b.weight"));
  const auto v = dequantized(*split->find("blk.1.attn_v_b.weight"));
  const auto both = dequantized(*kv_b);
  const auto rounded = [](float value) { return half_to_float(float_to_half(value)); };
  EXPECT_EQ(both[(1 * 128 + 2) * 256 + 5], rounded(k[(1 * 256 + 5) * 64 + 2]));
  EXPECT_EQ(both[(3 * 128 + 64 + 7) * 256 + 9], rounded(v[(3 * 64 + 7) * 256 + 9]));

  DiagSink diags;
  const auto before = input::config_from_gguf(*split, diags);
  const auto after = input::config_from_gguf(*joined, diags);
  EXPECT_EQ(diags.all().size(), 0u);
  for (const auto& [key, value] : before.values()) {
    ASSERT_TRUE(after.has(key)) << key;
    EXPECT_EQ(input::describe(after.find(key)->value), input::describe(value.value)) << key;
  }
}

}  // namespace
}  // namespace ktx::testing
