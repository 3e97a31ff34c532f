// Tables of 64-bit integers, which only those who ask for them get, and tensors of another file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "lib/input/gguf.h"
#include "lib/input/gguf_writer.h"
#include "tests/support/temp_dir.h"

namespace ktx::input {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> floats(size_t count, float value) {
  const std::vector<float> values(count, value);
  std::vector<std::byte> bytes(count * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST(GgufTables, AreReadWhereAskedFor) {
  const testing::TempDir dir;
  const std::vector<int64_t> map = {5, -1, int64_t{1} << 40};
  GgufWriter writer;
  writer.add_tensor("first", DType::F32, {4}, floats(4, 1));
  writer.add_table("map", map);
  writer.add_tensor("last", DType::F32, {8}, floats(8, 2));
  ASSERT_TRUE(writer.write(dir.path("t.gguf")).ok());
  const auto refused = GgufFile::open(dir.path("t.gguf"));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("tensor type 27 (I64, not a format of weights)"));
  const auto gguf = GgufFile::open(dir.path("t.gguf"), {.tables = true});
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  const GgufTensor* table = gguf->find("map");
  ASSERT_NE(table, nullptr);
  EXPECT_TRUE(table->i64);
  EXPECT_EQ(table->elems, 3);
  ASSERT_EQ(table->bytes.size(), 24u);
  std::vector<int64_t> found(3);
  std::memcpy(found.data(), table->bytes.data(), 24);
  EXPECT_EQ(found, map);
  EXPECT_FALSE(gguf->find("last")->i64);
}

TEST(GgufFiles, BorrowTensorsOfOthers) {
  const testing::TempDir dir;
  GgufWriter own, other;
  own.add_tensor("b", DType::F32, {4}, floats(4, 1));
  other.add_tensor("a", DType::F32, {8}, floats(8, 2));
  other.add_tensor("c", DType::F32, {2}, floats(2, 3));
  ASSERT_TRUE(own.write(dir.path("own.gguf")).ok());
  ASSERT_TRUE(other.write(dir.path("other.gguf")).ok());
  auto gguf = GgufFile::open(dir.path("own.gguf"));
  auto lender = GgufFile::open(dir.path("other.gguf"));
  ASSERT_TRUE(gguf.ok() && lender.ok());
  gguf->borrow(lender.take(), std::vector<std::string>{"c", "a"});
  const GgufFile moved = gguf.take();
  EXPECT_EQ(moved.shards().size(), 2u);
  EXPECT_EQ(moved.tensors().size(), 3u);
  for (const auto& [name, value, shard] :
       {std::tuple("a", 2.0f, 1), std::tuple("b", 1.0f, 0), std::tuple("c", 3.0f, 1)}) {
    const GgufTensor* tensor = moved.find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->shard, shard);
    float first = 0;
    std::memcpy(&first, tensor->bytes.data(), sizeof(first));
    EXPECT_EQ(first, value);
  }
  EXPECT_EQ(moved.find("d"), nullptr);
}

}  // namespace
}  // namespace ktx::input
