// Operators against the config: keys that they need, scaling of positions, routing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/passes/lint/rule_check.h"
#include "lib/passes/lint/rule_report.h"
#include "lib/rules/families.h"
#include "lib/support/strings.h"

namespace ktx::passes::rule_checks {

using rules::OpNote;
using rules::Replaces;

void check_config(RuleCheck& c) {
  const rules::OperatorInfo* info = c.rule.replace.operator_info;
  if (!info || !c.state.config || c.won.empty()) return;
  for (std::string_view key : split(info->config_keys, ' ')) {
    if (key.empty()) continue;
    if (c.state.config->has(key) && !c.state.config->is_null(key)) continue;
    const auto families = rules::families_with_key(key);
    c.diags()
        .error(c.rule.replace.class_name->loc, "C001",
               fmt::format("{} needs `{}` of the config, which {} {}: {}", info->short_name(), key,
                           c.state.modules.facts.family,
                           c.state.config->has(key) ? "has as null" : "does not have",
                           and_more(c.won.front()->path, static_cast<int64_t>(c.won.size()))))
        .help(fmt::format("this operator is for {}", fmt::join(families, ", ")));
    return;
  }
}

void check_rope(RuleCheck& c) {
  const rules::OperatorInfo* info = c.rule.replace.operator_info;
  if (!info || !c.state.config || c.won.empty()) return;
  if (info->note != OpNote::Yarn && info->note != OpNote::PlainRope) return;
  const std::string type = c.state.config->string("rope_scaling.rope_type").value_or("default");
  const bool wants_yarn = info->note == OpNote::Yarn;
  if (wants_yarn == (type == "yarn")) return;
  Diagnostic& diag = c.diags().report(
      severity_in(c.state, Severity::Warning), c.rule.replace.class_name->loc, "N002",
      wants_yarn
          ? fmt::format("{} computes yarn, but the config has {}", info->short_name(),
                        type == "default" ? "no rope scaling" : "rope scaling '" + type + "'")
          : fmt::format("{} computes plain rotary embedding, but the config asks for '{}'",
                        info->short_name(), type));
  diag.in_group("rope of " + c.file());
  if (!c.for_ktransformers()) {
    diag.help("ktx computes what the config asks for, whatever the class");
  } else {
    diag.help(fmt::format("write ktransformers.operators.RoPE.{}",
                          wants_yarn ? "RotaryEmbeddingV3" : "YarnRotaryEmbeddingV3"));
  }
}

// A MoE block that routes in another way than the model.
void check_routing(RuleCheck& c) {
  const rules::OperatorInfo* info = c.rule.replace.operator_info;
  if (!info || !c.state.config || c.won.empty() || info->replaces != Replaces::Moe) return;
  const std::string method = c.state.config->string("topk_method").value_or("");
  const bool v2_block = info->short_name() == "KDeepseekV2MoE";
  const bool v3_block = info->short_name().starts_with("KDeepseekV3MoE");
  const bool v3_routing = method == "noaux_tc";
  if ((v2_block && v3_routing) || (v3_block && !v3_routing)) {
    c.diags()
        .report(severity_in(c.state, Severity::Warning), c.rule.replace.class_name->loc, "N003",
                fmt::format(
                    "{} routes {}, but the config asks for topk_method '{}'", info->short_name(),
                    v2_block ? "without a correction bias" : "with a correction bias", method))
        .help("ktx routes as the config asks");
  }
}

}  // namespace ktx::passes::rule_checks
