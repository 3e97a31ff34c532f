#include "lib/rules/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ktx::rules {
namespace {

constexpr std::string_view kReplacesNames[] = {"any module",
                                               "a linear layer",
                                               "routed experts",
                                               "a mixture of experts",
                                               "a router",
                                               "attention",
                                               "a rotary embedding",
                                               "a norm",
                                               "a feed-forward part",
                                               "the model without its head"};
constexpr std::string_view kVendorNames[] = {"", "Ascend NPUs", "Intel GPUs"};
constexpr std::string_view kKwargTypeNames[] = {"a device",
                                                "an op",
                                                "true or false",
                                                "a whole number",
                                                "a text",
                                                "a backend",
                                                "a map from layers to devices"};

constexpr OpInfo kOps[] = {
#define KTX_RULE_OP(name, computes, becomes, device, mode, vendor, cc, note, sentence) \
  {name, Replaces::computes, becomes, OpDevice::device, Mode::mode, Vendor::vendor,    \
   cc,   OpNote::note,       sentence},
#include "lib/rules/rule_ops.def"
#undef KTX_RULE_OP
};

constexpr OperatorInfo kOperators[] = {
#define KTX_OPERATOR(path, replaces, mode, vendor, note, keys, sentence) \
  {path, Replaces::replaces, Mode::mode, Vendor::vendor, OpNote::note, keys, sentence},
#include "lib/rules/operator_classes.def"
#undef KTX_OPERATOR
};

constexpr KwargInfo kKwargs[] = {
#define KTX_RULE_KWARG(name, type, use, sentence) {name, KwargType::type, KwargUse::use, sentence},
#include "lib/rules/rule_kwargs.def"
#undef KTX_RULE_KWARG
};

constexpr BackendInfo kBackends[] = {
#define KTX_RULE_BACKEND(name, isa, bf16_only) {name, isa, bf16_only},
#include "lib/rules/rule_backends.def"
#undef KTX_RULE_BACKEND
};

struct OldName {
  std::string_view old_name, new_name;
};
constexpr OldName kOldNames[] = {
#define KTX_OLD_NAME(old_name, new_name) {old_name, new_name},
#include "lib/rules/old_names.def"
#undef KTX_OLD_NAME
};

template <class Table>
auto find_named(const Table& table, std::string_view name) -> decltype(&table[0]) {
  for (const auto& row : table) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

template <class Table>
std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& row : table) names.emplace_back(row.name);
  return names;
}

// "ktransformers.operators.ascend.ascend_linear.X" and, as some documents have it,
// the same without the folder.
bool is_path_of(const OperatorInfo& row, std::string_view name) {
  constexpr std::string_view kRoot = "ktransformers.operators.";
  if (!name.starts_with(kRoot)) return false;
  name.remove_prefix(kRoot.size());
  constexpr std::string_view kFolder = "ascend.";
  return name == row.path ||
         (row.path.starts_with(kFolder) && name == row.path.substr(kFolder.size()));
}

}  // namespace

std::string_view name(Replaces replaces) {
  return kReplacesNames[static_cast<size_t>(replaces)];
}
std::string_view name(Vendor vendor) {
  return kVendorNames[static_cast<size_t>(vendor)];
}
std::string_view name(KwargType type) {
  return kKwargTypeNames[static_cast<size_t>(type)];
}
std::string_view last_part(std::string_view dotted) {
  const size_t dot = dotted.rfind('.');
  return dot == std::string_view::npos ? dotted : dotted.substr(dot + 1);
}
std::string_view OperatorInfo::short_name() const {
  return last_part(path);
}

std::span<const OpInfo> all_ops() {
  return kOps;
}
std::span<const OperatorInfo> all_operators() {
  return kOperators;
}
std::span<const KwargInfo> all_kwargs() {
  return kKwargs;
}
std::span<const BackendInfo> all_backends() {
  return kBackends;
}

const OpInfo* find_op(std::string_view name) {
  return find_named(kOps, name);
}
const KwargInfo* find_kwarg(std::string_view name) {
  return find_named(kKwargs, name);
}
const BackendInfo* find_backend(std::string_view name) {
  return find_named(kBackends, name);
}
const OperatorInfo* find_operator(std::string_view name) {
  for (const OperatorInfo& row : kOperators) {
    if (is_path_of(row, name) || row.short_name() == name) return &row;
  }
  return nullptr;
}

std::string_view new_name_of(std::string_view old_name) {
  for (const OldName& row : kOldNames) {
    if (row.old_name == last_part(old_name)) return row.new_name;
  }
  return "";
}

std::vector<std::string> op_names() {
  return names_of(kOps);
}
std::vector<std::string> kwarg_names() {
  return names_of(kKwargs);
}
std::vector<std::string> backend_names() {
  return names_of(kBackends);
}
std::vector<std::string> operator_names(bool dotted) {
  std::vector<std::string> names;
  for (const OperatorInfo& row : kOperators) {
    names.push_back(dotted ? fmt::format("ktransformers.operators.{}", row.path)
                           : std::string(row.short_name()));
  }
  names.emplace_back("default");
  return names;
}

}  // namespace ktx::rules
