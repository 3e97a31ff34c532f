// Rows and keys of families with state-space layers (Mamba-2, and keys of Mamba-1). Data only.
//
// A GGUF marks the layers with a state space, and none of attention, by 0 key heads. Heads of
// attention are those of all layers.
#pragma once

#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {

inline constexpr ParamRow kStateSpaceConv{"conv", "B.ssm_conv1d.weight"};
inline constexpr ParamRow kStateSpaceConvBias{"conv_bias", "B.ssm_conv1d.bias", When::ConvBias};
inline constexpr ParamRow kStateSpaceDecay{"decay", "B.ssm_a"};
inline constexpr ParamRow kStateSpaceSkip{"skip", "B.ssm_d"};
inline constexpr ParamRow kStateSpaceDtBias{"dt_bias", "B.ssm_dt.bias"};

// Below the state space at `path`, a literal, with its norm's class.
#define KTX_STATE_SPACE_PARTS(path, norm_class)                                               \
  {Role::Activation, path ".act", &kSilu, When::StateSpace},                                  \
      {Role::SsmConv, path ".conv1d", &kConv1d, When::StateSpace},                            \
      linear(Role::SsmInProj, path ".in_proj", "B.ssm_in.", When::StateSpace),                \
      weighted(Role::SsmNorm, path ".norm", norm_class, "B.ssm_norm.", When::StateSpaceNorm), \
      linear(Role::OProj, path ".out_proj", "B.ssm_out.", When::StateSpace)

// Attention at `path`, in layers that have it, and its projections.
#define KTX_HYBRID_PROJECTIONS(path)                                                        \
  linear(Role::QProj, path ".q_proj", "B.attn_q.", When::FullAttention, When::QkvBias),     \
      linear(Role::KProj, path ".k_proj", "B.attn_k.", When::FullAttention, When::QkvBias), \
      linear(Role::VProj, path ".v_proj", "B.attn_v.", When::FullAttention, When::QkvBias), \
      linear(Role::OProj, path ".o_proj", "B.attn_output.", When::FullAttention,            \
             When::AttentionBias)

inline constexpr ConfigKey kStateSpaceKeys[] = {
    count("mamba_n_heads", "ssm.time_step_rank"),
    {"mamba_d_head", "ssm.inner_size", KeyRead::StateSpaceHead, KeyKind::Count,
     KeyWeight::Structural, "", ""},
    count("mamba_d_state", "ssm.state_size"),
    count("mamba_n_groups", "ssm.group_count"),
    count("mamba_d_conv", "ssm.conv_kernel"),
    {"mamba_conv_bias", "", KeyRead::ConvBias, KeyKind::Flag, KeyWeight::Structural, "", "true"},
};
// For Mamba-1.
inline constexpr ConfigKey kSelectiveScanKeys[] = {
    {"mamba_expand", "ssm.inner_size", KeyRead::Expansion, KeyKind::Count, KeyWeight::Structural,
     "", "2"},
    count("mamba_d_state", "ssm.state_size", "", "16"),
    count("mamba_d_conv", "ssm.conv_kernel", "", "4"),
    {"mamba_dt_rank", "ssm.time_step_rank", KeyRead::Int, KeyKind::Count, KeyWeight::Structural, "",
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
