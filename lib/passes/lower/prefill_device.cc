#include "lib/passes/lower/prefill_device.h"

#include <algorithm>

#include "kernels/matmul/retile.h"
#include "lib/formats/layout.h"
#include "lib/rules/device_name.h"

namespace ktx::passes {

PrefillDevice prefill_device(const rules::RuleSet& rules, const ir::Module& experts) {
  const int32_t number = experts.decision.rule;
  if (number < 0 || number >= std::ssize(rules.rules)) return PrefillDevice::Open;
  const auto* kwarg = rules.rules[static_cast<size_t>(number)].replace.kwarg("prefill_device");
  const auto place = kwarg ? rules::parse_device(kwarg->value.text) : std::nullopt;
  using Kind = rules::DeviceSpec::Kind;
  if (!place || place->kind == Kind::Auto || place->kind == Kind::Foreign) {
    return PrefillDevice::Open;
  }
  return place->kind == Kind::Cpu ? PrefillDevice::Cpu : PrefillDevice::Gpu;
}

bool can_be_streamed(const rules::RuleSet& rules, const ir::Module& module) {
  return module.role == ir::Role::Experts && std::holds_alternative<ir::ExpertsInfo>(module.info) &&
         prefill_device(rules, module) != PrefillDevice::Cpu &&
         std::ranges::all_of(module.params, [](const ir::Param& param) {
           if (param.name.ends_with("_factors")) return false;  // which no GPU kernel applies
           return param.rows == 1 || param.name.ends_with("bias") ||
                  kernels::retile_takes(param.dtype, Layout::Panel16);
         });
}

}  // namespace ktx::passes
