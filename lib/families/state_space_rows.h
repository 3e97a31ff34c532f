// Rows and keys of families with state-space layers (Mamba-2). Data only.
//
// A GGUF marks the layers with a state space, and none of attention, by 0 key heads. Heads of
// attention are those of all layers.
#pragma once

#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {

inline constexpr ClassRow kGatedNorm{"{P}RMSNormGated"};

inline constexpr ParamRow kStateSpaceConv{"conv", "B.ssm_conv1d.weight"};
inline constexpr ParamRow kStateSpaceConvBias{"conv_bias", "B.ssm_conv1d.bias", When::ConvBias};
inline constexpr ParamRow kStateSpaceDecay{"decay", "B.ssm_a"};
inline constexpr ParamRow kStateSpaceSkip{"skip", "B.ssm_d"};
inline constexpr ParamRow kStateSpaceDtBias{"dt_bias", "B.ssm_dt.bias"};

// Below the state space at `path`, a literal.
#define KTX_STATE_SPACE_PARTS(path)                                \
  {Role::Activation, path ".act", &kSilu, When::StateSpace},       \
      {Role::SsmConv, path ".conv1d", &kConv1d, When::StateSpace}, \
      {Role::SsmInProj,                                            \
       path ".in_proj",                                            \
       &kLinear,                                                   \
       When::StateSpace,                                           \
       {{"weight", "B.ssm_in.weight"}}},                           \
      {Role::SsmNorm,                                              \
       path ".norm",                                               \
       &kGatedNorm,                                                \
       When::StateSpaceNorm,                                       \
       {{"weight", "B.ssm_norm.weight"}}},                         \
  {                                                                \
    Role::OProj, path ".out_proj", &kLinear, When::StateSpace, {   \
      { "weight", "B.ssm_out.weight" }                             \
    }                                                              \
  }

// Attention at `path`, in layers that have it, and its projections.
#define KTX_HYBRID_PROJECTIONS(path)                                               \
  {Role::QProj,                                                                    \
   path ".q_proj",                                                                 \
   &kLinear,                                                                       \
   When::FullAttention,                                                            \
   {{"weight", "B.attn_q.weight"}, {"bias", "B.attn_q.bias", When::QkvBias}}},     \
      {Role::KProj,                                                                \
       path ".k_proj",                                                             \
       &kLinear,                                                                   \
       When::FullAttention,                                                        \
       {{"weight", "B.attn_k.weight"}, {"bias", "B.attn_k.bias", When::QkvBias}}}, \
      {Role::VProj,                                                                \
       path ".v_proj",                                                             \
       &kLinear,                                                                   \
       When::FullAttention,                                                        \
       {{"weight", "B.attn_v.weight"}, {"bias", "B.attn_v.bias", When::QkvBias}}}, \
  {                                                                                \
    Role::OProj, path ".o_proj", &kLinear, When::FullAttention, {                  \
      {"weight", "B.attn_output.weight"}, {                                        \
        "bias", "B.attn_output.bias", When::AttentionBias                          \
      }                                                                            \
    }                                                                              \
  }

inline constexpr ConfigKey kStateSpaceKeys[] = {
    {"mamba_n_heads", "ssm.time_step_rank", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "",
     ""},
    {"mamba_d_head", "ssm.inner_size", KeyRead::StateSpaceHead, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    {"mamba_d_state", "ssm.state_size", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "",
     ""},
    {"mamba_n_groups", "ssm.group_count", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "",
     ""},
    {"mamba_d_conv", "ssm.conv_kernel", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "",
     ""},
    {"mamba_conv_bias", "", KeyRead::ConvBias, KeyKind::Flag, KeyWeight::Structural, "", "true"},
};
inline constexpr ConfigKey kHybridLayerKeys[] = {
    {"layer_types", "attention.head_count_kv", KeyRead::KeylessLayers, KeyKind::Texts,
     KeyWeight::Structural, "", ""},
    {"num_key_value_heads", "attention.head_count_kv", KeyRead::LargestCount, KeyKind::Count,
     KeyWeight::Structural, "=num_attention_heads", "=num_attention_heads"},
};

}  // namespace ktx::families
