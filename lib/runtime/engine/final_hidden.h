// Finds the hidden states that are available after a pass.
//
// The final hidden states are the output of the final norm, one row per wanted token, from which
// the head makes logits. Embeddings are made of them.
//
//   rms_norm model.norm  out=last      matmul lm_head  in=last  out=logits
//                             ^^^^ this one, until the next pass
//
// Those that the plan keeps for a drafter have a row for every token (PlanFacts::hidden_values).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/plan/plan_reader.h"
#include "lib/support/result.h"

namespace ktx::runtime {

struct FinalHidden {
  uint32_t value = 0;       // F32, one row of `hidden_size` per wanted logits row, or per token
  std::string_view device;  // "cpu", "cuda:0": where it is
};

// `plan` is of a PlanFile. Fails where the plan has no such value, or writes over it before its
// end.
Result<FinalHidden> find_final_hidden(const plan::PlanView& plan);
// In the order of the facts; none where nothing is kept.
std::vector<FinalHidden> find_kept_hidden(const plan::PlanView& plan);

}  // namespace ktx::runtime
