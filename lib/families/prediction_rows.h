// Layers for multi-token prediction (MTP): one ordinary layer of the family, which reads the
// embedding of a token beside what the model's final norm gave for the token before it, and gives
// the logits of the token behind it. GGUFs have it behind the others, N:
//
//   x = eh_proj . [enorm(embedding of token p) ; hnorm(hidden state of token p - 1)]
//   x = layer N(x)      with a KV cache of its own
//   hidden state of p, for draft tokens further on = shared_head_norm(x)      logits = head(that)
//
// Its embedding, last norm and head are the model's where the file has none for it. Data only.
#pragma once

#include "lib/families/tree_rows.h"

namespace ktx::families {

// Behind the row of the layer.
inline constexpr ModuleRow kPrediction[] = {
    norm(Role::PredictionEmbeddingNorm, "L.enorm", "B.nextn.enorm."),
    norm(Role::PredictionHiddenNorm, "L.hnorm", "B.nextn.hnorm."),
    linear(Role::PredictionProj, "L.eh_proj", "B.nextn.eh_proj."),
};

// Tensors of its own that come before the model's, by role.
struct PredictionTensor {
  Role role;
  const char* tensor;
};
inline constexpr PredictionTensor kPredictionTensors[] = {
    {Role::Embedding, "B.nextn.embed_tokens.weight"},
    {Role::FinalNorm, "B.nextn.shared_head_norm.weight"},
    {Role::Head, "B.nextn.shared_head_head.weight"},
};

}  // namespace ktx::families
