// Remarks on kwargs and operators that mean something else here, or nothing.
#include <fmt/format.h>

#include "lib/passes/lint/rule_check.h"
#include "lib/passes/lint/rule_report.h"

namespace ktx::passes::rule_checks {
namespace {

using rules::DeviceSpec;
using rules::OpNote;
using rules::Replaces;

void note_threshold(RuleCheck& c, const rules::Kwarg& kwarg) {
  if (kwarg.number == 0 || !c.first_time("threshold")) return;
  c.diags().note(kwarg.key.loc, "R009",
                 fmt::format("layer-wise prefill from {} tokens on: prompts of that length reload "
                             "every layer in KTransformers; ktx needs no such switch",
                             kwarg.number));
}

}  // namespace

void check_kwargs(RuleCheck& c) {
  const rules::OperatorInfo* info = c.rule.replace.operator_info;
  std::vector<std::string> ignored;
  const rules::Kwarg* prefill = nullptr;
  for (const rules::Kwarg& kwarg : c.rule.replace.kwargs) {
    if (kwarg.info->use != rules::KwargUse::Ignored) continue;
    if (kwarg.info->name == "prefill_op" && !kwarg.is_null) {
      prefill = &kwarg;
    } else if (kwarg.info->name == "per_layer_prefill_intput_threshold") {
      note_threshold(c, kwarg);
    } else if (!kwarg.info->name.starts_with("prefill_")) {
      if (c.first_time(kwarg.key.text)) {
        c.diags().note(kwarg.key.loc, "O005",
                       fmt::format("`{}` has no effect: {}", kwarg.key.text, kwarg.info->sentence));
      }
    }
  }
  if (prefill && c.first_time("prefill")) {
    c.diags().note(prefill->key.loc, "R009",
                   c.for_ktransformers()
                       ? "prefill_op and prefill_device count in layer-wise prefill only"
                       : "prefill_op has no effect: ktx chooses kernels by the number of tokens");
  }
  const rules::Kwarg* device = c.rule.replace.kwarg("prefill_device");
  const auto& place = c.rule.replace.place;
  if (device && device->value.text == "cpu" && place &&
      place->kind == rules::DeviceSpec::Kind::Cuda && !c.for_ktransformers() &&
      c.first_time("prefill_device")) {
    c.diags().note(
        device->key.loc, "O005",
        "`prefill_device: cpu` has no effect: weights on a GPU are used there in prompts, "
        "too");
  }
  if (info && info->replaces == Replaces::Model && c.for_ktransformers() &&
      !c.rule.replace.kwarg("per_layer_prefill_intput_threshold")) {
    c.diags()
        .warning(c.rule.replace.class_name->loc, "R009",
                 "without `per_layer_prefill_intput_threshold` KTransformers' default of 30000 "
                 "tokens turns layer-wise prefill on")
        .help("write per_layer_prefill_intput_threshold: 0");
  }
}

void note_op(RuleCheck& c) {
  const rules::OperatorInfo* info = c.rule.replace.operator_info;
  const rules::OpInfo* op = c.rule.replace.op_info;
  if (c.won.empty()) return;
  if (info && info->note == OpNote::Approximate && c.first_time(info->short_name())) {
    c.diags().report(
        severity_in(c.state, Severity::Warning, Severity::Note), c.rule.replace.class_name->loc,
        "O005",
        fmt::format("{} approximates attention over long contexts{}", info->short_name(),
                    c.for_ktransformers() ? "" : "; ktx computes exact attention"));
  }
  if (!op || !c.first_time(op->name)) return;
  const SourceLoc& at = c.rule.replace.op->loc;
  if (op->note == OpNote::KeepsCodes && !c.for_ktransformers()) {
    c.diags().note(at, "Q005", fmt::format("{}: {}", op->name, op->sentence));
  } else if (op->note == OpNote::NoTraining) {
    c.diags().note(at, "O005", fmt::format("{}: {}", op->name, op->sentence));
  } else if (op->note == OpNote::NoSuchWeights) {
    const char* kind = op->name == "KLinearFP8" ? "FP8 weights with their scales" : "int8 weights";
    c.diags()
        .report(severity_in(c.state, Severity::Warning), at, "Q001",
                fmt::format("{} needs {}, and a GGUF holds none", op->name, kind))
        .help(c.for_ktransformers() ? "use the model's safetensors, or write KLinearMarlin"
                                    : "ktx keeps the GGUF's codes, which loses nothing");
  }
  const bool placed_on_gpu =
      c.rule.replace.place && (c.rule.replace.place->kind == DeviceSpec::Kind::Cuda ||
                               c.rule.replace.place->kind == DeviceSpec::Kind::Spread);
  const bool on_gpu =
      op->device == rules::OpDevice::Gpu || (op->device != rules::OpDevice::Cpu && placed_on_gpu);
  if (op->computes == Replaces::Experts && on_gpu) {
    c.diags().report(severity_in(c.state, Severity::Note, Severity::Warning), at, "O003",
                     c.for_ktransformers()
                         ? fmt::format("{} cannot be captured in a CUDA graph: start with CUDA "
                                       "graphs off",
                                       op->name)
                         : "experts on a GPU: KTransformers needs CUDA graphs off for this, ktx "
                           "does not");
  }
}

}  // namespace ktx::passes::rule_checks
