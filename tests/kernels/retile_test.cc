// Panels become the tiles that the packer makes of the same rows.
#include "kernels/matmul/retile.h"

#include "lib/formats/layout.h"
#include "tests/kernels/retile_cases.h"

namespace ktx::kernels {
namespace {

TEST(Retile, TakesWhatBothLayoutsTake) {
  for (const DTypeInfo& type : all_dtypes()) {
    const bool takes = marlin_takes(type.dtype) && panel16_form(type.dtype);
    EXPECT_EQ(retile_takes(type.dtype, Layout::Panel16), takes) << type.name;
    EXPECT_EQ(retile_takes(type.dtype, Layout::Panel16Stream),
              takes && panel16_stream_takes(type.dtype))
        << type.name;
    EXPECT_FALSE(retile_takes(type.dtype, Layout::Rows));
    // Whatever a GPU reads can come from the CPU's panels.
    EXPECT_EQ(marlin_takes(type.dtype), takes) << type.name;
  }
}

TEST(Retile, MakesTheTilesThatThePackerMakes) {
  Random random(20261123);
  for (const RetileCase& c : retile_cases()) {
    SCOPED_TRACE(testing::Message() << name(c.dtype) << " " << name(c.from) << " " << c.cols
                                    << " columns, seed " << random.seed());
    const RetileWeights weights(random, c, 2);
    const size_t panel = weights.panels.size() / 2, strip = weights.tiles.size() / 2;
    std::vector<std::byte> tiles(weights.tiles.size(), std::byte{0xA5});
    for (size_t s = 0; s < 2; ++s) {
      retile_panel(c.dtype, c.from, c.cols, weights.panels.data() + s * panel,
                   tiles.data() + s * strip);
    }
    EXPECT_EQ(tiles, weights.tiles);
  }
}

}  // namespace
}  // namespace ktx::kernels
