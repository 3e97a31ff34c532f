// Finds the final hidden states: the output of the final norm, one row per wanted token, from
// which the head makes logits. Embeddings are made of them.
//
//   rms_norm model.norm  out=last      matmul lm_head  in=last  out=logits
//                             ^^^^ this one, until the next pass
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"

namespace ktx::runtime {

struct FinalHidden {
  uint32_t value = 0;       // F32, one row of `hidden_size` per wanted logits row, or per token
  std::string_view device;  // "cpu", "cuda:0": where the head reads it
};

// Fails where the plan has no such value, or writes over it before its end.
Result<FinalHidden> find_final_hidden(const plan::PlanView& plan);
// The same with a row per token of the pass, where the plan was made to keep it.
Result<FinalHidden> find_token_hidden(const plan::PlanView& plan);

}  // namespace ktx::runtime
