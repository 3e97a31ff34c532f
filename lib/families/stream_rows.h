// Rows of models with several residual streams around every part of a layer (hyper-connections).
// Data only, as in tree_rows.h.
#pragma once

#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {

inline constexpr ClassRow kUnweightedNorm{"{P}UnweightedRMSNorm"};
inline constexpr ClassRow kHyperConnection{"{P}HyperConnection"};
inline constexpr ClassRow kHyperHead{"{P}HyperHead"};

inline constexpr ModuleRow kLayerStreams[] = {
    {Role::AttentionStreams,
     "L.attn_hc",
     &kHyperConnection,
     When::Always,
     {{"fn", "B.hc_attn_fn.weight"},
      {"base", "B.hc_attn_base.weight"},
      {"scale", "B.hc_attn_scale.weight"}}},
    {Role::StreamsNorm, "L.attn_hc.input_norm", &kUnweightedNorm},
    {Role::MlpStreams,
     "L.ffn_hc",
     &kHyperConnection,
     When::Always,
     {{"fn", "B.hc_ffn_fn.weight"},
      {"base", "B.hc_ffn_base.weight"},
      {"scale", "B.hc_ffn_scale.weight"}}},
    {Role::StreamsNorm, "L.ffn_hc.input_norm", &kUnweightedNorm},
};

inline constexpr ConfigKey kStreamKeys[] = {
    count("hc_mult", "hyper_connection.count"),
    count("hc_sinkhorn_iters", "hyper_connection.sinkhorn_iterations"),
    positive("hc_eps", "hyper_connection.epsilon", "", "1e-6"),
};

}  // namespace ktx::families
