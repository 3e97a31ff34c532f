// The adapters of a run, ready for the products of a plan that they change.
//
//   LoraWeights lora = KTX_TRY(LoraWeights::make(plan, adapters));
//   KTX_TRY(lora.open(step_tokens));
//   lora.of_step(12);   // the low-rank terms of that product; null: it has none
//
// An adapter names tensors of the model's GGUF, and a plan knows of each weight which rows of which
// tensors it is (program::Blob::sources). So a weight that was fused of q, k and v has a term for
// each, and one that was cut out of a fused tensor has its rows of B.
//
// A stays as rows; B is in panels of 16 rows, so that products of few columns are quick. Both are
// as in the file when it has F16 or BF16. F32, and what other formats decode to, is kept as BF16 or
// F16 where each number of the matrix is one, and as F32 otherwise: the values are always the
// file's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/matmul/matmul.h"
#include "lib/formats/lora_adapter.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/engine/arena.h"
#include "lib/support/result.h"

namespace ktx::runtime {

// An adapter's part of a product.
struct LoraTerm {
  int32_t adapter = 0;
  float scale = 1;
  kernels::WeightMatrix a;   // rank x inputs, in rows
  kernels::WeightMatrix b;   // its columns of y x rank, in panels of 16
  int64_t first_column = 0;  // of y, a multiple of 16
  int64_t place = 0;         // of A x in a row of LoraProduct::low
  bool computes_low = true;  // false: an earlier term has the same A x
};

struct LoraProduct {
  std::vector<LoraTerm> terms;
  int32_t room = 0;  // which of the rooms for A x: equal numbers share memory
  float* low = nullptr;
  int64_t low_stride = 0;  // elements of a row: the ranks of all terms, at least
};

class LoraWeights {
 public:
  // Copies what it needs. Fails if an adapter is for another model or changes anything but a
  // product on the CPU; the error lists up to 8 faults.
  static Result<LoraWeights> make(const plan::PlanView& plan,
                                  std::span<const std::shared_ptr<const LoraAdapter>> adapters);

  // Allocates room for A x in passes of up to `step_tokens` tokens; call before of_step().
  Status open(int64_t step_tokens);

  const LoraProduct* of_step(uint32_t step) const;
  uint64_t weight_bytes() const { return weight_bytes_; }
  uint64_t room_bytes(int64_t step_tokens) const;

 private:
  std::map<uint32_t, LoraProduct> products_;    // by step
  std::vector<std::vector<std::byte>> memory_;  // of the matrices
  uint64_t weight_bytes_ = 0;
  int64_t low_width_ = 0;  // elements of the widest row
  Arena rooms_;
};

}  // namespace ktx::runtime
