// The launches of one token: which kernel, how many blocks, in which shares, with rings how deep.
#pragma once

#include "kernels/cuda/gemv/marlin_gemv_dense.cuh"
#include "kernels/cuda/gemv/marlin_gemv_expert_strips.cuh"
#include "kernels/cuda/gemv/marlin_gemv_experts.cuh"
#include "kernels/cuda/gemv/marlin_gemv_strips.cuh"

namespace ktx::kernels {

constexpr const char* kOneToken = "one token times marlin weights";

template <DType kFirst, DType kSecond>
constexpr int one_tile_bytes(DType dtype) {
  return dtype == kFirst ? kMarlinTileBytes<kFirst> : kMarlinTileBytes<kSecond>;
}

// Shared memory of an SM that `blocks` blocks have each, besides what they have fixed.
inline int memory_of_blocks(int blocks) {
  return device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / blocks - 4 * 1024;
}

// The shape of a launch whose blocks have a strip each: where all tiles of an SM's strips fit in
// its shared memory, so that few of them are asked for when the kernel ahead is long over.
template <DType kFirst, DType kSecond>
bool one_strip_a_block(const OneProduct& p, OneShape& shape) {
  const int tiles = ceil_div(p.cols, 256);
  if (compute_capability() < 90 || tiles > kStripWarps) return false;
  int strips = 0;
  for (int i = 0; i < p.parts; ++i) {
    if (p.rows[i].w[1]) return false;
    shape.first_block[i] = strips;
    strips += p.rows[i].strips();
    const int bytes = tiles * one_tile_bytes<kFirst, kSecond>(p.rows[i].dtype);
    if (bytes > shape.bytes) shape.bytes = bytes;
  }
  shape.blocks[p.parts - 1] = strips - shape.first_block[p.parts - 1];
  shape.bytes += OneX::bytes_of(tiles);
  const int64_t of_sm = ceil_div(int64_t{strips} * p.count, int64_t{sm_count()});
  return of_sm <= kStripsOfSm && shape.bytes <= memory_of_blocks(static_cast<int>(of_sm));
}

// Shared memory of a block that has a strip of gate and up of a choice. 0 where those of a token do
// not stand all at once, or have a bias.
template <DType kType>
int one_choice_strip_bytes(const OneProduct& p) {
  const OneRows& rows = p.rows[0];
  const int tiles = ceil_div(p.cols, 256);
  const int bytes = 2 * tiles * kMarlinTileBytes<kType> + OneX::bytes_of(tiles) +
                    choose_experts_bytes(p.router.attrs);
  const bool at_once = rows.strips() * p.choices() <= kChoiceBlocks * sm_count() &&
                       bytes <= memory_of_blocks(kChoiceBlocks) &&
                       p.router.attrs.experts <= kChoiceExperts;
  const bool plain = rows.w[1] && !rows.bias[0] && !rows.bias[1] && !rows.accumulate;
  return at_once && plain && compute_capability() >= 90 ? bytes : 0;
}

// The same of a strip of the sum, with a warp a tile of an expert.
template <DType kType>
int one_sum_strip_bytes(const OneProduct& p) {
  const OneRows& rows = p.rows[0];
  const int warps = ceil_div(p.cols, 256) * p.choices();
  const int bytes = warps * kMarlinTileBytes<kType> + OneX::bytes_of(warps);
  const bool at_once =
      warps <= kSumWarps && rows.strips() <= sm_count() && bytes <= memory_of_blocks(1);
  return at_once && !rows.bias[0] && compute_capability() >= 90 ? bytes : 0;
}

// The shape of other launches: kOneBlocks for every SM (or so many more for each), and a ring
// as deep as their share of its shared memory allows.
template <DType kFirst, DType kSecond>
Result<OneShape> one_shape(const OneProduct& p, int cluster) {
  const int tiles = ceil_div(p.cols, 256);
  const bool heads = p.work == OneWork::Heads, sum = p.work == OneWork::Sum;
  OneShape shape;
  shape.cluster = cluster;
  const int sources_of_sum = p.choices() / cluster;
  const int x_tiles = sum ? sources_of_sum * tiles : tiles;
  const auto units_of = [&](const OneRows& rows) {
    return rows.strips() * (p.work == OneWork::Choices ? p.choices() : 1);
  };
  // Parts get blocks by their bytes of a column of tiles.
  const auto bytes_of = [&](const OneRows& rows) {
    return int64_t{units_of(rows)} * one_tile_bytes<kFirst, kSecond>(rows.dtype);
  };
  int64_t bytes = 0;
  for (int i = 0; i < p.parts; ++i) bytes += bytes_of(p.rows[i]);
  int most_units = kOneUnits;  // and of the sum at most 32 strips
  if (sum && most_units * sources_of_sum > 32)
    most_units = sources_of_sum < 32 ? 32 / sources_of_sum : 1;
  int blocks = 0;
  const auto share_out = [&](int64_t all) {  // whether no block has too many units
    blocks = 0;
    bool fits = true;
    for (int i = 0; i < p.parts; ++i) {
      const OneRows& rows = p.rows[i];
      const auto clusters = static_cast<int>(all * bytes_of(rows) / bytes / cluster);
      shape.blocks[i] = (clusters < 1 ? 1 : clusters) * cluster;
      shape.first_block[i] = blocks;
      blocks += shape.blocks[i];
      const int of = shape.blocks[i] / cluster, units = ceil_div(units_of(rows), of);
      const int64_t more = units_of(rows) % of;
      shape.least[i] = units_of(rows) / of;
      shape.more[i] = static_cast<uint32_t>(ceil_div(more << 32, int64_t{of}));  // of < 2^16
      const int strips = units * (sum ? sources_of_sum : rows.w[1] ? 2 : 1);
      shape.most_strips = strips > shape.most_strips || i == 0 ? strips : shape.most_strips;
      fits = fits && units <= most_units;
    }
    return fits;
  };
  for (int waves = 1; !share_out(ceil_div(kOneBlocks * sm_count() * waves, p.count)); ++waves) {
  }
  const int most_items = ceil_div(shape.most_strips * x_tiles, kOneWarps);
  int rest = OneX::bytes_of(x_tiles) + shape.most_strips * kOneWarps * 16 * 4;
  if (!heads) rest += shape.most_strips * 8;  // the table of their places
  if (p.work == OneWork::Choices) rest += choose_experts_bytes(p.router.attrs);
  const int share =
      device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / kOneBlocks - 3 * 1024;
  const int limit = shared_memory_limit() - 2 * 1024;
  constexpr int kTile[2] = {kMarlinTileBytes<kFirst>, kMarlinTileBytes<kSecond>};
  constexpr int kWidest = kTile[0] > kTile[1] ? kTile[0] : kTile[1];
  if (rest + kOneWarps * kWidest > limit) {
    return Error{std::string(kOneToken) + ": " + std::to_string(p.cols) +
                 " columns need more shared memory than this GPU has"};
  }
  const bool fits = rest + 2 * kOneWarps * kWidest <= share;
  // Whole lines of 128 bytes where there is room.
  int ring = fits ? (share - rest) / kOneWarps / 128 * 128 : (limit - rest) / kOneWarps / 16 * 16;
  if (ring > most_items * kWidest) ring = most_items * kWidest;
  // Deep where it fills while the kernel ahead drains. Experts are met by all blocks at once: with
  // more than two tiles of each warp on the way some SMs get far more than their share.
  const int most_stages = heads ? kMostStages : 2;
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
  if (!heads && blocks * p.count <= kOneBlocks * sm_count()) {
    const int third =
        device_attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / (kOneBlocks + 1);
    if (shape.bytes < third) shape.bytes = third;
  }
  return shape;
}

template <class Kernel>
Status launch_one_shape(Kernel kernel, const OneProduct& p, const OneShape& shape, int threads,
                        cudaStream_t stream) {
  const int last = p.parts - 1;
  const dim3 grid(shape.first_block[last] + shape.blocks[last], p.count);
  return launch_clusters(kOneToken, kernel, grid, shape.cluster, threads, shape.bytes, stream, p,
                         shape);
}

template <DType kType>
Status launch_one_experts(const OneProduct& p, cudaStream_t stream) {
  const bool choices = p.work == OneWork::Choices, sum = p.work == OneWork::Sum;
  if (const int bytes = choices ? one_choice_strip_bytes<kType>(p) : 0) {
    const auto kernel = p.router.attrs.experts <= 128 ? marlin_gemv_choice_strips<kType, 4>
                                                      : marlin_gemv_choice_strips<kType, 8>;
    return launch(kOneToken, kernel, dim3(p.rows[0].strips() * p.choices(), p.count), kOneThreads,
                  bytes, stream, p);
  }
  if (const int bytes = sum ? one_sum_strip_bytes<kType>(p) : 0) {
    const int warps = ceil_div(p.cols, 256) * p.choices();
    return launch(kOneToken, marlin_gemv_sum_strips<kType>, dim3(p.rows[0].strips(), p.count),
                  32 * warps, bytes, stream, p);
  }
  // Two blocks that share units read half of the rows of x each, and their units are more alike.
  const bool halves = sum && p.choices() % 2 == 0 && compute_capability() >= 90;
  const OneShape shape = KTX_TRY((one_shape<kType, kType>(p, halves ? 2 : 1)));
  const auto kernel = choices ? marlin_gemv_experts<kType, OneWork::Choices>
                      : sum   ? marlin_gemv_experts<kType, OneWork::Sum>
                              : marlin_gemv_experts<kType, OneWork::Pairs>;
  return launch_one_shape(kernel, p, shape, kOneThreads, stream);
}

template <DType kFirst, DType kSecond, bool kNorm>
Status launch_one_dense(const OneProduct& p, cudaStream_t stream) {
  OneShape strips;
  if (one_strip_a_block<kFirst, kSecond>(p, strips)) {
    return launch_one_shape(marlin_gemv_strips<kFirst, kSecond, kNorm>, p, strips,
                            32 * ceil_div(p.cols, 256), stream);
  }
  const OneShape shape = KTX_TRY((one_shape<kFirst, kSecond>(p, 1)));
  auto kernel = marlin_gemv_dense<kFirst, kSecond, false, kNorm>;
  if constexpr (kFirst == kSecond) {  // gate and up have one format
    if (p.rows[0].w[1]) kernel = marlin_gemv_dense<kFirst, kSecond, true, kNorm>;
  }
  return launch_one_shape(kernel, p, shape, kOneThreads, stream);
}

template <DType kFirst, DType kSecond>
Status launch_one(const OneProduct& p, cudaStream_t stream) {
  if constexpr (kFirst == kSecond) {  // parts of two formats are Heads
    if (p.work != OneWork::Heads) return launch_one_experts<kFirst>(p, stream);
  }
  return p.norm ? launch_one_dense<kFirst, kSecond, true>(p, stream)
                : launch_one_dense<kFirst, kSecond, false>(p, stream);
}

}  // namespace ktx::kernels
