// Layouts panel16 and panel16s are bijections: unpacking gives back any bytes.
#include "kernels/matmul/panel16.h"

#include "kernels/matmul/panel16_floats.h"
#include "lib/formats/layout.h"
#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

struct Source {
  Panel16Blob blob;
  std::vector<std::byte> bytes;  // of all rows
  std::vector<std::span<const std::byte>> slices;
  uint64_t row;

  Source(Random& random, DType dtype, int64_t rows, int64_t cols, int64_t matrices,
         Layout layout = Layout::Panel16)
      : blob{dtype, rows, cols, matrices, layout},
        row(static_cast<uint64_t>(*row_bytes(dtype, cols))) {
    bytes.resize(static_cast<size_t>(rows * matrices) * row);
    for (std::byte& byte : bytes) byte = std::byte{random.byte()};
    // Cut at any row, also inside of panels.
    for (size_t at = 0; at < bytes.size();) {
      const size_t left = bytes.size() / row - at / row;
      const size_t count = 1 + static_cast<size_t>(random.below(static_cast<int64_t>(left)));
      slices.push_back(std::span(bytes).subspan(at, count * row));
      at += count * row;
    }
  }
  std::vector<std::byte> packed() const {
    std::vector<std::byte> out(static_cast<size_t>(
        blob.matrices * *matrix_bytes(blob.layout, blob.dtype, blob.rows, blob.cols)));
    pack_panel16_range(blob, slices, 0, out);
    return out;
  }
};

struct Form {
  DType dtype;
  Layout layout;
};

// Every type with every order of panels that it can have.
std::vector<Form> panel_forms() {
  std::vector<Form> out;
  for (const DTypeInfo& row : all_dtypes()) {
    for (Layout layout : {Layout::Panel16, Layout::Panel16Stream}) {
      if (matrix_bytes(layout, row.dtype, 16, row.block_elems)) out.push_back({row.dtype, layout});
    }
  }
  return out;
}

TEST(Panel16, UnpackingGivesBackAnyBytesInAnyRange) {
  Random random(11);
  for (const auto& [dtype, layout] : panel_forms()) {
    for (const auto& [rows, blocks, matrices] :
         std::vector<std::array<int64_t, 3>>{{16, 1, 1}, {5, 3, 1}, {48, 2, 3}, {33, 4, 1}}) {
      const Source source(random, dtype, rows, blocks * info(dtype).block_elems, matrices, layout);
      const std::vector<std::byte> packed = source.packed();
      std::vector<std::byte> back(source.bytes.size());
      EXPECT_TRUE(unpack_panel16_range(source.blob, packed, 0, back));
      EXPECT_EQ(back, source.bytes) << name(dtype) << " " << rows;
      for (int i = 0; i < 5; ++i) {
        const auto all = static_cast<int64_t>(source.bytes.size());
        const int64_t begin = random.below(all), size = random.below(all - begin) + 1;
        std::vector<std::byte> part(static_cast<size_t>(size));
        unpack_panel16_range(source.blob, packed, static_cast<uint64_t>(begin), part);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), source.bytes.begin() + begin));
      }
    }
  }
}

TEST(Panel16, PanelsArePackedOneByOneAsAllAtOnce) {
  Random random(12);
  for (const auto& [dtype, layout] : panel_forms()) {
    const Source source(random, dtype, 40, 2 * info(dtype).block_elems, 1, layout);
    const std::vector<std::byte> packed = source.packed();
    const uint64_t panel = source.row * kPanelRows;
    for (uint64_t at = 0; at < packed.size(); at += panel) {
      std::vector<std::byte> one(panel);
      pack_panel16_range(source.blob, source.slices, at, one);
      EXPECT_TRUE(std::equal(one.begin(), one.end(), packed.begin() + static_cast<int64_t>(at)));
    }
  }
}

TEST(Panel16, PaddingIsZeroAndADamagedOneIsSeen) {
  Random random(13);
  for (const auto& [dtype, head] : {std::pair(DType::Q4_K, 0), std::pair(DType::Q6_K, 32)}) {
    const Source source(random, dtype, 18, 512, 1, panel_layout(dtype));
    std::vector<std::byte> packed = source.packed(), back(source.bytes.size());
    ASSERT_TRUE(unpack_panel16_range(source.blob, packed, 0, back));
    const size_t second_panel = 16 * source.row + static_cast<size_t>(head);
    packed[second_panel + 4 * 7 + 1] = std::byte{1};  // word 0 of row 7 of the second panel
    EXPECT_FALSE(unpack_panel16_range(source.blob, packed, 0, back));
    EXPECT_EQ(back, source.bytes);
  }
}

TEST(Panel16, ABlockOfARowIsItsGgufBytes) {
  Random random(14);
  for (const auto& [dtype, layout] : panel_forms()) {
    const DTypeInfo& type = info(dtype);
    const Source source(random, dtype, 16, 3 * type.block_elems, 1, layout);
    const std::vector<std::byte> packed = source.packed();
    for (int64_t r = 0; r < 16; ++r) {
      for (int64_t b = 0; b < 3; ++b) {
        std::vector<std::byte> block(static_cast<size_t>(type.block_bytes));
        unpack_panel16_block(dtype, source.blob.cols, packed.data(), r, b, block.data(), layout);
        const std::byte* from =
            source.bytes.data() + r * static_cast<int64_t>(source.row) + b * type.block_bytes;
        EXPECT_EQ(std::memcmp(block.data(), from, block.size()), 0) << name(dtype);
      }
    }
  }
}

TEST(Panel16, FloatsStandByColumnsAndBf16ByPairsOfThem) {
  const int64_t cols = 5, rows = 16;
  for (DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    const int64_t elem = info(dtype).block_bytes;
    Random random(15);
    const Source source(random, dtype, rows, cols, 1);
    const std::vector<std::byte> packed = source.packed();
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < cols; ++k) {
        const bool paired = dtype == DType::BF16 && k != cols - 1;
        const int64_t place = paired ? k / 2 * 2 * rows + 2 * r + k % 2 : k * rows + r;
        EXPECT_EQ(
            std::memcmp(packed.data() + place * elem, source.bytes.data() + (r * cols + k) * elem,
                        static_cast<size_t>(elem)),
            0)
            << name(dtype) << " row " << r << " column " << k;
      }
    }
    // Any columns of a row.
    std::vector<std::byte> part(static_cast<size_t>(3 * elem));
    unpack_float_columns(dtype, cols, packed.data(), 7, 1, 3, part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), source.bytes.begin() + (7 * cols + 1) * elem));
  }
}

TEST(Panel16, InAStreamABlocksScalesStandBeforeItsWords) {
  Random random(16);
  const Source source(random, DType::Q6_K, 16, 512, 1, Layout::Panel16Stream);
  const std::vector<std::byte> packed = source.packed();
  const auto at = [&](int64_t block, int64_t r, int64_t byte) {
    return source.bytes.data() + r * static_cast<int64_t>(source.row) + block * 210 + byte;
  };
  for (int64_t block : {0, 1}) {
    const std::byte* unit = packed.data() + block * 3360;
    const std::byte* words = unit + 32;
    for (int64_t r = 0; r < 16; ++r) {
      EXPECT_EQ(std::memcmp(unit + 2 * r, at(block, r, 208), 2), 0);             // half scale
      EXPECT_EQ(std::memcmp(words + 4 * r, at(block, r, 192), 4), 0);            // four scales
      EXPECT_EQ(std::memcmp(words + 64 + 4 * r, at(block, r, 128), 4), 0);       // high bits
      EXPECT_EQ(std::memcmp(words + 128 + 4 * r, at(block, r, 0), 4), 0);        // low ones
      EXPECT_EQ(std::memcmp(words + 192 + 4 * r, at(block, r, 32), 4), 0);       // of the others
      EXPECT_EQ(std::memcmp(words + 51 * 64 + 4 * r, at(block, r, 204), 4), 0);  // last scales
    }
  }
}

TEST(Panel16, RefusesOtherTypesAndSizesThatDoNotFit) {
  EXPECT_FALSE(matrix_bytes(Layout::Panel16, DType::IQ2_XS, 16, 256));
  EXPECT_FALSE(matrix_bytes(Layout::Panel16, DType::I32, 16, 256));
  EXPECT_FALSE(matrix_bytes(Layout::Panel16Stream, DType::Q4_K, 16, 256));
  EXPECT_FALSE(matrix_bytes(Layout::Panel16Stream, DType::F16, 16, 256));
  EXPECT_FALSE(matrix_bytes(Layout::Panel16, DType::F32, 16, 16 * 1024 + 1));
  EXPECT_FALSE(matrix_bytes(Layout::Panel16, DType::Q4_K, 16, 100));
  EXPECT_FALSE(matrix_bytes(Layout::Panel16, DType::Q8_0, 16, 64 * 1024));
  EXPECT_FALSE(matrix_bytes(Layout::Panel16, DType::Q8_0, int64_t{1} << 62, 32));
  EXPECT_EQ(matrix_bytes(Layout::Panel16, DType::Q4_K, 17, 256), 32 * 144);
  EXPECT_EQ(matrix_bytes(Layout::Rows, DType::Q4_K, 17, 256), 17 * 144);
}

}  // namespace
}  // namespace ktx::kernels
