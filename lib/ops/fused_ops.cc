#include "lib/ops/fused_ops.h"

namespace ktx {
namespace {

constexpr FusedOpInfo kOps[] = {
#define KTX_FUSED_OP(id, name, from, turn, launches, sentence) \
  {FusedOp::id, #name, launches, sentence},
#include "lib/ops/fused_ops.def"
#undef KTX_FUSED_OP
};

}  // namespace

std::span<const FusedOpInfo> all_fused_ops() {
  return kOps;
}

const FusedOpInfo& info(FusedOp op) {
  return kOps[static_cast<size_t>(op)];
}
std::string_view name(FusedOp op) {
  return info(op).name;
}

std::optional<FusedOp> fused_op_from_name(std::string_view name) {
  for (const FusedOpInfo& row : kOps) {
    if (row.name == name) return row.op;
  }
  return std::nullopt;
}

}  // namespace ktx
