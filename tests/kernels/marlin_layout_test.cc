// The marlin layout is a bijection of the GGUF bytes, and puts every weight where the
// description in marlin_layout.h says.
#include "kernels/matmul/marlin_layout.h"

#include <algorithm>
#include <array>

#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {
namespace {

constexpr DType kTypes[] = {DType::Q4_0,   DType::Q4_1,   DType::Q5_0, DType::Q5_1,
                            DType::Q8_0,   DType::Q4_K,   DType::Q5_K, DType::Q6_K,
                            DType::IQ4_NL, DType::IQ4_XS, DType::MXFP4};

// Columns that end in every number of spans, with and without a half span.
std::vector<int64_t> column_counts(DType dtype) {
  if (info(dtype).block_elems == 256) return {256, 512, 1280};
  return {32, 64, 96, 128, 192, 224, 256, 288, 320, 512, 1408};
}

struct Strip {
  std::vector<std::byte> packed;
  std::vector<std::vector<std::byte>> rows;  // GGUF bytes
};

Strip random_strip(Random& random, DType dtype, int64_t cols, int used_rows) {
  Strip strip;
  const int64_t bytes = *row_bytes(dtype, cols);
  std::array<const std::byte*, 16> pointers{};
  for (int r = 0; r < used_rows; ++r) {
    std::vector<std::byte> row(static_cast<size_t>(bytes));
    for (std::byte& byte : row) byte = static_cast<std::byte>(random.byte());
    strip.rows.push_back(std::move(row));
  }
  for (int r = 0; r < used_rows; ++r) pointers[static_cast<size_t>(r)] = strip.rows[r].data();
  strip.packed.assign(static_cast<size_t>(marlin_strip_bytes(dtype, cols)), std::byte{0xA5});
  marlin_pack_strip(dtype, cols, pointers, strip.packed.data());
  return strip;
}

TEST(MarlinLayout, TakesTheTypesThatItSays) {
  for (const DTypeInfo& row : all_dtypes()) {
    EXPECT_EQ(marlin_takes(row.dtype), std::ranges::find(kTypes, row.dtype) != std::end(kTypes))
        << row.name;
  }
}

TEST(MarlinLayout, UnpackGivesBackEveryByte) {
  Random random(20261121);
  for (DType dtype : kTypes) {
    for (int64_t cols : column_counts(dtype)) {
      for (int used_rows : {16, 15, 9, 1}) {
        SCOPED_TRACE(testing::Message() << name(dtype) << " " << used_rows << "x" << cols
                                        << " seed " << random.seed());
        const Strip strip = random_strip(random, dtype, cols, used_rows);
        std::array<std::byte*, 16> pointers{};
        std::vector<std::vector<std::byte>> rows(static_cast<size_t>(used_rows));
        for (int r = 0; r < used_rows; ++r) {
          rows[r].assign(strip.rows[r].size(), std::byte{0x5A});
          pointers[static_cast<size_t>(r)] = rows[r].data();
        }
        EXPECT_TRUE(marlin_unpack_strip(dtype, cols, strip.packed.data(), used_rows, pointers));
        EXPECT_EQ(rows, strip.rows);
      }
    }
  }
}

TEST(MarlinLayout, IsWhatTheWeightByWeightPackerMakes) {
  Random random(20261122);
  for (DType dtype : kTypes) {
    for (int64_t cols : column_counts(dtype)) {
      for (int used_rows : {16, 15, 9, 8, 7, 1}) {
        SCOPED_TRACE(testing::Message() << name(dtype) << " " << used_rows << "x" << cols
                                        << " seed " << random.seed());
        const Strip strip = random_strip(random, dtype, cols, used_rows);
        std::array<const std::byte*, 16> rows{};
        for (int r = 0; r < used_rows; ++r) rows[static_cast<size_t>(r)] = strip.rows[r].data();
        std::vector<std::byte> expected(strip.packed.size(), std::byte{0x3C});
        marlin_pack_strip_scalar(dtype, cols, rows, expected.data());
        ASSERT_EQ(strip.packed, expected);
      }
      // A gap between rows that are there.
      std::array<const std::byte*, 16> rows{};
      const Strip strip = random_strip(random, dtype, cols, 16);
      for (size_t r = 0; r < 16; ++r) rows[r] = random.below(3) ? strip.rows[r].data() : nullptr;
      std::vector<std::byte> packed(strip.packed.size()), expected(strip.packed.size());
      marlin_pack_strip(dtype, cols, rows, packed.data());
      marlin_pack_strip_scalar(dtype, cols, rows, expected.data());
      ASSERT_EQ(packed, expected) << name(dtype) << " " << cols << " seed " << random.seed();
    }
  }
}

TEST(MarlinLayout, UnpacksAnyBytesAsTheWeightByWeightPackerDoes) {
  Random random(20261123);
  for (DType dtype : kTypes) {
    for (int64_t cols : column_counts(dtype)) {
      const auto row_size = static_cast<size_t>(*row_bytes(dtype, cols));
      std::vector<std::byte> strip(static_cast<size_t>(marlin_strip_bytes(dtype, cols)));
      for (int used_rows : {16, 11, 8, 3}) {
        const bool wanted_all = random.below(2) == 0;
        for (std::byte& byte : strip) byte = static_cast<std::byte>(random.byte());
        std::vector<std::byte> mine(16 * row_size, std::byte{0x11}), theirs = mine;
        std::array<std::byte*, 16> mine_rows{}, their_rows{};
        for (int r = 0; r < used_rows; ++r) {
          if (!wanted_all && random.below(4) == 0) continue;
          mine_rows[static_cast<size_t>(r)] = mine.data() + static_cast<size_t>(r) * row_size;
          their_rows[static_cast<size_t>(r)] = theirs.data() + static_cast<size_t>(r) * row_size;
        }
        const bool clean = marlin_unpack_strip(dtype, cols, strip.data(), used_rows, mine_rows);
        EXPECT_EQ(clean,
                  marlin_unpack_strip_scalar(dtype, cols, strip.data(), used_rows, their_rows))
            << name(dtype) << " " << used_rows << "x" << cols << " seed " << random.seed();
        ASSERT_EQ(mine, theirs) << name(dtype) << " " << used_rows << "x" << cols << " seed "
                                << random.seed();
      }
    }
  }
}

TEST(MarlinLayout, KeepsTheSizeOfTheBlocks) {
  for (DType dtype : kTypes) {
    EXPECT_EQ(marlin_matrix_bytes(dtype, 32, 512), 32 * *row_bytes(dtype, 512)) << name(dtype);
    EXPECT_EQ(marlin_strip_bytes(dtype, 1280) % 16, 0) << name(dtype);
    EXPECT_EQ(marlin_matrix_bytes(dtype, 17, 256), 2 * marlin_strip_bytes(dtype, 256));
  }
}

TEST(MarlinLayout, FindsPaddingThatIsNotZero) {
  Random random(7);
  for (DType dtype : kTypes) {
    const int64_t cols = info(dtype).block_elems == 256 ? 256 : 96;  // 96: half a span is padding
    const int used_rows = 15;
    // The bits that rows of ones reach are weights, the others are padding.
    const std::vector<std::byte> ones(static_cast<size_t>(*row_bytes(dtype, cols)), std::byte{255});
    std::array<const std::byte*, 16> rows{};
    std::fill_n(rows.begin(), used_rows, ones.data());
    std::vector<std::byte> weights(static_cast<size_t>(marlin_strip_bytes(dtype, cols)));
    marlin_pack_strip(dtype, cols, rows, weights.data());
    Strip strip = random_strip(random, dtype, cols, used_rows);
    std::array<std::byte*, 16> nothing{};
    for (size_t i = 0; i < strip.packed.size(); i += 5) {
      const auto flip = static_cast<std::byte>(1 << random.below(8));
      strip.packed[i] ^= flip;
      ASSERT_EQ(marlin_unpack_strip(dtype, cols, strip.packed.data(), used_rows, nothing),
                (weights[i] & flip) != std::byte{0})
          << name(dtype) << " byte " << i << " seed " << random.seed();
      strip.packed[i] ^= flip;
    }
  }
}

// The nibble of weight (row, col), read as the description says.
int described_nibble(const std::byte* tile, int row, int col) {
  const int g = row % 8, t = col % 32 / 8, s = col % 8 / 4, c = col / 32;
  const int p = row / 8 + 2 * (col % 4 / 2), e = col % 2;
  uint32_t word;
  std::memcpy(&word, tile + c / 2 * 512 + (4 * g + t) * 16 + 4 * (2 * (c % 2) + s), 4);
  return static_cast<int>(word >> (4 * (p + 4 * e)) & 15);
}

TEST(MarlinLayout, PutsNibblesWhereTheDescriptionSays) {
  Random random(3);
  const Strip strip = random_strip(random, DType::Q4_0, 256, 16);
  for (int row = 0; row < 16; ++row) {
    for (int col = 0; col < 256; ++col) {
      const std::byte byte = strip.rows[row][static_cast<size_t>(col / 32 * 18 + 2 + col % 16)];
      const int expected = static_cast<int>(byte) >> (col % 32 / 16 * 4) & 15;
      ASSERT_EQ(described_nibble(strip.packed.data(), row, col), expected) << row << " " << col;
    }
  }
}

}  // namespace
}  // namespace ktx::kernels
