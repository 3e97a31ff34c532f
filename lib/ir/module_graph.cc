#include "lib/ir/module_graph.h"

#include <fmt/format.h>

#include <algorithm>

namespace ktx::ir {
namespace {

constexpr std::string_view kKindNames[] = {"container", "embedding", "norm",    "attention",
                                           "linear",    "rotary",    "mlp",     "activation",
                                           "moe",       "router",    "experts", "expert"};

struct RoleRow {
  Role role;
  std::string_view name;
  Kind kind;
};
constexpr RoleRow kRoles[] = {
#define KTX_ROLE(id, name, kind, sentence) {Role::id, name, Kind::kind},
#include "lib/ir/roles.def"
#undef KTX_ROLE
};

constexpr std::string_view kCommonBases[] = {"torch.nn.modules.module.Module", "torch.nn.Module",
                                             "Module"};

bool has_class(std::string_view asked, std::string_view class_name,
               const std::vector<std::string>& aliases, const std::vector<std::string>& bases) {
  return asked == class_name || std::ranges::find(aliases, asked) != aliases.end() ||
         std::ranges::find(bases, asked) != bases.end() ||
         std::ranges::find(kCommonBases, asked) != std::end(kCommonBases);
}

}  // namespace

std::string_view name(Kind kind) {
  return kKindNames[static_cast<size_t>(kind)];
}

std::optional<Kind> kind_from_name(std::string_view name) {
  for (size_t i = 0; i < std::size(kKindNames); ++i) {
    if (kKindNames[i] == name) return static_cast<Kind>(i);
  }
  return std::nullopt;
}

std::string_view name(Role role) {
  return kRoles[static_cast<size_t>(role)].name;
}

std::optional<Role> role_from_name(std::string_view name) {
  for (const RoleRow& row : kRoles) {
    if (row.name == name) return row.role;
  }
  return std::nullopt;
}

Kind kind_of(Role role) {
  return kRoles[static_cast<size_t>(role)].kind;
}

const Param* Module::param(std::string_view name) const {
  for (const Param& param : params) {
    if (param.name == name) return &param;
  }
  return nullptr;
}

const Module* ModuleGraph::find(std::string_view path) const {
  for (const Module& module : modules) {
    if (module.path == path) return &module;
  }
  return nullptr;
}

const Module* ModuleGraph::child(const Module& parent, Role role) const {
  for (ModuleId id : parent.children) {
    if (modules[id].role == role) return &modules[id];
  }
  return nullptr;
}

void for_each_expert_module(const ModuleGraph& graph, const Module& experts,
                            const std::function<bool(const ExpertModule&)>& visit) {
  const auto* info = std::get_if<ExpertsInfo>(&experts.info);
  if (info == nullptr) return;
  for (int32_t expert = 0; expert < info->experts; ++expert) {
    for (const ExpertPart& part : graph.expert_parts) {
      ExpertModule module{fmt::format("{}.{}", experts.path, expert), &part, expert};
      if (!part.suffix.empty()) module.path += "." + part.suffix;
      if (!visit(module)) return;
    }
  }
}

int64_t expert_module_count(const ModuleGraph& graph, const Module& experts) {
  const auto* info = std::get_if<ExpertsInfo>(&experts.info);
  return info == nullptr ? 0 : info->experts * static_cast<int64_t>(graph.expert_parts.size());
}

bool has_class(const Module& module, std::string_view class_name) {
  return has_class(class_name, module.class_name, module.aliases, module.bases);
}

bool has_class(const ExpertPart& part, std::string_view class_name) {
  return has_class(class_name, part.class_name, part.aliases, part.bases);
}

}  // namespace ktx::ir
