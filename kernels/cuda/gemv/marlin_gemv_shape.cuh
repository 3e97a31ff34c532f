// What each block of a launch of marlin_gemv.cuh does: how many blocks parts have, and which
// strips of whose matrices are a block's.
#pragma once

#include "kernels/cuda/gemv/marlin_gemv.h"

namespace ktx::kernels {

constexpr int kOneWarps = 8;
constexpr int kOneThreads = 32 * kOneWarps;
constexpr int kOneUnits = 16;  // of a block at most: a thread an output
// Of an SM, and as many as a launch has: with room for another, blocks of the next
// product came to stand two on one SM and none on the next (-25 % on H200).
constexpr int kOneBlocks = 2;

// What the launcher decides. A unit is a strip, a pair of gate and up, or a strip of every
// expert of the sum.
struct OneShape {
  int first_block[kOneParts] = {};  // of each part
  int blocks[kOneParts] = {};       // of each part; they have its units in equal shares
  int ring_bytes = 0;               // of a warp
  int stages[2] = {};               // of the ring, by format
  int most_strips = 0;              // of a block
  int cluster = 1;                  // Sum: blocks that share units, each with some of the choices
  int bytes = 0;                    // dynamic shared memory
};

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
    part = 0;
    const int block = static_cast<int>(blockIdx.x);
    for (int i = 1; i < p.parts; ++i) part = block >= shape.first_block[i] ? i : part;
    const OneRows& rows = p.rows[part];
    const int64_t all =
        int64_t{rows.strips()} * (kWork == OneWork::Choices ? p.router.attrs.top_k : 1);
    int number = block - shape.first_block[part], of = shape.blocks[part];
    sources = rows.w[1] ? 2 : 1;
    if constexpr (kWork == OneWork::Sum) {
      sources = p.router.attrs.top_k / shape.cluster;
      first_source = number % shape.cluster * sources;
      number /= shape.cluster, of /= shape.cluster;
    }
    first = static_cast<int>(all * number / of);
    units = static_cast<int>(all * (number + 1) / of) - first;
    strips = units * sources;
    tiles = (p.cols + 255) / 256;
  }
};

}  // namespace ktx::kernels
