#include "lib/rules/expert_values.h"

#include <fmt/format.h>

#include <set>

#include "lib/ir/expert_numbers.h"
#include "lib/support/strings.h"

namespace ktx::rules {
namespace {

constexpr std::string_view kForms =
    "write how many, {cuda:0: 32}, or which, {cuda:0: \"0..31, 40\"}; experts count from 0";

constexpr std::string_view kSlotForms =
    "resident: 16 are 16 experts that stay on the GPU; slots: 32 are places for 32 that follow use "
    "and stand in main memory as well; slots: auto are as many as the GPU has room for";

// A number is a count, anything longer names experts.
bool take_which(RuleValues& values, const YamlNode& node, ExpertsOn& set) {
  const auto wrong = [&](const YamlNode& at) {
    values.wrong(at, fmt::format("'{}' is no number and no range of experts", printable(at.text)))
        .help(std::string(kForms));
    return false;
  };
  if (node.is_scalar()) {
    if (const auto count = node.quoted ? std::nullopt : parse_int(node.text)) {
      if (*count < 1 || *count > ir::kMostExperts) return wrong(node);
      set.count = static_cast<int32_t>(*count);
      return true;
    }
  }
  std::set<int32_t> experts;
  const auto add = [&](const YamlNode& item) {
    const auto some = item.is_scalar() ? ir::parse_expert_numbers(item.text) : std::nullopt;
    if (!some) return wrong(item);
    experts.insert(some->begin(), some->end());
    return true;
  };
  if (node.is_list()) {
    if (node.items.empty()) return wrong(node);
    for (const YamlRef& item : node.items) {
      if (!add(*item)) return false;
    }
  } else if (!add(node)) {
    return false;
  }
  set.experts.assign(experts.begin(), experts.end());
  set.count = static_cast<int32_t>(experts.size());
  return true;
}

// {resident: 16, slots: 32}: fixed ones, and guests.
void take_kinds(RuleValues& values, const YamlNode& node, const ExpertsOn& base,
                std::vector<ExpertsOn>& out) {
  for (const auto& [key, value] : node.fields) {
    ExpertsOn set = base;
    set.loc = value->loc;
    set.guests = key->text == "slots";
    const bool fit = set.guests && value->is_scalar() && value->text == "auto";
    if (!set.guests && key->text != "resident") {
      values.wrong(*key, fmt::format("'{}' is none of resident and slots", printable(key->text)))
          .help(std::string(kSlotForms));
    } else if (fit || take_which(values, *value, set)) {
      out.push_back(std::move(set));
    }
  }
}

}  // namespace

void take_experts(RuleValues& values, const YamlNode& node, std::vector<ExpertsOn>& out) {
  if (!node.is_map() || node.fields.empty()) {
    values.wrong(node, "`experts` says how many experts of a stack are on which device")
        .help(std::string(kForms));
    return;
  }
  for (const auto& [key, value] : node.fields) {
    ExpertsOn set{.device = {key->text, key->loc}, .loc = value->loc};
    const auto place = key->is_scalar() ? parse_device(key->text) : std::nullopt;
    using Kind = DeviceSpec::Kind;
    if (!place) {
      values.bad_device(set.device);
    } else if (place->kind != Kind::Cpu && place->kind != Kind::Cuda && place->kind != Kind::Auto) {
      values.wrong(*key,
                   "experts are on one device each: cpu, cuda:N, or auto for that of the "
                   "layer's attention");
    } else if (set.device.text = to_string(*place); value->is_map()) {
      take_kinds(values, *value, set, out);
    } else if (take_which(values, *value, set)) {
      out.push_back(std::move(set));
    }
  }
}

void take_deferred(RuleValues& values, const YamlNode& node, std::optional<Located>& text,
                   int32_t& count) {
  const auto number = node.is_scalar() && !node.quoted ? parse_int(node.text) : std::nullopt;
  if (!number || *number < 1 || *number > ir::kMostExperts) {
    values.wrong(node, "`deferred` is a number of a token's experts, from 1 on")
        .help("without the key none is deferred");
    return;
  }
  text = Located{node.text, node.loc};
  count = static_cast<int32_t>(*number);
}

}  // namespace ktx::rules
