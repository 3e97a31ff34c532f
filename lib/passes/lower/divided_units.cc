#include "lib/passes/lower/divided_units.h"

#include <algorithm>
#include <numeric>

#include "lib/formats/dtype.h"

namespace ktx::passes {
namespace {

using ir::Module;
using ir::ModuleGraph;
using ir::Role;

// The part that each GPU has of a module in a divided unit.
enum class Has {
  Rows,      // of its weight, some
  Columns,   // some
  Matrices,  // one for each of its heads
  Heads,     // a norm of heads: all of its weights, or those of its own heads
  Copy,
};
constexpr struct {
  Role role;
  Has has;
} kParts[] = {
    {Role::QProj, Has::Rows},
    {Role::KProj, Has::Rows},
    {Role::VProj, Has::Rows},
    {Role::QkvProj, Has::Rows},
    {Role::AttentionGateProj, Has::Rows},
    {Role::QBProj, Has::Rows},
    {Role::DeltaQkvProj, Has::Rows},
    {Role::DeltaGateProj, Has::Rows},
    {Role::DeltaBaProj, Has::Rows},
    {Role::DeltaBProj, Has::Rows},
    {Role::DeltaAProj, Has::Rows},
    {Role::DeltaForgetBProj, Has::Rows},
    {Role::DeltaGateBProj, Has::Rows},
    {Role::SsmInProj, Has::Rows},
    {Role::ShortConvProj, Has::Rows},
    {Role::GateProj, Has::Rows},
    {Role::UpProj, Has::Rows},
    {Role::GateUpProj, Has::Rows},
    {Role::OProj, Has::Columns},
    {Role::DownProj, Has::Columns},
    {Role::Head, Has::Rows},
    {Role::KvBProj, Has::Matrices},
    {Role::QNorm, Has::Heads},
    {Role::KNorm, Has::Heads},
    {Role::VNorm, Has::Heads},
    {Role::QRotatedNorm, Has::Heads},
    {Role::KRotatedNorm, Has::Heads},
    {Role::DeltaNorm, Has::Heads},
    {Role::SsmNorm, Has::Heads},
    {Role::QAProj, Has::Copy},
    {Role::QANorm, Has::Copy},
    {Role::KvAProj, Has::Copy},
    {Role::KvANorm, Has::Copy},
    {Role::Indexer, Has::Copy},
    {Role::IndexQProj, Has::Copy},
    {Role::IndexKProj, Has::Copy},
    {Role::IndexKNorm, Has::Copy},
    {Role::IndexWeightsProj, Has::Copy},
    {Role::DeltaForgetAProj, Has::Copy},
    {Role::DeltaGateAProj, Has::Copy},
    // Without weights of their own.
    {Role::DeltaForget, Has::Copy},
    {Role::DeltaConv, Has::Copy},
    {Role::SsmConv, Has::Copy},
    {Role::ShortConvWeight, Has::Copy},
    {Role::Activation, Has::Copy},
    {Role::Rotary, Has::Copy},
};

std::optional<Has> part_of(Role role) {
  const auto* const found =
      std::ranges::find(kParts, role, [](const auto& part) { return part.role; });
  if (found == std::end(kParts)) return std::nullopt;
  return found->has;
}

bool is_unit(const Module& module) {
  const ir::Kind kind = ir::kind_of(module.role);
  return kind == ir::Kind::Attention || kind == ir::Kind::Mlp || kind == ir::Kind::Experts ||
         module.role == Role::Head;
}

// A parameter whose rows are tensors' rows, so that some of them can be taken.
bool has_rows(const ir::Param& param) {
  const bool all = std::ranges::all_of(
      param.sources, [](const TensorSlice& slice) { return slice.row_count >= 0; });
  return param.matrices == 1 && (param.sources.size() == 1 || (all && param.rows > 1));
}

// Rows that can be cut into runs of whole blocks, each one of equal pieces of a row.
bool has_columns(const ModuleGraph& modules, const Module& linear, int64_t gpus) {
  const ir::Param* weight = linear.param("weight");
  if (weight == nullptr || weight->sources.size() != 1 || weight->matrices != 1) return false;
  if (linear.decision.lossy_allowed) return false;  // rows are rounded as a whole
  if (weight->cols % gpus != 0) return false;
  const int64_t block = std::lcm<int64_t>(info(weight->dtype).block_elems, 32);
  const Division all = divided_heads(modules, linear, weight->cols, static_cast<size_t>(gpus));
  for (int64_t gpu = 0; gpu < gpus; ++gpu) {
    for (const Run& run : all.runs(gpu, gpus)) {
      const bool piece = run.first % run.count == 0 && weight->cols % run.count == 0;
      if (!piece || run.count % block != 0) return false;
    }
  }
  return true;
}

bool has_divided_rows(const ModuleGraph& modules, const Module& linear, int64_t gpus) {
  return std::ranges::all_of(linear.params, [&](const ir::Param& param) {
    const int64_t rows = param.rows == 1 ? param.cols : param.rows;
    const auto division = divided_rows(modules, linear, rows, static_cast<size_t>(gpus));
    return has_rows(param) && division && division->whole() == rows;
  });
}

// A norm that goes over more has `width` of its own.
bool is_of_heads(const Module& norm, int64_t width) {
  const auto* info = std::get_if<ir::NormInfo>(&norm.info);
  return info == nullptr || info->width == width;
}

// `head`: elements of a norm's group.
bool can_divide_children(const ModuleGraph& modules, const Module& parent, int64_t gpus,
                         int64_t head) {
  return std::ranges::all_of(parent.children, [&](ir::ModuleId id) {
    const Module& child = modules.modules[static_cast<size_t>(id)];
    const std::optional<Has> has = part_of(child.role);
    if (!has || !can_divide_children(modules, child, gpus, head)) return false;
    switch (*has) {
      case Has::Rows:
        return has_divided_rows(modules, child, gpus);
      case Has::Columns:
        return has_columns(modules, child, gpus);
      case Has::Matrices:
        return std::ranges::all_of(
            child.params, [](const ir::Param& param) { return param.sources.size() == 1; });
      case Has::Heads:
        return is_of_heads(child, head);
      case Has::Copy:
        return true;
    }
    return false;
  });
}

// Each GPU's rows of the head are a multiple of a tile's rows (kernels/matmul/marlin_layout.h).
constexpr int64_t kHeadRows = 16;

bool shares_keys(const ModuleGraph& modules) {
  return std::ranges::any_of(modules.modules, [](const Module& module) {
    const auto* attention = std::get_if<ir::AttentionInfo>(&module.info);
    return attention != nullptr && attention->keys_of_layer >= 0;
  });
}

// For a tiled delta net, where value head h has key head h % key_heads: whether consecutive value
// heads have as many consecutive key heads, or all key heads equally often.
bool has_whole_tiles(const ir::DeltaNetInfo& d, int64_t n) {
  const int64_t values = d.value_heads / n;
  return values <= d.key_heads || values % d.key_heads == 0;
}

// Heads of the unit, by its kind. A norm of heads has `head` elements.
struct Shape {
  bool fits = false;
  int64_t head = 0;
};

Shape shape_of(const ModuleGraph& modules, const Module& unit, int64_t n) {
  if (const auto* a = std::get_if<ir::AttentionInfo>(&unit.info)) {
    const bool fused = modules.child(unit, Role::QkvProj) != nullptr;
    const bool keys = fused ? a->kv_heads % n == 0 : can_share(a->kv_heads, n);
    return {a->heads % n == 0 && keys && a->top_k == 0 && !shares_keys(modules), a->head_dim};
  }
  if (const auto* a = std::get_if<ir::MlaInfo>(&unit.info)) return {a->heads % n == 0};
  if (const auto* mlp = std::get_if<ir::MlpInfo>(&unit.info)) {
    return {mlp->width % n == 0 && mlp->sparsity == 0};  // a share of all columns is left out
  }
  if (const auto* d = std::get_if<ir::DeltaNetInfo>(&unit.info)) {
    const bool by_key = modules.child(unit, Role::DeltaBaProj) != nullptr;
    const bool share = by_key     ? d->key_heads % n == 0
                       : d->tiled ? d->key_heads % n == 0 || has_whole_tiles(*d, n)
                                  : can_share(d->key_heads, n);
    return {d->value_heads % n == 0 && share, d->head_dim};
  }
  if (const auto* s = std::get_if<ir::StateSpaceInfo>(&unit.info)) {
    const bool normed = modules.child(unit, Role::SsmNorm) != nullptr;
    const bool groups = normed ? s->groups % n == 0 : can_share(s->groups, n);
    return {s->heads % n == 0 && groups, s->width() / std::max(s->groups, 1)};
  }
  if (const auto* c = std::get_if<ir::ShortConvInfo>(&unit.info)) return {c->width % n == 0};
  return {};
}

// Value heads of a delta net, with `unit` elements each: a run of all, or one of each tile.
std::vector<Segment> value_heads(const ir::DeltaNetInfo& d, int64_t unit, int64_t n) {
  if (!d.tiled || has_whole_tiles(d, n)) {
    return {{unit, d.value_heads, d.value_heads / n, d.value_heads}};
  }
  return std::vector<Segment>(static_cast<size_t>(d.value_heads / d.key_heads),
                              {unit, d.key_heads, d.key_heads / n, d.key_heads});
}

// Queries, keys and values of a delta net.
Division delta_rows(const ir::DeltaNetInfo& d, int64_t n) {
  const bool follow = d.tiled && has_whole_tiles(d, n);
  const int64_t local = follow ? std::min(d.key_heads, d.value_heads / static_cast<int32_t>(n))
                               : heads_of_one(d.key_heads, n);
  const Segment keys{d.head_dim, d.key_heads, local, follow ? d.value_heads : d.key_heads};
  std::vector<Segment> segments = value_heads(d, d.head_dim, n);
  segments.insert(segments.begin(), {keys, keys});
  return Division(std::move(segments));
}

// Gate, values, input and output vectors and steps of a state space.
Division state_space_rows(const ir::StateSpaceInfo& s, int64_t n) {
  const Segment width{1, s.width(), s.width() / n, s.width()};
  const Segment groups{s.state_dim, s.groups, heads_of_one(s.groups, n), s.groups};
  return Division({width, width, groups, groups, {1, s.heads, s.heads / n, s.heads}});
}

}  // namespace

const Module* unit_of(const ModuleGraph& modules, const Module& module) {
  for (const Module* unit = &module;; unit = &modules.modules[static_cast<size_t>(unit->parent)]) {
    if (is_unit(*unit)) return unit;
    if (unit->parent < 0) return nullptr;
  }
}

bool can_divide(const ModuleGraph& modules, const Module& unit, size_t gpus) {
  const auto n = static_cast<int64_t>(gpus);
  if (unit.role == Role::Head) {
    const ir::Param* weight = unit.param("weight");
    return weight != nullptr && weight->rows % (n * kHeadRows) == 0 &&
           has_divided_rows(modules, unit, n);
  }
  const Shape shape = shape_of(modules, unit, n);
  return shape.fits && std::ranges::all_of(unit.params, has_rows) &&
         can_divide_children(modules, unit, n, shape.head);
}

std::optional<Division> divided_rows(const ModuleGraph& modules, const Module& linear, int64_t rows,
                                     size_t gpus) {
  if (part_of(linear.role) != Has::Rows) return std::nullopt;
  const auto n = static_cast<int64_t>(gpus);
  const Module* unit = unit_of(modules, linear);
  if (unit == nullptr) return std::nullopt;
  if (const auto* a = std::get_if<ir::AttentionInfo>(&unit->info)) {
    const bool keys = linear.role == Role::KProj || linear.role == Role::VProj;
    if (keys && can_share(a->kv_heads, n) && rows % a->kv_heads == 0) {
      return Division::heads(rows / a->kv_heads, a->kv_heads, n);
    }
  }
  if (const auto* d = std::get_if<ir::DeltaNetInfo>(&unit->info)) {
    if (linear.role == Role::DeltaQkvProj) return delta_rows(*d, n);
    const bool by_head = linear.role != Role::DeltaBaProj && rows % d->value_heads == 0;
    if (by_head && rows >= d->value_heads) return divided_heads(modules, linear, rows, gpus);
  }
  if (const auto* s = std::get_if<ir::StateSpaceInfo>(&unit->info)) {
    if (linear.role == Role::SsmInProj) return state_space_rows(*s, n);
  }
  if (const auto* c = std::get_if<ir::ShortConvInfo>(&unit->info)) {
    const Segment width{1, c->width, c->width / n, c->width};
    if (linear.role == Role::ShortConvProj) return Division({width, width, width});
  }
  if (rows % n != 0) return std::nullopt;
  return Division::even(rows, n);
}

Division divided_heads(const ModuleGraph& modules, const Module& module, int64_t width,
                       size_t gpus) {
  const auto n = static_cast<int64_t>(gpus);
  const Module* unit = unit_of(modules, module);
  const auto* d = unit != nullptr ? std::get_if<ir::DeltaNetInfo>(&unit->info) : nullptr;
  if (d == nullptr) return Division::even(width, n);
  return Division(value_heads(*d, width / d->value_heads, n));
}

bool has_parts(const Module& module) {
  if (is_unit(module)) return true;
  const std::optional<Has> has = part_of(module.role);
  return has && *has != Has::Copy && *has != Has::Heads;
}

}  // namespace ktx::passes
