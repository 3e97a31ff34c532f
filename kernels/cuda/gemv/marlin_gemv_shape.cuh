// What each block of a launch of one token does: how many blocks parts have, and which strips of
// whose matrices are a block's.
#pragma once

#include "kernels/cuda/gemv/marlin_gemv.h"

namespace ktx::kernels {

constexpr int kOneWarps = 8;
constexpr int kOneThreads = 32 * kOneWarps;
constexpr int kOneUnits = 16;  // of a block at most: a thread an output
// Blocks of a launch for each SM, and the most that fit on one: with room for another, two blocks
// of the next product came to stand on one SM and none on the next (-25 % on H200).
constexpr int kOneBlocks = 2;
// Blocks of a strip each: warps at most, blocks of an SM whose registers fit, and strips of an SM
// at most (q, k and v of 4096 columns and 6144 rows: 384 strips for 132 SMs).
constexpr int kStripWarps = 16, kStripBlocks = 2, kStripsOfSm = 3;
// Blocks of a strip of gate and up of a choice each: of an SM, and of how many experts at most.
constexpr int kChoiceBlocks = 3, kChoiceExperts = 256;
constexpr int kSumWarps = 32;  // of a block of a strip of the sum, at most

// What the launcher decides. A unit is a strip, a pair of gate and up, or a strip of every
// expert of the sum.
struct OneShape {
  int first_block[kLaunchProducts] = {};  // of each part
  int blocks[kLaunchProducts] = {};       // of each part; they have its units in equal shares:
  int least[kLaunchProducts] = {};        // as many units each, and
  uint32_t more[kLaunchProducts] = {};    // so many 2^-32 of one. Divisions are the host's
  int ring_bytes = 0;                     // of a warp
  int stages[2] = {};                     // of the ring, by format
  int most_strips = 0;                    // of a block
  int cluster = 1;  // Sum: blocks that share units, each with some of the choices
  int bytes = 0;    // dynamic shared memory
};

__device__ __forceinline__ int part_of_block(const OneProduct& p, const OneShape& shape) {
  int part = 0;
  for (int i = 1; i < p.parts; ++i) {
    part = static_cast<int>(blockIdx.x) >= shape.first_block[i] ? i : part;
  }
  return part;
}

// Which strips a block has, of whose matrices.
struct OneBlock {
  int part, first, units, sources, strips, tiles;
  int first_source = 0;  // Sum: of the choices in rising expert number
  template <OneWork kWork>
  __device__ static OneBlock of(const OneProduct& p, const OneShape& shape) {
    OneBlock block;
    block.set<kWork>(p, shape);
    return block;
  }

 private:
  template <OneWork kWork>
  __device__ void set(const OneProduct& p, const OneShape& shape) {
    part = part_of_block(p, shape);
    int number = static_cast<int>(blockIdx.x) - shape.first_block[part];
    sources = p.rows[part].w[1] ? 2 : 1;
    if constexpr (kWork == OneWork::Sum) {
      sources = p.choices() / shape.cluster;
      first_source = number % shape.cluster * sources;
      number /= shape.cluster;
    }
    const auto begin = [&](int n) {
      return n * shape.least[part] + static_cast<int>(__umulhi(n, shape.more[part]));
    };
    first = begin(number);
    units = begin(number + 1) - first;
    strips = units * sources;
    tiles = (p.cols + 255) / 256;
  }
};

}  // namespace ktx::kernels
