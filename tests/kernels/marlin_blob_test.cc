// Whole blobs in marlin tiles: any range packs and unpacks to the same bytes, and the size
// equals the one that plans are checked with.
#include "kernels/matmul/marlin_blob.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/matmul/marlin_layout.h"
#include "lib/formats/layout_size.h"

namespace ktx::kernels {
namespace {

class MarlinBlobs : public ::testing::TestWithParam<DType> {};

std::vector<std::byte> random_bytes(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST_P(MarlinBlobs, RoundTripInSlicesAndInAnyRange) {
  const DType dtype = GetParam();
  const MarlinBlob blob{dtype, 37, info(dtype).block_elems * 3, 2};
  const auto row = static_cast<size_t>(*row_bytes(dtype, blob.cols));
  const auto source = random_bytes(row * 37 * 2, 7);
  const std::span<const std::byte> all = source;
  // Slices cut where they like, at whole rows.
  const std::vector<std::span<const std::byte>> slices = {
      all.first(row * 5), all.subspan(row * 5, row * 40), all.subspan(row * 45)};
  const auto bytes = marlin_blob_bytes(blob);
  ASSERT_EQ(bytes, *matrix_bytes(Layout::Marlin, dtype, 37, blob.cols) * 2);
  std::vector<std::byte> packed(static_cast<size_t>(bytes));
  pack_marlin_range(blob, slices, 0, packed);

  const auto strip = static_cast<size_t>(marlin_strip_bytes(dtype, blob.cols));
  std::vector<std::byte> part(2 * strip);
  pack_marlin_range(blob, slices, 2 * strip, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), packed.begin() + 2 * strip));

  for (const auto& [offset, size] : {std::pair<size_t, size_t>{0, source.size()},
                                     {row * 30 + 3, row * 20},
                                     {source.size() - 1, 1},
                                     {5, 0}}) {
    std::vector<std::byte> out(size);
    EXPECT_TRUE(unpack_marlin_range(blob, packed, offset, out));
    EXPECT_TRUE(std::equal(out.begin(), out.end(), source.begin() + offset));
  }
  // Row 5 of a matrix's last strip is padding.
  packed.back() ^= std::byte{1};
  std::vector<std::byte> out(source.size());
  EXPECT_FALSE(unpack_marlin_range(blob, packed, 0, out) && out == source);
}

std::vector<DType> marlin_dtypes() {
  std::vector<DType> all;
  for (const DTypeInfo& dtype : all_dtypes()) {
    if (marlin_takes(dtype.dtype)) all.push_back(dtype.dtype);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, MarlinBlobs, ::testing::ValuesIn(marlin_dtypes()),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(MarlinSizes, PlansTakeTheFormatsThatThePackerTakes) {
  for (const DTypeInfo& dtype : all_dtypes()) {
    EXPECT_EQ(matrix_bytes(Layout::Marlin, dtype.dtype, 16, 256).has_value(),
              marlin_takes(dtype.dtype))
        << dtype.name;
  }
}

}  // namespace
}  // namespace ktx::kernels
