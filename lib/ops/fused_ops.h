// The fused ops as an enum and a table (fused_ops.def).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace ktx {

enum class FusedOp : uint32_t {
#define KTX_FUSED_OP(id, ...) id,
#include "lib/ops/fused_ops.def"
#undef KTX_FUSED_OP
};

struct FusedOpInfo {
  FusedOp op;
  std::string_view name;
  int launches;  // kernels, one behind the other
  std::string_view sentence;
};

std::span<const FusedOpInfo> all_fused_ops();
const FusedOpInfo& info(FusedOp op);
std::string_view name(FusedOp op);
std::optional<FusedOp> fused_op_from_name(std::string_view name);

}  // namespace ktx
