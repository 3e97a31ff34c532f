// What the persistent kernel reads in device memory: its phases, and of each phase with
// marlin weights the tiles of every block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/marlin_one.h"

namespace ktx::kernels {

// Warps that multiply. With the one that feeds them they are three for each of a processor's
// schedulers, which leaves 168 registers a thread; four have too few (-6 to -8 % on H200).
constexpr int kPersistentWarps = 11;
constexpr int kPersistentThreads = 32 * kPersistentWarps;
constexpr int kPersistentBlock = kPersistentThreads + 32;  // and the warp that feeds them

enum class PhaseKind : int32_t { Products, Router, Attention };

// The norm of x and the product of the router, in F32 (launch_one_router).
struct RouterPhase {
  const float* w = nullptr;  // [rows, cols]
  int rows = 0, cols = 0;
  const float* x = nullptr;
  const float* norm = nullptr;
  float eps = 0;
  float* normed = nullptr;
  float* logits = nullptr;
};

// Attention of one token. Block kv_head * splits + i has an equal share of the pieces; the last
// one to end merges those that had any.
struct AttentionPhase {
  CudaAttentionArgs args;
  int splits = 1;             // of a KV head at most
  float* values = nullptr;    // [heads][splits][value_dim], not yet divided
  float* sums = nullptr;      // [heads][splits][2]: largest score, sum of exp(score - largest)
  uint32_t* ended = nullptr;  // [kv_heads] blocks so far; 0 between phases
};

struct PhaseRecord {
  static constexpr int kBytes = 512;
  PhaseKind kind = PhaseKind::Products;
  int32_t share = 0;                             // Products: which of the block's shares
  alignas(16) std::byte data[kBytes - 16] = {};  // OneProduct, RouterPhase or AttentionPhase
};
static_assert(sizeof(PhaseRecord) == PhaseRecord::kBytes);
static_assert(sizeof(OneProduct) <= sizeof(PhaseRecord::data));
static_assert(sizeof(AttentionPhase) <= sizeof(PhaseRecord::data));

// The strips of a block in a phase of products: `units` units from `first` on, each of
// `sources` strips (gate and up; all chosen experts of a sum).
struct BlockShare {
  const uint8_t* w[2] = {};  // strip 0 of matrix 0
  int64_t matrix_bytes = 0;  // experts
  int32_t strip_bytes = 0;
  int32_t first = 0;
  int32_t matrix_strips = 0;  // of an expert, in Choices
  int16_t units = 0, sources = 1, tiles = 0;
  int16_t next_choices = 0;      // the first later share whose experts this one's do not tell
  uint8_t part = 0, format = 0;  // 0: the kernel's first, 1: its second
  OneWork work = OneWork::Heads;

  __host__ __device__ int items() const { return units * sources * tiles; }
};

struct PersistentArgs {
  const PhaseRecord* phases = nullptr;
  const BlockShare* shares = nullptr;  // [block][products]
  uint32_t* arrived = nullptr;         // blocks at the ends of phases; 0 between launches
  int count = 0, products = 0;         // phases; those of them with marlin weights
  int first_choices = 0;               // the first share that has to wait for its experts
  int attention = -1;                  // the first phase of attention, or -1
  // Dynamic shared memory: the block's shares; x; the warps' sums; the choice of experts; rings.
  // Attention has the place of x, sums and choice.
  int x_bytes = 0, sum_bytes = 0, scratch_bytes = 0, ring_bytes = 0;  // ring: of a warp
  int bytes = 0;
};

}  // namespace ktx::kernels
