#include "lib/program/fused/fused_rules.h"

namespace ktx::program {
namespace {

constexpr FusedRule kRules[] = {
#define KTX_FUSED_OP(id, name, from, turn, ...) \
  {FusedOp::id, StepOp::from, turn, find_##name, describe_##name},
#include "lib/ops/fused_ops.def"
#undef KTX_FUSED_OP
};

}  // namespace

std::span<const FusedRule> fused_rules() {
  return kRules;
}
const FusedRule& fused_rule(FusedOp op) {
  return kRules[static_cast<size_t>(op)];
}

}  // namespace ktx::program
