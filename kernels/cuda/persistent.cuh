// The persistent kernel (cuda_persistent.h): one block a processor walks the phases; between two
// of them all blocks have to have ended the first.
//
// Roofline: bytes of the weights / memory bandwidth. A phase costs the meeting of the blocks
// (about 1 us) and the way from x in L2 to the sums; meanwhile the rings fill, with 150 KB a
// processor, which is 4 us of the memory.
#pragma once

#include "kernels/cuda/persistent_attention.cuh"
#include "kernels/cuda/persistent_products.cuh"

namespace ktx::kernels {

#if __CUDA_ARCH__ >= 900

// Blocks meet: each tells its end once all its threads are there, and waits for the others' count.
__device__ __forceinline__ void tell_end(uint32_t* arrived) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
}
__device__ __forceinline__ void wait_for_ends(const uint32_t* arrived, uint32_t count) {
  uint32_t now;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
  } while (now < count);
}

// What a phase reads that does not depend on the ones before.
__device__ __forceinline__ void prepare_phase(const PhaseRecord& record, AttentionReady& ready) {
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  if (record.kind == PhaseKind::Products) {
    const auto& p = *reinterpret_cast<const OneProduct*>(record.data);
    const int k = 32 * (block + static_cast<int>(gridDim.x) * thread);
    if (p.norm && k < p.cols) prefetch_l2(p.norm + k);
  } else if (record.kind == PhaseKind::Router) {
    const auto& p = *reinterpret_cast<const RouterPhase*>(record.data);
    if (block >= p.rows) return;
    for (int k = 32 * thread; k < p.cols; k += 32 * kPersistentThreads) {
      prefetch_l2(p.w + int64_t{block} * p.cols + k);
    }
  } else {
    prepare_attention(*reinterpret_cast<const AttentionPhase*>(record.data), ready);
  }
}

// What a block keeps beside its tiles.
struct PersistentBlock {
  TileRings rings;
  PhaseRecord records[2];  // of this phase and the next
  ChosenExperts chosen;
  AttentionReady attention;
};

template <DType kFirst, DType kSecond>
__device__ __forceinline__ void walk_phases(const PersistentArgs& args, PersistentBlock& block,
                                            const BlockShare* shares, uint8_t* scratch) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  TileQueue queue(block.rings, scratch + args.scratch_bytes + warp * args.ring_bytes,
                  args.ring_bytes, warp);
  const auto load_record = [&](int i) {  // by one warp
    const auto* from = reinterpret_cast<const uint4*>(args.phases + i);
    reinterpret_cast<uint4*>(block.records + i % 2)[lane] = from[lane];
  };
  if (warp == 0) load_record(0);
  meet_warps();
  wait_for_inputs();
  if (args.attention >= 0) {
    begin_attention(*reinterpret_cast<const AttentionPhase*>(args.phases[args.attention].data),
                    block.attention);
    meet_warps();
  }
  prepare_phase(block.records[0], block.attention);
  meet_warps();
#pragma unroll 1
  for (int i = 0; i < args.count; ++i) {
    if (warp == 1 && i + 1 < args.count) load_record(i + 1);
    const PhaseRecord& record = block.records[i % 2];
    if (record.kind == PhaseKind::Products) {
      products_phase<kFirst, kSecond>(args, *reinterpret_cast<const OneProduct*>(record.data),
                                      shares[record.share], scratch, block.chosen, block.rings,
                                      queue);
    } else if (record.kind == PhaseKind::Router) {
      router_phase(*reinterpret_cast<const RouterPhase*>(record.data));
    } else {
      attention_phase(*reinterpret_cast<const AttentionPhase*>(record.data), block.attention,
                      reinterpret_cast<uint4*>(scratch));
    }
    meet_warps();
    if (i + 1 == args.count) break;
    if (thread == 0) tell_end(args.arrived);
    prepare_phase(block.records[(i + 1) % 2], block.attention);
    if (thread == kPersistentThreads - 32)
      wait_for_ends(args.arrived, static_cast<uint32_t>(i + 1) * gridDim.x);
    meet_warps();
  }
  // The last one leaves the count as it was found.
  if (thread == 0 &&
      count_ended(args.arrived) + 1 == static_cast<uint32_t>(args.count) * gridDim.x) {
    *args.arrived = 0;
  }
}

#endif

template <DType kFirst, DType kSecond>
__global__ void __launch_bounds__(kPersistentBlock, 1)
    persistent(const __grid_constant__ PersistentArgs args) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ uint4 persistent_shared[];
  __shared__ PersistentBlock block;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  auto* memory = reinterpret_cast<uint8_t*>(persistent_shared);
  auto* shares = reinterpret_cast<BlockShare*>(memory);
  const int share_bytes = args.products * static_cast<int>(sizeof(BlockShare));
  uint8_t* scratch = memory + (share_bytes + 127) / 128 * 128;
  const auto* own =
      reinterpret_cast<const uint2*>(args.shares + int64_t{blockIdx.x} * args.products);
  for (int i = thread; i < share_bytes / 8; i += kPersistentBlock) {
    reinterpret_cast<uint2*>(shares)[i] = own[i];
  }
  block.rings.start(warp, lane);
  __syncthreads();
  if (warp == kPersistentWarps) {
    feed_tiles<MarlinStream<kFirst>::kTileBytes, MarlinStream<kSecond>::kTileBytes>(
        args, block.rings, scratch + args.scratch_bytes, shares, block.chosen.expert, lane);
  } else {
    walk_phases<kFirst, kSecond>(args, block, shares, scratch);
  }
#endif
}

template <DType kFirst, DType kSecond>
Status launch_persistent(const PersistentArgs& args, int blocks, cudaStream_t stream) {
  constexpr const char* kWhat = "persistent steps of one token";
  const auto kernel = persistent<kFirst, kSecond>;
  KTX_TRY(cuda_status(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, args.bytes),
      kWhat));
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kPersistentBlock);
  config.dynamicSmemBytes = static_cast<size_t>(args.bytes);
  config.stream = stream;
  cudaLaunchAttribute together = {};  // all blocks at once, or an error
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  config.attrs = &together;
  config.numAttrs = 1;
  return cuda_status(cudaLaunchKernelEx(&config, kernel, args), kWhat);
}

}  // namespace ktx::kernels
