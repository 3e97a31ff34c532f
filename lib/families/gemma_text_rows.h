// Rows that the text models of Gemma 3n and Gemma 4 share. Data only.
#pragma once

#include "lib/families/tree_rows.h"

namespace ktx::families {

inline constexpr ClassRow kTextLayer{"{P}TextDecoderLayer"};
inline constexpr ClassRow kTextAttention{"{P}TextAttention"};
inline constexpr ClassRow kTextMlp{"{P}TextMLP"};

inline constexpr ModuleRow kTextGeluMlp[] = {
    {Role::Mlp, "L.mlp", &kTextMlp},
    linear(Role::GateProj, "L.mlp.gate_proj", "B.ffn_gate."),
    linear(Role::UpProj, "L.mlp.up_proj", "B.ffn_up."),
    linear(Role::DownProj, "L.mlp.down_proj", "B.ffn_down."),
    {Role::Activation, "L.mlp.act_fn", &kGeluTanh},
};

}  // namespace ktx::families
