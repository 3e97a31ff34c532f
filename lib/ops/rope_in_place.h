// Rotation in place of whole heads, of either op: what `rope` and `rope_grid` share.
#pragma once

#include "lib/ops/step_attrs.h"

namespace ktx {

inline RopeAttrs rope_in_place(const RopeGridAttrs& grid) {
  return {.heads = grid.heads,
          .head_dim = grid.head_dim,
          .y_head_dim = grid.head_dim,
          .rotary_dim = grid.rotary_dim,
          .interleaved = grid.interleaved,
          .mscale = grid.mscale};
}

// For a step of one of the two ops.
inline RopeAttrs rope_attrs(const StepAttrs& attrs) {
  const auto* const grid = std::get_if<RopeGridAttrs>(&attrs);
  return grid ? rope_in_place(*grid) : std::get<RopeAttrs>(attrs);
}

}  // namespace ktx
