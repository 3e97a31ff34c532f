// The GPU's retile gives the bits of the CPU's packer.
#include "kernels/cuda/marlin/cuda_retile.h"

#include "tests/kernels/cuda_cases.h"
#include "tests/kernels/retile_cases.h"

namespace ktx::kernels {
namespace {

using CudaRetile = CudaTest;

TEST_F(CudaRetile, MakesTheTilesThatThePackerMakes) {
  Random random(20261124);
  for (const RetileCase& c : retile_cases()) {
    SCOPED_TRACE(testing::Message() << name(c.dtype) << " " << name(c.from) << " " << c.cols
                                    << " columns, seed " << random.seed());
    constexpr int64_t kStrips = 37;
    const RetileWeights weights(random, c, kStrips);
    Gpu<std::byte> panels(weights.panels), tiles(weights.tiles.size());
    ASSERT_TRUE(ran(
        launch_retile({c.dtype, c.from, c.cols, kStrips, panels.data(), tiles.data()}, nullptr)));
    EXPECT_EQ(tiles.read(), weights.tiles);
  }
}

}  // namespace
}  // namespace ktx::kernels
