// Random weights in panels and in tiles, for the tests of retile on CPU and GPU.
#pragma once

#include <array>
#include <vector>

#include "kernels/matmul/marlin_layout.h"
#include "kernels/matmul/panel16.h"
#include "kernels/matmul/retile.h"
#include "lib/formats/layout.h"
#include "tests/kernels/kernel_cases.h"

namespace ktx::kernels {

struct RetileCase {
  DType dtype;
  Layout from;
  int64_t cols;
};

inline std::vector<RetileCase> retile_cases() {
  std::vector<RetileCase> cases;
  for (const DTypeInfo& type : all_dtypes()) {
    for (Layout from : {Layout::Panel16, Layout::Panel16Stream}) {
      if (!retile_takes(type.dtype, from)) continue;
      const bool wide = type.block_elems == 256;
      for (int64_t cols : wide ? std::vector<int64_t>{256, 512, 2048}
                               : std::vector<int64_t>{32, 64, 96, 224, 256, 288, 768, 1408}) {
        cases.push_back({type.dtype, from, cols});
      }
    }
  }
  return cases;
}

// `strips` times 16 rows, the last strip with 11.
struct RetileWeights {
  std::vector<std::byte> panels, tiles;

  RetileWeights(Random& random, const RetileCase& c, int64_t strips) {
    const auto row_size = static_cast<size_t>(*row_bytes(c.dtype, c.cols));
    const auto strip_size = static_cast<size_t>(marlin_strip_bytes(c.dtype, c.cols));
    panels.resize(static_cast<size_t>(strips) * row_size * 16);
    tiles.resize(static_cast<size_t>(strips) * strip_size);
    std::vector<std::byte> bytes(row_size * 16);
    for (int64_t s = 0; s < strips; ++s) {
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.byte());
      const std::byte* rows[16];
      std::array<const std::byte*, 16> same{};
      for (int r = 0; r < 16; ++r) {
        const bool padding = s + 1 == strips && r >= 11;
        same[static_cast<size_t>(r)] = rows[r] =
            padding ? nullptr : bytes.data() + static_cast<size_t>(r) * row_size;
      }
      pack_panel16(c.dtype, c.cols, rows, panels.data() + static_cast<size_t>(s) * row_size * 16,
                   c.from);
      marlin_pack_strip(c.dtype, c.cols, same, tiles.data() + static_cast<size_t>(s) * strip_size);
    }
  }
};

}  // namespace ktx::kernels
