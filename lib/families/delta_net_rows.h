// Gated delta nets beside attention with a gate behind each query head, as Qwen3-Next, Qwen3.5 and
// Qwen4-Exp have them. Data only, as in tree_rows.h.
#pragma once

#include "lib/families/key_rows.h"
#include "lib/families/tree_rows.h"

namespace ktx::families {

inline constexpr ClassRow kDeltaNetClass{"{P}GatedDeltaNet"};
inline constexpr ModuleRow kDeltaNetRows[] = {
    {Role::DeltaNet,
     "L.linear_attn",
     &kDeltaNetClass,
     When::DeltaNet,
     {{"conv", "B.ssm_conv1d.weight"}, {"decay", "B.ssm_a"}, {"dt_bias", "B.ssm_dt.bias"}}},
    {Role::Activation, "L.linear_attn.act", &kSilu, When::DeltaNet},
    {Role::DeltaConv, "L.linear_attn.conv1d", &kConv1d, When::DeltaNet},
    linear(Role::DeltaQkvProj, "L.linear_attn.in_proj_qkv", "B.attn_qkv.", When::DeltaNet),
    linear(Role::DeltaGateProj, "L.linear_attn.in_proj_z", "B.attn_gate.", When::DeltaNet),
};
inline constexpr ModuleRow kSplitGates[] = {
    linear(Role::DeltaBProj, "L.linear_attn.in_proj_b", "B.ssm_beta.", When::DeltaNet),
    linear(Role::DeltaAProj, "L.linear_attn.in_proj_a", "B.ssm_alpha.", When::DeltaNet),
};
inline constexpr ModuleRow kDeltaNetOutput[] = {
    weighted(Role::DeltaNorm, "L.linear_attn.norm", &kGatedNorm, "B.ssm_norm.", When::DeltaNet),
    linear(Role::OProj, "L.linear_attn.out_proj", "B.ssm_out.", When::DeltaNet),
};
inline constexpr ModuleRow kFullAttentionRest[] = {
    linear(Role::OProj, "L.self_attn.o_proj", "B.attn_output.", When::FullAttention),
    norm(Role::QNorm, "L.self_attn.q_norm", "B.attn_q_norm.", When::FullAttention),
    norm(Role::KNorm, "L.self_attn.k_norm", "B.attn_k_norm.", When::FullAttention),
};
inline constexpr ConfigKey kDeltaNetKeys[] = {
    count("linear_conv_kernel_dim", "ssm.conv_kernel"),
    count("linear_key_head_dim", "ssm.state_size"),
    count("linear_num_key_heads", "ssm.group_count"),
    count("linear_num_value_heads", "ssm.time_step_rank"),
    {"linear_value_head_dim", "", KeyRead::Nothing, KeyKind::Count, KeyWeight::Plain,
     "=linear_key_head_dim", "=linear_key_head_dim"},
    count("full_attention_interval", "full_attention_interval", "4", "4"),
};
inline constexpr ConfigDefault kDeltaNetDefaults[] = {
    {"linear_conv_kernel_dim", "4"},
    {"linear_key_head_dim", "128"},
    {"linear_num_key_heads", "16"},
    {"linear_num_value_heads", "32"},
    {"head_dim", "256"},
    {"partial_rotary_factor", "0.25"},
    {"rms_norm_eps", "1e-6"},
};
// What families with 512 experts have beside those.
inline constexpr ConfigDefault kWideExpertDefaults[] = {
    {"num_experts", "512"},
    {"num_experts_per_tok", "10"},
    {"norm_topk_prob", "true"},
    {"moe_intermediate_size", "512"},
    {"shared_expert_intermediate_size", "512"},
    {"rope_theta", "10000"},
};

}  // namespace ktx::families
