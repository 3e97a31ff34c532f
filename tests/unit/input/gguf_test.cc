#include "lib/input/gguf.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "tests/support/cpu_time.h"
#include "tests/support/paths.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_gguf.h"

namespace ktx::input {
namespace {

using namespace ktx::testing;
using ::testing::HasSubstr;

class Gguf : public ::testing::Test {
 protected:
  Result<GgufFile> open(std::string_view bytes, GgufOptions options = {}) {
    return GgufFile::open(dir_.write("model.gguf", bytes), options);
  }
  // The message for a file that must not open; always names the file.
  std::string error_of(std::string_view bytes) {
    const auto gguf = open(bytes);
    if (gguf.ok()) return "(it opened)";
    EXPECT_THAT(gguf.error().message, HasSubstr("model.gguf: "));
    return gguf.error().message;
  }
  std::string error_of(const TinyGguf& gguf) { return error_of(gguf.bytes()); }

  TempDir dir_;
  TinyGguf tiny_ = TinyGguf::good();
};

TEST_F(Gguf, OpensTheGoodControl) {
  const auto gguf = open(tiny_.bytes());
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  EXPECT_EQ(gguf->architecture(), "llama");
  EXPECT_EQ(gguf->u64("llama.block_count"), 1u);
  EXPECT_EQ(gguf->metadata().size(), 6u);
  EXPECT_EQ(gguf->strings("tokenizer.ggml.tokens"),
            (std::vector<std::string_view>{"<unk>", "a", "bc"}));
  EXPECT_EQ(gguf->floats("tokenizer.ggml.scores"), (std::vector<float>{0, -1, -2}));
  ASSERT_EQ(gguf->tensors().size(), 3u);
  const GgufTensor* up = gguf->find("blk.0.ffn_up.weight");
  ASSERT_NE(up, nullptr);
  EXPECT_EQ(up->dtype, DType::F16);
  EXPECT_EQ(up->shape, (std::array<int64_t, 4>{32, 4, 1, 1}));
  EXPECT_EQ(up->n_dims, 2);
  EXPECT_EQ(up->elems, 128);
  EXPECT_EQ(up->bytes.size(), 256u);
  EXPECT_EQ(std::to_integer<char>(up->bytes[255]), 'w');
  EXPECT_EQ(gguf->find("blk.0.ffn_up"), nullptr);
  EXPECT_EQ(gguf->value("nothing"), nullptr);
  EXPECT_EQ(gguf->header().size(), gguf->shards()[0].data_offset);
  EXPECT_TRUE(gguf->has_data());
  EXPECT_TRUE(gguf->check().ok());
}

TEST_F(Gguf, ViewsSurviveAMove) {
  auto opened = open(tiny_.bytes());
  ASSERT_TRUE(opened.ok());
  const std::string_view key = opened->metadata()[0].key;
  const GgufFile moved = opened.take();
  EXPECT_EQ(key.data(), moved.metadata()[0].key.data());
  EXPECT_EQ(moved.find("token_embd.weight")->bytes.size(), 102u);
}

TEST_F(Gguf, ReadsVersion2) {
  tiny_.version = 2;
  EXPECT_TRUE(open(tiny_.bytes()).ok());
}

TEST_F(Gguf, ReadsEveryMetadataType) {
  tiny_.pairs = {
      gguf_pair("u8", 0, le<uint8_t>(200)),
      gguf_pair("i8", 1, le<int8_t>(-5)),
      gguf_pair("u16", 2, le<uint16_t>(60000)),
      gguf_pair("i16", 3, le<int16_t>(-300)),
      gguf_pair("u32", 4, le<uint32_t>(~0u)),
      gguf_pair("i32", 5, le<int32_t>(-7)),
      gguf_pair("f32", 6, le(1.5f)),
      gguf_pair("bool", 7, le<uint8_t>(1)),
      gguf_str("string", "text"),
      gguf_pair("u64", 10, le(~uint64_t{0})),
      gguf_pair("i64", 11, le(INT64_MIN)),
      gguf_pair("f64", 12, le(1e300)),
      gguf_array("empty", 8, 0, ""),
      gguf_array("bools", 7, 2, std::string("\1\0", 2)),
      gguf_array("i16s", 3, 2, le<int16_t>(-1) + le<int16_t>(9)),
  };
  const auto gguf = open(tiny_.bytes());
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  EXPECT_EQ(gguf->u64("u8"), 200u);
  EXPECT_EQ(gguf->i64("i8"), -5);
  EXPECT_EQ(gguf->u64("i8"), std::nullopt);  // negative
  EXPECT_EQ(gguf->i64("u16"), 60000);
  EXPECT_EQ(gguf->i64("i16"), -300);
  EXPECT_EQ(gguf->u64("u32"), 0xFFFFFFFFu);
  EXPECT_EQ(gguf->i64("i32"), -7);
  EXPECT_EQ(gguf->f64("i32"), -7.0);
  EXPECT_EQ(gguf->f32("f32"), 1.5f);
  EXPECT_EQ(gguf->boolean("bool"), true);
  EXPECT_EQ(gguf->boolean("u8"), std::nullopt);  // neither 0 nor 1
  EXPECT_EQ(gguf->string("string"), "text");
  EXPECT_EQ(gguf->u64("u64"), ~uint64_t{0});
  EXPECT_EQ(gguf->i64("u64"), std::nullopt);  // does not fit
  EXPECT_EQ(gguf->i64("i64"), INT64_MIN);
  EXPECT_EQ(gguf->f64("f64"), 1e300);
  EXPECT_TRUE(std::isinf(*gguf->f32("f64")));
  EXPECT_EQ(gguf->strings("empty")->size(), 0u);
  EXPECT_EQ(gguf->ints("i16s"), (std::vector<int64_t>{-1, 9}));
  EXPECT_EQ(gguf->value("u64")->describe(), "u64 18446744073709551615");
  EXPECT_EQ(gguf->value("i16s")->describe(), "array of 2 i16");
}

// Asking a value for what it is not gives nothing and reads nothing.
TEST_F(Gguf, TypeConfusionGivesNothing) {
  const auto gguf = open(tiny_.bytes());
  ASSERT_TRUE(gguf.ok());
  for (const GgufValue& value : gguf->metadata()) {
    EXPECT_EQ(value.string().has_value(), value.type == GgufType::String) << value.key;
    if (!value.is_array()) {
      EXPECT_FALSE(value.ints() || value.floats() || value.strings()) << value.key;
    } else {
      EXPECT_FALSE(value.u64() || value.i64() || value.f64() || value.boolean()) << value.key;
    }
  }
  EXPECT_FALSE(gguf->strings("tokenizer.ggml.scores"));
  EXPECT_FALSE(gguf->ints("tokenizer.ggml.scores"));
  EXPECT_FALSE(gguf->floats("tokenizer.ggml.tokens"));
  EXPECT_FALSE(gguf->u64("llama.rope.freq_base"));
  EXPECT_FALSE(gguf->u64("tokenizer.ggml.add_bos_token"));
}

TEST_F(Gguf, NamesWhatTheFileIsInstead) {
  EXPECT_THAT(error_of("<!DOCTYPE html><html>"), HasSubstr("HTML page"));
  EXPECT_THAT(error_of("version https://git-lfs.github.com/spec/v1\noid"),
              HasSubstr("git lfs pull"));
  EXPECT_THAT(error_of(le<uint64_t>(64) + "{\"__metadata__\":{}}"), HasSubstr("safetensors"));
  EXPECT_THAT(error_of("KTXPLAN\x1a"), HasSubstr("a ktxplan file"));
  EXPECT_THAT(error_of("{\"a\": 1}"), HasSubstr("a JSON file"));
  EXPECT_THAT(error_of("tjgg12345678"), HasSubstr("before GGUF"));
  EXPECT_THAT(error_of(std::string(100, '\0')), HasSubstr("zeros"));
  EXPECT_THAT(error_of("PK\x03\x04zip"), HasSubstr("zip"));
  EXPECT_THAT(error_of(""), HasSubstr("empty"));
  tiny_.magic = "GGUf";
  EXPECT_THAT(error_of(tiny_), HasSubstr("begins with 'GGUf', expected 'GGUF'"));
}

TEST_F(Gguf, RefusesOtherVersions) {
  tiny_.version = 1;
  EXPECT_THAT(error_of(tiny_), HasSubstr("version 1, expected 2 or 3; convert"));
  tiny_.version = 0;
  EXPECT_THAT(error_of(tiny_), HasSubstr("version 0, expected 2 or 3"));
  tiny_.version = 4;
  EXPECT_THAT(error_of(tiny_), HasSubstr("version 4, expected 2 or 3"));
  tiny_.version = 0x03000000;
  EXPECT_THAT(error_of(tiny_), HasSubstr("big-endian"));
}

TEST_F(Gguf, RefusesMissingFilesAndFolders) {
  const auto missing = GgufFile::open(dir_.path("none.gguf"));
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("none.gguf: cannot open: No such file"));
  EXPECT_FALSE(GgufFile::open(dir_.path()).ok());
}

// The numbers at which other readers wrapped.
const uint64_t kEdges[] = {
    (uint64_t{1} << 31) - 1, uint64_t{1} << 31,       uint64_t{1} << 32, (uint64_t{1} << 32) + 1,
    (uint64_t{1} << 62),     (uint64_t{1} << 63) - 1, uint64_t{1} << 63, (uint64_t{1} << 63) + 1,
    ~uint64_t{0} - 31,       ~uint64_t{0} - 8,        ~uint64_t{0} - 1,  ~uint64_t{0}};

TEST_F(Gguf, RefusesHugeKeyAndTensorCounts) {
  for (const uint64_t edge : kEdges) {
    TinyGguf keys = tiny_, tensors = tiny_;
    keys.n_keys = tensors.n_tensors = edge;
    EXPECT_THAT(error_of(keys), HasSubstr(fmt::format("header at offset 16: {} keys", edge)));
    EXPECT_THAT(error_of(tensors), HasSubstr(fmt::format("header at offset 8: {} tensors", edge)));
  }
  tiny_.n_keys = 1000;  // below the limit, yet more than the file can hold
  EXPECT_THAT(error_of(tiny_), HasSubstr("1000 keys, but the file has room for"));
}

// A file with room for one more key and tensor than a reader takes (holes on the disk).
TEST_F(Gguf, RefusesCountsAboveItsLimits) {
  constexpr uint64_t kLimit = uint64_t{1} << 20;
  const auto error_with_room = [&](const TinyGguf& gguf) {
    const std::string path = dir_.write("model.gguf", gguf.bytes());
    std::filesystem::resize_file(path, kLimit * 64);
    const auto opened = GgufFile::open(path, {});
    return opened.ok() ? "(it opened)" : opened.error().message;
  };
  TinyGguf keys = tiny_, tensors = tiny_;
  keys.n_keys = tensors.n_tensors = kLimit + 1;
  EXPECT_THAT(error_with_room(keys), HasSubstr("1048577 keys, expected at most 1048576"));
  EXPECT_THAT(error_with_room(tensors), HasSubstr("1048577 tensors, expected at most 1048576"));
}

TEST_F(Gguf, RefusesHugeStrings) {
  for (const uint64_t edge : kEdges) {
    TinyGguf key = tiny_, value = tiny_, element = tiny_, name = tiny_;
    key.pairs[1] = le(edge) + "llama.block_count" + le<uint32_t>(4) + le<uint32_t>(1);
    EXPECT_THAT(error_of(key), HasSubstr(fmt::format("name is {} bytes long", edge)));
    value.pairs[0] = gguf_pair("general.architecture", 8, le(edge) + "llama");
    EXPECT_THAT(error_of(value), HasSubstr("key 'general.architecture'"));
    element.pairs[4] = gguf_array("tokens", 8, 1, le(edge) + "a");
    EXPECT_THAT(error_of(element), HasSubstr("key 'tokens'"));
    std::string bytes = tiny_.bytes();
    const size_t at = bytes.find("token_embd.weight") - 8;
    bytes.replace(at, 8, le(edge));
    EXPECT_THAT(error_of(bytes), HasSubstr("tensor 1 of 3"));
  }
  // Within the limit, past the end of the file.
  tiny_.pairs[0] = gguf_pair("general.architecture", 8, le<uint64_t>(1 << 20) + "llama");
  EXPECT_THAT(error_of(tiny_), HasSubstr("expected at least 1048576; it is cut off"));
}

TEST_F(Gguf, RefusesHugeArraysOfEveryType) {
  for (uint32_t type = 0; type <= 12; ++type) {
    if (type == 9) continue;
    for (const uint64_t edge : kEdges) {
      TinyGguf gguf = tiny_;
      gguf.pairs[5] = gguf_array("tokenizer.ggml.scores", type, edge, "abcdefgh");
      EXPECT_THAT(error_of(gguf), HasSubstr(fmt::format("{} array elements", edge)));
    }
  }
}

TEST_F(Gguf, RefusesUnknownValueTypes) {
  for (const uint32_t type : {13u, 255u, 0x7FFFFFFFu, 0x80000000u, 0xFFFFFFFFu}) {
    TinyGguf value = tiny_, element = tiny_;
    value.pairs[1] = gguf_pair("llama.block_count", type, le<uint64_t>(1));
    EXPECT_THAT(error_of(value), HasSubstr(fmt::format("value type {}, expected 0 to 12", type)));
    element.pairs[5] = gguf_array("scores", type, 1, le<uint64_t>(1));
    EXPECT_THAT(error_of(element), HasSubstr(fmt::format("element type {}", type)));
  }
  tiny_.pairs[5] = gguf_array("nested", 9, 1, le<uint32_t>(0) + le<uint64_t>(1) + "x");
  EXPECT_THAT(error_of(tiny_), HasSubstr("array of arrays"));
}

TEST_F(Gguf, RefusesBoolsThatAreNone) {
  tiny_.pairs[3] = gguf_pair("flag", 7, le<uint8_t>(2));
  EXPECT_THAT(error_of(tiny_), HasSubstr("bool of value 2"));
  tiny_.pairs[3] = gguf_array("flags", 7, 2, std::string("\1\x80", 2));
  EXPECT_THAT(error_of(tiny_), HasSubstr("bool of value 128"));
}

TEST_F(Gguf, RefusesWrongDimensions) {
  for (const uint32_t n : {0u, 5u, 255u, 0x80000000u, 0xFFFFFFFFu}) {
    TinyGguf gguf = tiny_;
    gguf.tensors[1].n_dims = n;
    EXPECT_THAT(error_of(gguf), HasSubstr(fmt::format("'blk.0.attn_norm.weight' at offset")));
    EXPECT_THAT(error_of(gguf), HasSubstr(fmt::format("{} dimensions, expected 1 to 4", n)));
  }
  for (const uint64_t dim : {uint64_t{0}, uint64_t{1} << 63, ~uint64_t{0}}) {
    TinyGguf gguf = tiny_;
    gguf.tensors[1].dims = {dim};
    EXPECT_THAT(error_of(gguf), HasSubstr(fmt::format("dimension 0 is {}", dim)));
  }
}

TEST_F(Gguf, RefusesShapesWhoseProductWraps) {
  const uint64_t k32 = uint64_t{1} << 32, k31 = uint64_t{1} << 31;
  const std::vector<std::vector<uint64_t>> shapes = {{k32, k32},
                                                     {k31, k31, 4},
                                                     {32, uint64_t{1} << 60},
                                                     {k32, k32, k32, k32},
                                                     {(uint64_t{1} << 63) - 1, 2},
                                                     {65536, 65536, 65536, 65536}};
  for (const auto& dims : shapes) {
    for (const uint32_t type : {0u, 8u, 12u}) {
      TinyGguf gguf = tiny_;
      gguf.tensors[1].dims = dims;
      gguf.tensors[1].type = type;
      EXPECT_THAT(error_of(gguf), HasSubstr("blk.0.attn_norm.weight"));
    }
  }
  // The elements fit 63 bits, the bytes do not.
  tiny_.tensors[1].dims = {uint64_t{1} << 61, 2};
  EXPECT_THAT(error_of(tiny_), HasSubstr("fewer than 2^63 bytes"));
}

TEST_F(Gguf, RefusesUnknownAndRemovedTensorTypes) {
  tiny_.tensors[1].type = 4;
  EXPECT_THAT(error_of(tiny_), HasSubstr("tensor type 4 (Q4_2, removed"));
  tiny_.tensors[1].type = 31;
  EXPECT_THAT(error_of(tiny_), HasSubstr("quantise to Q4_0"));
  tiny_.tensors[1].type = 9;
  EXPECT_THAT(error_of(tiny_), HasSubstr("activations"));
  for (const uint32_t type : {43u, 97u, 137u, 1000u, 0x7FFFFFFFu, 0x80000000u, 0xFFFFFFFFu}) {
    tiny_.tensors[1].type = type;
    EXPECT_THAT(error_of(tiny_), HasSubstr(fmt::format("tensor type {} (unknown", type)));
  }
}

TEST_F(Gguf, RefusesRowsThatAreNoWholeBlocks) {
  tiny_.tensors[0].dims = {33, 3};
  EXPECT_THAT(error_of(tiny_),
              HasSubstr("rows of 33 elements, expected a multiple of 32 for Q8_0"));
}

TEST_F(Gguf, RefusesWrongAlignments) {
  for (const uint32_t alignment : {0u, 3u, 33u, 48u, 131072u, 0x80000000u, 0xFFFFFFFFu}) {
    TinyGguf gguf = tiny_;
    gguf.pairs.push_back(gguf_u32("general.alignment", alignment));
    EXPECT_THAT(error_of(gguf), HasSubstr(fmt::format("'general.alignment' is u32 {}", alignment)));
  }
  tiny_.pairs.push_back(gguf_str("general.alignment", "32"));
  EXPECT_THAT(error_of(tiny_), HasSubstr("'general.alignment' is string '32'"));
}

TEST_F(Gguf, AcceptsEveryGoodAlignment) {
  for (uint32_t alignment = 1; alignment <= 65536; alignment *= 2) {
    TinyGguf gguf = tiny_;
    gguf.pairs.push_back(gguf_u32("general.alignment", alignment));
    gguf.alignment = alignment;
    const auto opened = open(gguf.bytes());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ(opened->shards()[0].alignment, alignment);
  }
}

TEST_F(Gguf, RefusesOffsetsOutsideOfTheFile) {
  for (const uint64_t edge : kEdges) {
    TinyGguf gguf = tiny_;
    gguf.tensors[2].offset = edge / 32 * 32;
    const std::string message = error_of(gguf);
    EXPECT_THAT(message, HasSubstr("blk.0.ffn_up.weight"));
    EXPECT_TRUE(message.find("past any file") != message.npos ||
                message.find("cut off or damaged") != message.npos)
        << message;
  }
  tiny_.tensors[2].offset = 32 * 10;  // the last bytes are missing
  EXPECT_THAT(error_of(tiny_), HasSubstr("but the file at"));
}

TEST_F(Gguf, RefusesUnalignedOffsets) {
  tiny_.tensors[2].offset = 33;
  EXPECT_THAT(error_of(tiny_),
              HasSubstr("data offset 33, expected a multiple of the alignment 32"));
}

TEST_F(Gguf, RefusesOverlappingTensors) {
  tiny_.tensors[1].offset = 96;  // the first one has 102 bytes
  EXPECT_THAT(error_of(tiny_), HasSubstr("inside of tensor 'token_embd.weight'"));
  tiny_.tensors[1].offset = 0;
  EXPECT_THAT(error_of(tiny_), HasSubstr("inside of tensor"));
}

TEST_F(Gguf, AcceptsTensorsInAnyOrderAndGaps) {
  tiny_.tensors[0].offset = 256;
  tiny_.tensors[1].offset = 384;
  tiny_.tensors[2].offset = 0;
  const auto gguf = open(tiny_.bytes());
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
}

TEST_F(Gguf, RefusesDuplicates) {
  TinyGguf keys = tiny_, tensors = tiny_;
  keys.pairs.push_back(gguf_u32("llama.block_count", 2));
  EXPECT_THAT(error_of(keys), HasSubstr("key 'llama.block_count' occurs twice"));
  tensors.tensors.push_back({"token_embd.weight", {4}, 0, 16, {}, {}});
  EXPECT_THAT(error_of(tensors), HasSubstr("tensor 'token_embd.weight' occurs twice"));
}

TEST_F(Gguf, RefusesEmptyAndOverlongNames) {
  TinyGguf empty = tiny_, longer = tiny_, key = tiny_;
  empty.tensors[1].name = "";
  EXPECT_THAT(error_of(empty), HasSubstr("the tensor's name is 0 bytes long, expected 1 to 64"));
  longer.tensors[1].name = std::string(65, 'n');
  EXPECT_THAT(error_of(longer), HasSubstr("the tensor's name is 65 bytes long"));
  key.pairs[1] = gguf_u32("", 1);
  EXPECT_THAT(error_of(key), HasSubstr("the key's name is 0 bytes long"));
}

// Names from the file may hold anything; messages stay printable.
TEST_F(Gguf, EscapesNamesInMessages) {
  tiny_.tensors[1].name = "\x1b[31m\xff\n";
  tiny_.tensors[1].type = 99;
  EXPECT_THAT(error_of(tiny_), HasSubstr("\\x1b[31m\\xff\\x0a"));
}

TEST_F(Gguf, RefusesEveryTruncation) {
  const std::string whole = tiny_.bytes();
  const uint64_t needed = open(whole)->find("blk.0.ffn_up.weight")->offset_in_file + 256;
  for (size_t size = 0; size < needed; ++size) {
    EXPECT_FALSE(open(whole.substr(0, size)).ok()) << size << " of " << whole.size() << " bytes";
  }
  EXPECT_TRUE(open(whole.substr(0, needed)).ok());  // the last padding may be missing
}

TEST_F(Gguf, HeaderOnlyOpensWithoutData) {
  const size_t header_size = tiny_.header().size();
  for (size_t size = 0; size <= tiny_.bytes().size(); ++size) {
    const auto gguf = open(tiny_.bytes().substr(0, size), {.header_only_ok = true});
    EXPECT_EQ(gguf.ok(), size >= header_size) << size;
    if (!gguf.ok()) continue;
    const bool whole = size >= tiny_.bytes().size();
    EXPECT_EQ(gguf->has_data(), whole);
    EXPECT_EQ(gguf->tensors()[2].bytes.empty(), !whole);
    EXPECT_EQ(gguf->tensors()[2].size_bytes, 256u);
  }
}

// The file is cut under the mapping: reads give zeros, check() says so.
TEST_F(Gguf, AFileThatShrinksIsReported) {
  tiny_.tensors.push_back({"big", {1 << 16}, 0, 4 << 16});
  const auto gguf = open(tiny_.bytes());
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  std::filesystem::resize_file(dir_.path("model.gguf"), 4096);
  EXPECT_EQ(std::to_integer<int>(gguf->find("big")->bytes.back()), 0);
  const Status status = gguf->check();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("model.gguf: the file became smaller"));
}

class Shards : public Gguf {
 protected:
  // A shard of `count` with one tensor of its own.
  TinyGguf shard(uint32_t number, uint32_t count) {
    TinyGguf gguf;
    if (number == 0) gguf.pairs = tiny_.pairs;
    gguf.pairs.push_back(gguf_pair("split.no", 2, le<uint16_t>(number)));
    gguf.pairs.push_back(gguf_pair("split.count", 2, le<uint16_t>(count)));
    gguf.pairs.push_back(gguf_pair("split.tensors.count", 5, le<int32_t>(count)));
    gguf.tensors = {{"t" + std::to_string(number), {4}, 0, 16, {}, {}}};
    return gguf;
  }
  std::string write(uint32_t number, uint32_t count, const TinyGguf& gguf) {
    return dir_.write(fmt::format("m-{:05}-of-{:05}.gguf", number + 1, count), gguf.bytes());
  }
  std::string error() {
    const auto gguf = GgufFile::open(first_);
    return gguf.ok() ? "(it opened)" : gguf.error().message;
  }
  void SetUp() override {
    first_ = write(0, 3, shard(0, 3));
    write(1, 3, shard(1, 3));
    write(2, 3, shard(2, 3));
  }
  std::string first_;
};

TEST_F(Shards, OpenAsOneModel) {
  const auto gguf = GgufFile::open(first_);
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  EXPECT_EQ(gguf->shards().size(), 3u);
  EXPECT_EQ(gguf->architecture(), "llama");
  ASSERT_EQ(gguf->tensors().size(), 3u);
  EXPECT_EQ(gguf->find("t2")->shard, 2);
  EXPECT_EQ(gguf->find("t2")->bytes.size(), 16u);
  EXPECT_GT(gguf->header(0).size(), gguf->header(1).size());
}

TEST_F(Shards, NameTheMissingOne) {
  std::filesystem::remove(dir_.path("m-00002-of-00003.gguf"));
  EXPECT_THAT(error(), HasSubstr("m-00002-of-00003.gguf: no such file (shard 2 of 3)"));
  EXPECT_THAT(error(), HasSubstr("; all shards must lie beside the first"));
}

TEST_F(Shards, ALaterOneNamesTheFirst) {
  const auto gguf = GgufFile::open(dir_.path("m-00002-of-00003.gguf"));
  ASSERT_FALSE(gguf.ok());
  EXPECT_THAT(gguf.error().message, HasSubstr("shard 2 of 3; give the first one"));
  EXPECT_THAT(gguf.error().message, HasSubstr("m-00001-of-00003.gguf"));
}

TEST_F(Shards, NamesMustTellNumberAndCount) {
  std::filesystem::rename(first_, dir_.path("renamed.gguf"));
  first_ = dir_.path("renamed.gguf");
  EXPECT_THAT(error(), HasSubstr("must end in '-00001-of-00003.gguf'"));
  first_ = dir_.write("m-00001-of-00004.gguf", shard(0, 3).bytes());
  EXPECT_THAT(error(), HasSubstr("must end in '-00001-of-00003.gguf'"));
}

TEST_F(Shards, MustAgreeWithEachOther) {
  write(1, 3, shard(2, 3));
  EXPECT_THAT(error(), HasSubstr("'split.no' and 'split.count' are 2 and 3, expected 1 and 3"));
  TinyGguf stranger = shard(1, 3);
  stranger.pairs = {};
  write(1, 3, stranger);
  EXPECT_THAT(error(), HasSubstr("are missing and missing"));
  stranger = shard(1, 3);
  stranger.tensors[0].name = "t0";
  write(1, 3, stranger);
  EXPECT_THAT(error(), HasSubstr("tensor 't0' occurs twice"));
  stranger.tensors = {};
  write(1, 3, stranger);
  EXPECT_THAT(error(), HasSubstr("'split.tensors.count' is 3, but the 3 shards have 2 tensors"));
}

TEST_F(Shards, WrongCountsAreErrors) {
  for (const uint32_t count : {0xFFFFu, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
    TinyGguf gguf = shard(0, 3);
    gguf.pairs[7] = gguf_u32("split.count", count);
    write(0, 3, gguf);
    EXPECT_THAT(error(), HasSubstr(fmt::format("shard 1 of {}", count)));
  }
  TinyGguf gguf = shard(0, 3);
  gguf.pairs[7] = gguf_str("split.count", "../../etc/passwd");
  write(0, 3, gguf);
  EXPECT_THAT(error(), HasSubstr("expected a count"));
}

// Mutations of a small file and of the test models' headers: error or not, but
// quickly, and what opens can be read.
void read_all(const GgufFile& gguf) {
  uint64_t sum = 0;
  for (const GgufValue& value : gguf.metadata()) {
    (void)value.describe();
    (void)value.u64();
    (void)value.i64();
    (void)value.f32();
    (void)value.boolean();
    if (const auto texts = value.strings()) {
      for (const auto text : *texts) sum += text.size();
    }
    if (const auto numbers = value.floats()) sum += numbers->size();
    if (const auto numbers = value.ints()) sum += numbers->size();
  }
  for (const GgufTensor& tensor : gguf.tensors()) {
    if (!tensor.bytes.empty()) sum += std::to_integer<uint64_t>(tensor.bytes.back());
    EXPECT_EQ(gguf.find(tensor.name), &tensor);
  }
  EXPECT_NE(sum, ~uint64_t{0});  // so that the reading is not optimised away
}

void mutate(std::string& bytes, size_t range, std::mt19937_64& random) {
  for (uint64_t n = 1 + random() % 3; n > 0; --n) {
    const size_t at = random() % range;
    switch (random() % 4) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
        break;
      case 2: {
        const std::string edge = le(kEdges[random() % std::size(kEdges)]);
        for (size_t i = 0; i < 8 && at + i < bytes.size(); ++i) bytes[at + i] = edge[i];
        break;
      }
      default: {
        const std::string small = le<uint32_t>(static_cast<uint32_t>(random() % 20));
        for (size_t i = 0; i < 4 && at + i < bytes.size(); ++i) bytes[at + i] = small[i];
      }
    }
  }
}

TEST_F(Gguf, SurvivesRandomMutationsOfASmallFile) {
  const uint64_t seed = std::random_device()();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  const std::string whole = tiny_.bytes();
  const size_t header_size = tiny_.header().size();
  for (int i = 0; i < 4000; ++i) {
    std::string bytes = whole;
    mutate(bytes, header_size, random);
    if (random() % 4 == 0) bytes.resize(random() % bytes.size() + 1);
    const auto gguf = open(bytes, {.header_only_ok = random() % 2 == 0});
    if (gguf.ok()) read_all(*gguf);
  }
}

TEST_F(Gguf, SurvivesEverySingleByteSetToExtremes) {
  const std::string whole = tiny_.bytes();
  const size_t header_size = tiny_.header().size();
  for (size_t at = 0; at < header_size; ++at) {
    for (const int value : {0x00, 0x01, 0x7F, 0x80, 0xFF}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(value);
      const auto gguf = open(bytes);
      if (gguf.ok()) read_all(*gguf);
    }
  }
}

TEST_F(Gguf, SurvivesMutationsOfTheTestModels) {
  std::string folder = source_dir() + "/tests/models";
  if (!std::filesystem::exists(folder)) folder = shared_dir() + "/models";
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  int models = 0;
  std::error_code missing;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, missing)) {
    if (entry.path().extension() != ".gguf") continue;
    const std::string whole = read_file(entry.path());
    const auto original = open(whole);
    ASSERT_TRUE(original.ok()) << original.error().message;
    read_all(*original);
    const uint64_t header_size = original->shards()[0].header_size;
    const std::string header = whole.substr(0, original->shards()[0].data_offset);
    for (int i = 0; i < 60; ++i) {
      std::string bytes = header;
      mutate(bytes, header_size, random);
      const double start = testing::cpu_seconds();
      const auto gguf = open(bytes, {.header_only_ok = true});
      if (gguf.ok()) read_all(*gguf);
      EXPECT_LT(testing::cpu_seconds() - start, 2);
    }
    ++models;
  }
  if (models == 0) GTEST_SKIP() << "no GGUF file under " << folder;
}

}  // namespace
}  // namespace ktx::input
