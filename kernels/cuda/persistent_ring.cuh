// The tiles of every warp on their way through shared memory, over all phases of a persistent
// kernel. One more warp of the block feeds: each of its lanes keeps the ring of one warp filled,
// with the tiles of whatever phase comes next, as far as their addresses are known (an
// expert's once it is chosen). So the memory works while the others meet, and asking costs them
// nothing.
//
//   feeder                                  a warp that multiplies
//   feed_tiles<...>(args, rings, lane);     TileQueue tiles(rings, warp, bytes);
//                                           const uint8_t* chunk = tiles.wait(bytes);
//                                           ... tiles.done(lane);
//
// Tiles come in chunks, one copy each: the feeder's time for one copy (some 150 cycles a lane)
// would not do for a tile a copy. Chunks have different sizes: one that does not fit behind the
// last goes to the start of the ring.
//
// Tiles of a phase are asked for before those of the next one of any warp, and what is asked for
// ahead of its phase is little at a time (kMostAhead): all that a ring holds, asked for at once,
// would stand in the memory's queue before what others need to end the phase, and before their
// meeting and x after it (+4.6 % for Llama-3.1-8B on H200).
#pragma once

#include <climits>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/persistent_phases.h"

namespace ktx::kernels {

#if __CUDA_ARCH__ >= 900

constexpr int kRingChunks = 8;  // of a warp, asked for and not yet taken; a power of two
constexpr int kMostAhead = 4;   // chunks on their way to a block while it asks ahead of its phase

// A barrier of the warps that multiply. Lanes may come one after the other, so they meet first:
// the barrier is for whole warps (and racecheck finds hazards at one that is not).
__device__ __forceinline__ void meet_warps() {
  __syncwarp();
  asm volatile("barrier.sync.aligned 15, %0;" ::"n"(kPersistentThreads) : "memory");
}
// The same, and whether the condition holds for any thread.
__device__ __forceinline__ bool meet_warps_any(bool condition) {
  uint32_t any;
  __syncwarp();
  asm volatile(
      "{\n"
      ".reg .pred own, any;\n"
      "setp.ne.u32 own, %1, 0;\n"
      "barrier.red.or.pred.aligned any, 15, %2, own;\n"
      "selp.u32 %0, 1, 0, any;\n"
      "}"
      : "=r"(any)
      : "r"(static_cast<uint32_t>(condition)), "n"(kPersistentThreads)
      : "memory");
  return any != 0;
}

// The rings of a block; all but `memory` and `shares` in static shared memory.
struct TileRings {
  uint64_t there[kPersistentWarps][kRingChunks];  // barriers: the chunk has come
  uint64_t taken[kPersistentWarps][kRingChunks];  // barriers: its place is free
  uint64_t chosen, begun;                         // barriers: of experts (a warp's lanes arrive); of
                                                  // a phase of products
  int ends[kPersistentWarps][kRingChunks];        // of chunks asked for; the feeder's alone

  // By every warp; all of them meet before a barrier is used.
  __device__ __forceinline__ void start(int warp, int lane) {
    if (lane != 0) return;
    if (warp == kPersistentWarps) {
      barrier_init(&chosen, 32);
      barrier_init(&begun, 1);
    } else {
#pragma unroll 1
      for (int i = 0; i < kRingChunks; ++i) {
        barrier_init(there[warp] + i, 1);
        barrier_init(taken[warp] + i, 1);
      }
    }
    barrier_init_done();
  }
};

// A warp's end of its ring.
class TileQueue {
 public:
  __device__ TileQueue(TileRings& rings, uint8_t* memory, int bytes, int warp)
      : there_(rings.there[warp]),
        freed_(rings.taken[warp]),
        memory_(memory),
        bytes_(bytes) {}
  // The next chunk, of `size` bytes, there for all lanes.
  __device__ __forceinline__ const uint8_t* wait(int size) {
    barrier_wait(there_ + taken_ % kRingChunks, taken_ / kRingChunks % 2);
    if (end_ + size > bytes_) end_ = 0;
    const uint8_t* chunk = memory_ + end_;
    end_ += size;
    return chunk;
  }
  __device__ __forceinline__ void done(int lane) {
    end_reads_before_bulk_copies();
    __syncwarp();  // all lanes have read it
    if (lane == 0) barrier_arrive(freed_ + taken_ % kRingChunks);
    ++taken_;
  }

 private:
  uint64_t* there_;
  uint64_t* freed_;
  uint8_t* memory_;
  int bytes_, end_ = 0;
  uint32_t taken_ = 0;
};

// Of a chunk at most, all of one strip.
constexpr int kChunkTiles = 2;

// Which tiles a ring's warp takes, in order (one lane's state). A share's strips go source by
// source, so all of a source (of an expert) stand in a row.
template <int kFirstBytes, int kSecondBytes>
class TileOrder {
 public:
  __device__ TileOrder(const BlockShare* shares, int count, const int* chosen, int warp)
      : shares_(shares), chosen_(chosen), count_(count), warp_(warp) {}
  __device__ __forceinline__ int share() const { return share_; }
  __device__ __forceinline__ bool over() const { return left_ == 0 && share_ + 1 >= count_; }
  // Whether there is a next chunk among the shares below `known`.
  __device__ __forceinline__ bool has(int known) {
    while (left_ == 0 && share_ + 1 < min(known, count_)) {
      const BlockShare& s = shares_[++share_];
      const int items = s.items();
      item_ = items * warp_ / kPersistentWarps;
      left_ = items * (warp_ + 1) / kPersistentWarps - item_;
      size_ = s.format ? kSecondBytes : kFirstBytes;
    }
    if (run_ == 0 && left_ > 0) find(shares_[share_]);
    return left_ > 0;
  }
  __device__ __forceinline__ int bytes() const {
    return min(min(kChunkTiles, left_), tiles_ - tile_) * size_;
  }
  __device__ __forceinline__ const uint8_t* next() {
    const uint8_t* chunk = from_;
    const int n = min(min(kChunkTiles, left_), tiles_ - tile_);
    from_ += n * size_;
    item_ += n, left_ -= n, run_ -= n, tile_ += n;
    if (tile_ == tiles_) tile_ = 0;
    if (left_ == 0) run_ = 0;
    return chunk;
  }

 private:
  // Where item_ is, and how many tiles from it on stand in a row.
  __device__ __forceinline__ void find(const BlockShare& s) {
    tiles_ = s.tiles;
    const int strip = item_ / tiles_, source = strip / s.units;
    int unit = s.first + strip - source * s.units;
    tile_ = item_ - strip * tiles_;
    run_ = (source + 1) * s.units * tiles_ - item_;
    const uint8_t* w = s.w[s.work == OneWork::Sum ? 0 : source];
    if (s.work == OneWork::Sum) w += chosen_[source] * s.matrix_bytes;
    if (s.work == OneWork::Choices) {
      const int choice = unit / s.matrix_strips;
      w += chosen_[choice] * s.matrix_bytes;
      unit -= choice * s.matrix_strips;
      run_ = min(run_, (s.matrix_strips - unit) * tiles_ - tile_);
    }
    from_ = w + int64_t{unit} * s.strip_bytes + tile_ * size_;
  }

  const BlockShare* shares_;
  const int* chosen_;
  const uint8_t* from_ = nullptr;  // the next tile
  int count_, warp_, share_ = -1;
  int item_ = 0, left_ = 0, run_ = 0, tile_ = 0, tiles_ = 1, size_ = kFirstBytes;
};

// By one warp: lane w feeds warp w, until all shares have been asked for.
template <int kFirstBytes, int kSecondBytes>
__device__ __forceinline__ void feed_tiles(const PersistentArgs& args, TileRings& rings,
                                           uint8_t* memory, const BlockShare* shares,
                                           const int* chosen, int lane) {
  const bool feeds = lane < kPersistentWarps;
  const int warp = feeds ? lane : 0, bytes = args.ring_bytes;
  memory += warp * bytes;
  uint64_t *there = rings.there[warp], *taken = rings.taken[warp];
  TileOrder<kFirstBytes, kSecondBytes> order(shares, feeds ? args.products : 0, chosen, warp);
  uint32_t asked = 0, came = 0, freed = 0;  // chunks so far
  int head = 0, tail = 0;                   // behind the last one asked for, the last one freed
  int known = args.first_choices;           // shares below this may be asked for
  uint32_t choices = 0, begun = 0;          // phases so far: of experts chosen, of products begun
#pragma unroll 1
  while (__any_sync(~0u, !order.over())) {
    if (known < args.products && barrier_test(&rings.chosen, choices % 2)) {
      known = shares[known].next_choices;
      ++choices;
    }
    if (barrier_test(&rings.begun, begun % 2)) ++begun;  // two behind: stays so, and asks for few
    if (freed != asked && barrier_test(taken + freed % kRingChunks, freed / kRingChunks % 2)) {
      tail = rings.ends[warp][freed % kRingChunks];
      ++freed;
    }
    const bool has = order.has(known);
    const int size = order.bytes(), at = head + size <= bytes ? head : 0;
    const uint32_t waiting = asked - freed;
    const bool wrapped = head < tail, wraps = at != head;
    const bool room =
        waiting == 0 || (wraps ? !wrapped && size < tail : !wrapped || at + size < tail);
    const int share = has ? order.share() : INT_MAX, first = __reduce_min_sync(~0u, share);
    const bool ahead = share >= static_cast<int>(begun);
    bool asks = has && room && waiting < kRingChunks && share == first;
    const uint32_t waits = __ballot_sync(~0u, asks && ahead);
    if (waits != 0) {
      came = max(came, freed);
      if (came != asked && barrier_test(there + came % kRingChunks, came / kRingChunks % 2)) ++came;
      const uint32_t coming = __reduce_add_sync(~0u, asked - came);
      asks = asks && (!ahead || coming + __popc(waits & ((1u << lane) - 1)) < kMostAhead);
    }
    if (asks) {
      bulk_copy(memory + at, order.next(), size, there + asked % kRingChunks);
      head = at + size;
      rings.ends[warp][asked % kRingChunks] = head;
      ++asked;
    }
    if (!__any_sync(~0u, asks)) __nanosleep(20);
  }
}

#endif

}  // namespace ktx::kernels
