#include "lib/input/gguf_writer.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/support/temp_dir.h"

namespace ktx::input {
namespace {

using ktx::testing::read_file;
using ktx::testing::TempDir;

void fill(uint64_t offset, std::span<std::byte> out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>((offset + i) * 7 >> 3);
}

GgufWriter everything() {
  GgufWriter writer;
  writer.set_alignment(64);
  writer.add_string("general.architecture", "llama");
  writer.add_u8("u8", 255);
  writer.add_i8("i8", -128);
  writer.add_u16("u16", 65535);
  writer.add_i16("i16", -32768);
  writer.add_u32("u32", 4000000000u);
  writer.add_i32("i32", -5);
  writer.add_u64("u64", ~uint64_t{0});
  writer.add_i64("i64", INT64_MIN);
  writer.add_f32("f32", 0.5f);
  writer.add_f64("f64", 0.1);
  writer.add_bool("bool", true);
  writer.add_strings("strings", std::vector<std::string>{"", "a", "bb"});
  writer.add_i32s("i32s", std::vector<int32_t>{-1, 2});
  writer.add_u32s("u32s", std::vector<uint32_t>{7});
  writer.add_f32s("f32s", std::vector<float>{});
  writer.add_tensor("big", DType::Q6_K, {256, 30000}, fill);  // two chunks
  writer.add_tensor("small", DType::F32, {3}, std::vector<std::byte>(12, std::byte{9}));
  return writer;
}

TEST(GgufWriter, RoundTrips) {
  const TempDir dir;
  ASSERT_TRUE(everything().write(dir.path("a.gguf"), 3).ok());
  const auto gguf = GgufFile::open(dir.path("a.gguf"));
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  EXPECT_EQ(gguf->shards()[0].file.bytes().size(), everything().file_size());
  EXPECT_EQ(gguf->shards()[0].alignment, 64u);
  EXPECT_EQ(gguf->i64("i8"), -128);
  EXPECT_EQ(gguf->u64("u64"), ~uint64_t{0});
  EXPECT_EQ(gguf->f64("f64"), 0.1);
  EXPECT_EQ(gguf->strings("strings")->at(2), "bb");
  EXPECT_EQ(gguf->ints("i32s"), (std::vector<int64_t>{-1, 2}));
  const GgufTensor* big = gguf->find("big");
  ASSERT_NE(big, nullptr);
  std::vector<std::byte> expected(big->size_bytes);
  fill(0, expected);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), big->bytes.begin()));
  EXPECT_EQ(gguf->find("small")->bytes[11], std::byte{9});
}

TEST(GgufWriter, CopiesAnotherFileBitForBit) {
  const TempDir dir;
  ASSERT_TRUE(everything().write(dir.path("a.gguf"), 1).ok());
  const auto source = GgufFile::open(dir.path("a.gguf"));
  GgufWriter copy;
  for (const GgufValue& value : source->metadata()) {
    if (value.key == "general.alignment") {
      copy.set_alignment(static_cast<uint32_t>(*value.u64()));
    } else {
      copy.copy(value);
    }
  }
  for (const GgufTensor& tensor : source->tensors()) copy.copy(tensor);
  ASSERT_TRUE(copy.write(dir.path("b.gguf"), 2).ok());
  EXPECT_EQ(read_file(dir.path("a.gguf")), read_file(dir.path("b.gguf")));
}

TEST(GgufWriter, LeavesNothingBehindOnFailure) {
  const TempDir dir;
  const Status status = everything().write(dir.path("none/a.gguf"), 1);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("there is no folder"));
  std::filesystem::create_directory(dir.path("taken"));
  EXPECT_FALSE(everything().write(dir.path("taken"), 1).ok());
  EXPECT_FALSE(std::filesystem::exists(dir.path("taken.work")));
}

}  // namespace
}  // namespace ktx::input
