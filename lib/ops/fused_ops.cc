#include "lib/ops/fused_ops.h"

namespace ktx {
namespace {

constexpr FusedOpInfo kOps[] = {
#define KTX_FUSED_OP(id, name, from, turn, sentence) {FusedOp::id, #name, sentence},
#include "lib/ops/fused_ops.def"
#undef KTX_FUSED_OP
};

}  // namespace

std::span<const FusedOpInfo> all_fused_ops() {
  return kOps;
}

std::string_view name(FusedOp op) {
  return kOps[static_cast<size_t>(op)].name;
}

std::optional<FusedOp> fused_op_from_name(std::string_view name) {
  for (const FusedOpInfo& row : kOps) {
    if (row.name == name) return row.op;
  }
  return std::nullopt;
}

}  // namespace ktx
