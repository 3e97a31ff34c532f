#include "lib/passes/lower/divided_units.h"

#include <algorithm>
#include <numeric>

#include "lib/formats/dtype.h"

namespace ktx::passes {
namespace {

using ir::Module;
using ir::Role;

// Of norms of heads: theirs. Linears and all else have none.
bool is_of_heads(const Module& norm, int64_t head_dim) {
  const auto* info = std::get_if<ir::NormInfo>(&norm.info);
  return info == nullptr || info->width == head_dim;
}

// A parameter whose rows are tensors' rows, so that some of them can be taken.
bool has_rows(const ir::Param& param, int64_t gpus) {
  const int64_t rows = param.rows == 1 ? param.cols : param.rows;
  const bool all = std::ranges::all_of(
      param.sources, [](const TensorSlice& slice) { return slice.row_count >= 0; });
  return param.matrices == 1 && rows % gpus == 0 && (param.sources.size() == 1 || all);
}

// Rows that can be cut into equal runs of whole blocks.
bool has_columns(const Module& linear, int64_t gpus) {
  const ir::Param* weight = linear.param("weight");
  if (weight == nullptr || weight->sources.size() != 1 || weight->matrices != 1) return false;
  if (linear.decision.lossy_allowed) return false;  // rows are rounded as a whole
  const int64_t block = std::lcm<int64_t>(info(weight->dtype).block_elems, 32);
  return weight->cols % (gpus * block) == 0;
}

constexpr Role kParts[] = {Role::QProj,        Role::KProj,    Role::VProj,
                           Role::QkvProj,      Role::OProj,    Role::AttentionGateProj,
                           Role::QNorm,        Role::KNorm,    Role::VNorm,
                           Role::QRotatedNorm, Role::GateProj, Role::KRotatedNorm,
                           Role::UpProj,       Role::DownProj, Role::GateUpProj,
                           Role::Activation,   Role::Rotary};

bool can_divide_children(const ir::ModuleGraph& modules, const Module& unit, int64_t gpus,
                         int64_t head_dim) {
  return std::ranges::all_of(unit.children, [&](ir::ModuleId id) {
    const Module& child = modules.modules[static_cast<size_t>(id)];
    if (std::ranges::find(kParts, child.role) == std::end(kParts)) return false;
    if (child.role == Role::OProj || child.role == Role::DownProj) return has_columns(child, gpus);
    if (ir::kind_of(child.role) == ir::Kind::Norm) return is_of_heads(child, head_dim);
    return std::ranges::all_of(child.params,
                               [&](const ir::Param& param) { return has_rows(param, gpus); });
  });
}

bool shares_keys(const ir::ModuleGraph& modules) {
  return std::ranges::any_of(modules.modules, [](const Module& module) {
    const auto* attention = std::get_if<ir::AttentionInfo>(&module.info);
    return attention != nullptr && attention->keys_of_layer >= 0;
  });
}

}  // namespace

const Module* unit_of(const ir::ModuleGraph& modules, const Module& module) {
  for (const Module* unit = &module;; unit = &modules.modules[static_cast<size_t>(unit->parent)]) {
    const ir::Kind kind = ir::kind_of(unit->role);
    if (kind == ir::Kind::Attention || kind == ir::Kind::Mlp || kind == ir::Kind::Experts) {
      return unit;
    }
    if (unit->parent < 0) return nullptr;
  }
}

bool can_divide(const ir::ModuleGraph& modules, const Module& unit, size_t gpus) {
  const auto n = static_cast<int64_t>(gpus);
  if (const auto* attention = std::get_if<ir::AttentionInfo>(&unit.info)) {
    return attention->heads % n == 0 && attention->kv_heads % n == 0 && attention->top_k == 0 &&
           !shares_keys(modules) && can_divide_children(modules, unit, n, attention->head_dim);
  }
  if (const auto* mlp = std::get_if<ir::MlpInfo>(&unit.info)) {
    return mlp->width % n == 0 && can_divide_children(modules, unit, n, 0);
  }
  return false;
}

}  // namespace ktx::passes
