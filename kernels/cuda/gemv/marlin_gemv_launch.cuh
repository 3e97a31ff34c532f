// The launch of marlin_gemv.cuh: how many blocks, in which shares, with rings how deep.
#pragma once

#include "kernels/cuda/gemv/marlin_gemv.cuh"

namespace ktx::kernels {

// The shape of a launch: kOneBlocks for every SM (or so many more for each), and a ring
// as deep as their share of its shared memory allows.
template <DType kFirst, DType kSecond>
Status launch_one(const OneProduct& p, cudaStream_t stream) {
  constexpr int kTile[2] = {MarlinStream<kFirst>::kTileBytes, MarlinStream<kSecond>::kTileBytes};
  const int tiles = ceil_div(p.cols, 256);
  const int top_k = static_cast<int>(p.router.attrs.top_k);
  const bool sum = p.work == OneWork::Sum;
  OneShape shape;
  // Two blocks that share units read half of the rows of x each, and their units are more alike.
  if (sum && top_k % 2 == 0 && compute_capability() >= 90) shape.cluster = 2;
  const int sources_of_sum = top_k / shape.cluster;
  const int x_bytes = OneX::bytes_of((sum ? sources_of_sum : 1) * tiles);
  const auto units_of = [&](const OneRows& rows) {
    return rows.strips() * (p.work == OneWork::Choices ? top_k : 1);
  };
  // Parts get blocks by their bytes of a column of tiles.
  const auto bytes_of = [&](const OneRows& rows) {
    return int64_t{units_of(rows)} * kTile[rows.dtype == kFirst ? 0 : 1];
  };
  int64_t bytes = 0;
  for (int i = 0; i < p.parts; ++i) bytes += bytes_of(p.rows[i]);
  const int count = p.work == OneWork::Heads || p.work == OneWork::Pairs ? p.count : 1;
  int most_units = kOneUnits;  // and of the sum at most 32 strips
  if (sum && most_units * sources_of_sum > 32)
    most_units = sources_of_sum < 32 ? 32 / sources_of_sum : 1;
  int blocks = 0;
  const auto share_out = [&](int64_t all) {  // whether no block has too many units
    blocks = 0;
    bool fits = true;
    for (int i = 0; i < p.parts; ++i) {
      const OneRows& rows = p.rows[i];
      const auto own = static_cast<int>(all * bytes_of(rows) / bytes);
      shape.blocks[i] = own < 1 ? 1 : own;
      if (p.parts == 1) shape.blocks[i] = static_cast<int>(all);
      if (shape.cluster > 1) shape.blocks[i] = ceil_div(shape.blocks[i], 2) * 2;
      shape.first_block[i] = blocks;
      blocks += shape.blocks[i];
      const int units = ceil_div(units_of(rows), shape.blocks[i] / shape.cluster);
      const int strips = units * (sum ? sources_of_sum : rows.w[1] ? 2 : 1);
      shape.most_strips = strips > shape.most_strips || i == 0 ? strips : shape.most_strips;
      fits = fits && units <= most_units;
    }
    return fits;
  };
  for (int waves = 1; !share_out(ceil_div(kOneBlocks * sm_count() * waves, count)); ++waves) {
  }
  const int most_items = ceil_div(shape.most_strips * tiles, kOneWarps);
  const int rest = x_bytes + shape.most_strips * (kOneWarps * 16 * 4 + 8) +
                   (p.work == OneWork::Choices ? choose_experts_bytes(p.router.attrs) : 0);
  const int share =
      device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / kOneBlocks - 3 * 1024;
  const int limit = shared_memory_limit() - 2 * 1024;
  constexpr int kWidest = kTile[0] > kTile[1] ? kTile[0] : kTile[1];
  if (rest + kOneWarps * kWidest > limit) {
    return Error{"one token times marlin weights: " + std::to_string(p.cols) +
                 " columns need more shared memory than this GPU has"};
  }
  const bool fits = rest + 2 * kOneWarps * kWidest <= share;
  int ring = ((fits ? share : limit) - rest) / kOneWarps / 16 * 16;
  if (ring > most_items * kWidest) ring = most_items * kWidest;
  // Deep where it fills while the kernel ahead drains. Experts are met by all blocks at once: with
  // more than two tiles of each warp on the way some SMs get far more than their share.
  const int most_stages = p.work == OneWork::Heads ? kMostStages : 2;
  if (ring > most_stages * kWidest) ring = most_stages * kWidest;
  shape.ring_bytes = ring;
  for (int i = 0; i < 2; ++i) {
    const int stages = ring / kTile[i];
    shape.stages[i] = stages < kMostStages ? stages : kMostStages;
  }
  shape.bytes = kOneWarps * ring + rest;
  // Small rings leave room for a third block. One of the next product would take it, and this
  // one's blocks come to stand unevenly (H200: gate and up of eight experts 39.0 us, not 48.2).
  // With more blocks than stand at once, a third of this product is welcome.
  if (p.work != OneWork::Heads && blocks * count <= kOneBlocks * sm_count()) {
    const int third =
        device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / (kOneBlocks + 1);
    if (shape.bytes < third) shape.bytes = third;
  }
  const dim3 grid(blocks, count);
  return launch_clusters("one token times marlin weights", one_kernel<kFirst, kSecond>(p.work),
                         grid, shape.cluster, kOneThreads, shape.bytes, stream, p, shape);
}

}  // namespace ktx::kernels
