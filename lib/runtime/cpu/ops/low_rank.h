// Low-rank terms of products (lib/runtime/lora/lora_weights.h), added as the product computes:
//
//   stage 6:  low = scale * A x, a step of its own     stage 7:  y = W x, then y += B low
//
// The second half belongs to the product's items: an item adds to the columns that it has just
// written, before the steps behind it read them. Rows of texts without an adapter are not touched.
// The sums of a row depend on its own adapters alone, not on other rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lib/ops/step_stages.h"
#include "lib/runtime/cpu/cpu_step.h"
#include "lib/runtime/lora/lora_weights.h"

namespace ktx::runtime {

// Makes `low` of a matmul step; `product` must outlive it.
Result<std::unique_ptr<CpuStep>> make_low_rank(const BindContext& context,
                                               const LoraProduct& product);

// What it touches, for its stage; and what the product reads besides.
StepFacts low_rank_facts(const StepFacts& product, const StepAccess& room);
StepAccess low_rank_room(const program::Program& program, const LoraProduct& product, bool write);

class LowRankTerms {
 public:
  Status bind(const LoraProduct* product, RowKind rows, Isa isa);  // null: none
  bool any() const { return product_ != nullptr; }
  int64_t scratch_bytes() const;
  // Adds to the columns of the region, which is of rows as they are.
  void add(const Batch& batch, const OutputRegion& region, float* y, int64_t y_stride,
           std::byte* scratch) const;

 private:
  const LoraProduct* product_ = nullptr;
  RowKind rows_ = RowKind::Token;
  std::vector<kernels::MatmulKernel> kernels_;  // of each term
};

}  // namespace ktx::runtime
