// The check of each op, or of several: column `rule` of step_ops.def; check_op() calls it.
//
// Required operands are there and attributes are finite when it is called.
#pragma once

#include "lib/ops/op_check.h"

namespace ktx::op_checks {

#define KTX_STEP_OP(id, name, attrs, in, out, weights, traits, rule, sentence) \
  void check_##rule(OpCheck& s);
#include "lib/ops/step_ops.def"
#undef KTX_STEP_OP

void check_activation(OpCheck& s, const GluAttrs& a);  // of a gated linear unit

std::string_view operand_name(std::string_view operands, size_t i);  // "xq" of "x xq?"

}  // namespace ktx::op_checks
