// Backends, layouts and ops against the weights that they would read.
#include <fmt/format.h>

#include <algorithm>

#include "lib/formats/requantized_form.h"
#include "lib/formats/shape_text.h"
#include "lib/passes/lint/rule_check.h"
#include "lib/passes/lint/rule_report.h"
#include "lib/rules/rule_keys.h"
#include "lib/support/strings.h"
#include "lib/target/isa.h"

namespace ktx::passes::rule_checks {
namespace {

using ir::Role;

// Types that KTransformers' loader dequantises, and those its GPU code lacks.
bool ktransformers_dequantises(DType dtype) {
  constexpr DType kKnown[] = {DType::F32,  DType::F16,  DType::BF16, DType::Q4_0,
                              DType::Q5_0, DType::Q8_0, DType::Q2_K, DType::Q3_K,
                              DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::IQ4_XS};
  return std::find(std::begin(kKnown), std::end(kKnown), dtype) != std::end(kKnown);
}

void check_type(RuleCheck& c, const ir::Module& module, const ir::Param& param) {
  if (!c.for_ktransformers() || !c.state.check.has_gguf) return;
  if (ktransformers_dequantises(param.dtype)) return;
  if (!c.first_time(fmt::format("type {}", ktx::name(param.dtype)))) return;
  c.diags()
      .error(c.rule.replace.op->loc, "Q001",
             fmt::format("{} cannot read {}: {}.{}", c.rule.replace.op_info->name,
                         ktx::name(param.dtype), module.path, param.name))
      .help("KTransformers dequantises F32, F16, BF16, Q4_0, Q5_0, Q8_0, Q2_K to Q6_K, IQ4_XS");
}

}  // namespace

void check_backend(RuleCheck& c) {
  const rules::Kwarg* kwarg = c.rule.replace.kwarg("backend");
  const rules::BackendInfo* backend = kwarg ? rules::find_backend(kwarg->value.text) : nullptr;
  if (!backend || c.won.empty()) return;
  if (c.state.check.target_given) {
    const auto needs = isa_from_name(backend->isa);
    const Isa has = c.state.target.cpu.isa;
    if (needs && has < *needs) {
      Diagnostic& diag = c.diags().report(
          severity_in(c.state, Severity::Warning), kwarg->value.loc, "D002",
          fmt::format("backend {} is written for {}, which the target's CPU lacks (it has {})",
                      backend->name, backend->isa, ktx::name(has)));
      diag.help(c.for_ktransformers()
                    ? "write backend: llamafile"
                    : fmt::format("ktx treats the backend as a hint and uses its own {} kernels",
                                  ktx::name(has)));
    }
  }
  if (backend->name == "AMXBF16" && c.first_time("amxbf16")) {
    c.diags().note(kwarg->value.loc, "O005",
                   c.for_ktransformers()
                       ? "AMXBF16 reads twice the bytes of AMXInt8 in decode: expect half its speed"
                       : "AMXBF16 reads twice the bytes of AMXInt8 in decode; ktx reads the GGUF's "
                         "codes with either");
  }
  if (c.for_ktransformers() && backend->bf16_only && c.state.check.has_gguf) {
    for (const ir::Module* module : c.won) {
      for (const ir::Param& param : module->params) {
        if (param.dtype == DType::BF16) continue;
        c.diags()
            .error(kwarg->value.loc, "Q001",
                   fmt::format("backend {} reads BF16 weights only, but {}.{} is {}", backend->name,
                               module->path, param.name, ktx::name(param.dtype)))
            .help("write backend: llamafile, or use a BF16 model");
        return;
      }
    }
  }
}

void check_layout(RuleCheck& c) {
  const auto& layout = c.rule.replace.layout;
  if (!layout || !rules::is_lossy_layout(layout->text)) return;
  const bool changes = std::any_of(c.won.begin(), c.won.end(), [&](const ir::Module* module) {
    return std::any_of(module->params.begin(), module->params.end(), [&](const ir::Param& p) {
      return p.rows > 1 && ktx::name(p.dtype) != layout->text;
    });
  });
  if (!changes) return;
  if (!c.rule.replace.lossy_allowed) {
    c.diags()
        .error(layout->loc, "Q004",
               fmt::format("layout {} re-quantises weights, and the rule does not allow that",
                           layout->text))
        .help(
            "add `lossy: allow` if that is intended; without a layout the GGUF's "
            "codes are kept bit for bit");
  } else if (!find_requantized_form(layout->text)) {
    std::vector<std::string> known;
    for (const RequantizedForm& form : requantized_forms()) known.emplace_back(form.name);
    c.diags().warning(layout->loc, "Q004",
                      fmt::format("weights are not re-quantised to {}, but to {}; the GGUF's codes "
                                  "are kept",
                                  layout->text, join(known, ", ")));
  }
}

// Small and special matrices below a quantising op, and shapes it must pad.
void check_weights(RuleCheck& c) {
  const rules::OpInfo* op = c.rule.replace.op_info;
  if (!op || op->becomes != "marlin") return;
  int64_t routers = 0, narrow = 0, padded = 0;
  std::string first_router, first_narrow, first_padded;
  for (const ir::Module* module : c.won) {
    for (const ir::Param& param : module->params) {
      if (param.name == "bias") continue;
      if (module->role == Role::Router) {
        if (routers++ == 0) first_router = module->path;
      } else if (param.rows < 64) {
        if (narrow++ == 0) first_narrow = module->path;
      } else if (param.cols % 128 != 0 || param.rows % 64 != 0) {
        if (padded++ == 0) {
          first_padded = fmt::format("{} {}", module->path, shape_text(param.cols, param.rows));
        }
      }
      check_type(c, *module, param);
    }
  }
  const auto report = [&](std::string_view code, int64_t count, const std::string& first,
                          const std::string& what, const std::string& here) {
    if (count == 0) return;
    const bool theirs = c.for_ktransformers();
    c.diags()
        .report(severity_in(c.state, Severity::Note, Severity::Warning), c.rule.replace.op->loc,
                std::string(code),
                fmt::format("{}: {}; {}", and_more(first, count), what,
                            theirs ? "quantised to 4 bits by " + std::string(op->name) : here))
        .in_group(fmt::format("{} of {}", code, c.file()));
  };
  report("R006", routers, first_router, "a router",
         "KTransformers would quantise it to 4 bits, ktx keeps its weights as they are");
  report("R006", narrow, first_narrow, "a matrix of less than 64 rows",
         "KTransformers would quantise it to 4 bits, ktx keeps its weights as they are");
  report("Q003", padded, first_padded, "not a multiple of the 64 x 128 tile", "it is padded");
}

}  // namespace ktx::passes::rule_checks
