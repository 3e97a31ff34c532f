// Copies a step's logits back from a GPU: a whole row, or its best.
//
//   row 0: best 1    a greedy request      8 bytes and the sum
//   row 1: best 40   top_k 40              320 bytes
//   row 2: best 1    of those that a grammar allows: its bits (19 KB) go up meanwhile
//   row 3: all       with penalties        600 KB
//
// Queued behind the graphs of a step, since the mix differs from step to step.
#pragma once

#include <cstdint>

#include "lib/runtime/engine/batch.h"
#include "lib/runtime/gpu/gpu.h"
#include "lib/runtime/gpu/host_buffer.h"
#include "lib/runtime/sampling/best_logits.h"

namespace ktx::runtime {

class GpuLogits {
 public:
  // Where the logits lie on the GPU and where they go on the host.
  struct Places {
    const std::byte* device = nullptr;
    std::byte* host = nullptr;
    int64_t row_bytes = 0;
    int64_t vocabulary = 0;
    int64_t most_rows = 0;  // of a step
  };
  GpuLogits() = default;
  GpuLogits(const GpuLogits&) = delete;
  GpuLogits& operator=(const GpuLogits&) = delete;
  Status allocate(Gpu& gpu, const Places& places);
  int64_t workspace_bytes() const;

  // Queues what the batch's rows want (Batch::best, Batch::filter).
  Status queue(const Batch& batch, std::byte* workspace);
  // Queues the copy of all logits of a row of the last queue().
  Status fetch(int64_t row);
  // The best of a row of the last queue(), after the GPU has finished. `count`: as requested.
  BestLogits best(int64_t row, int32_t count) const;

 private:
  GpuBestLogits search(int64_t first, int64_t rows, std::byte* workspace) const;
  Status send_allowed(const Batch& batch);
  int64_t words() const { return (places_.vocabulary + 31) / 32; }
  // Sums, then tokens, of `rows` rows.
  int64_t tokens_at(int64_t rows) const;

  Gpu* gpu_ = nullptr;
  Places places_;
  GpuMemory device_;
  HostBuffer host_;
  // A bit for each token and row, while the step has a filter.
  GpuMemory device_allowed_;
  HostBuffer host_allowed_;
  bool filtered_ = false;
  int64_t rows_ = 0;
  int32_t count_ = 0;
};

}  // namespace ktx::runtime
