// Checks that the replacements of rules fit the module, the model's config, the device, the
// weights, and the other rules.
//
// ktx computes every module with its own kernels, so much that breaks KTransformers is harmless
// here and reported as a note; with --dialect=ktransformers it is an error.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "lib/formats/requantized_form.h"
#include "lib/formats/shape_text.h"
#include "lib/passes/lint/ktransformers_checks.h"
#include "lib/passes/lint/rule_report.h"
#include "lib/passes/lower/deferred_experts.h"
#include "lib/passes/pass.h"
#include "lib/passes/rule_expert_sets.h"
#include "lib/rules/families.h"
#include "lib/rules/rule_keys.h"
#include "lib/support/strings.h"
#include "lib/target/isa.h"

namespace ktx::passes {
namespace {

using ir::Kind;
using ir::Role;
using rules::DeviceSpec;
using rules::OpNote;
using rules::Replaces;
using rules::Rule;
using rules::Vendor;

// Whether an operator that replaces this may stand for the module.
bool fits(Replaces replaces, const ir::Module& module) {
  switch (replaces) {
    case Replaces::Any:
      return true;
    case Replaces::Linear:
      return is_torch_linear(module);
    case Replaces::Experts:
      return module.role == Role::Experts;
    case Replaces::Moe:
      return ir::kind_of(module.role) == Kind::Moe;
    case Replaces::Gate:
      return module.role == Role::Router;
    case Replaces::Attention:
      return ir::kind_of(module.role) == Kind::Attention;
    case Replaces::Rotary:
      return ir::kind_of(module.role) == Kind::Rotary;
    case Replaces::Norm:
      return ir::kind_of(module.role) == Kind::Norm;
    case Replaces::Mlp:
      return ir::kind_of(module.role) == Kind::Mlp;
    case Replaces::Model:
      return module.role == Role::Model;
  }
  return true;
}

// Types that KTransformers' loader dequantises, and those its GPU code lacks.
bool ktransformers_dequantises(DType dtype) {
  constexpr DType kKnown[] = {DType::F32,  DType::F16,  DType::BF16, DType::Q4_0,
                              DType::Q5_0, DType::Q8_0, DType::Q2_K, DType::Q3_K,
                              DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::IQ4_XS};
  return std::find(std::begin(kKnown), std::end(kKnown), dtype) != std::end(kKnown);
}

class OpChecker {
 public:
  explicit OpChecker(CompileState& state) : state_(state), diags_(*state.diags) {}

  void run() {
    if (for_ktransformers()) check_form_of_files(state_);
    for (size_t i = 0; i < state_.rules.rules.size(); ++i) {
      const Rule& rule = state_.rules.rules[i];
      won_ = modules_of(state_, static_cast<int>(i));
      if (for_ktransformers()) check_own_words(state_, rule);
      if (refused(rule)) continue;
      check_device(rule);
      check_fit(rule);
      check_expert_sets(rule);
      check_deferred(rule);
      check_config(rule);
      check_rope(rule);
      check_routing(rule);
      check_backend(rule);
      check_layout(rule);
      check_weights(rule);
      check_kwargs(rule);
      note_op(rule);
    }
    check_run_modes(state_);
  }

 private:
  bool for_ktransformers() const { return state_.check.dialect == rules::Dialect::KTransformers; }
  std::string file_of(const Rule& rule) const { return state_.rules.file_of(rule).path; }
  // True the first time for this file: such remarks are made once.
  bool first_time(const Rule& rule, std::string_view what) {
    return said_.insert(fmt::format("{}/{}", rule.file, what)).second;
  }

  // Hardware of other vendors: refused with a reason.
  bool refused(const Rule& rule) {
    Vendor vendor = Vendor::None;
    std::string what;
    SourceLoc loc = place_of(rule);
    const rules::OperatorInfo* info = rule.replace.operator_info;
    if (info && info->vendor != Vendor::None) {
      vendor = info->vendor;
      what = fmt::format("class '{}'", info->short_name());
    } else if (rule.replace.op_info && rule.replace.op_info->vendor != Vendor::None) {
      vendor = rule.replace.op_info->vendor;
      what = fmt::format("op '{}'", rule.replace.op_info->name);
      loc = rule.replace.op->loc;
    } else if (rule.replace.place && rule.replace.place->kind == DeviceSpec::Kind::Foreign) {
      vendor = rule.replace.place->vendor;
      what = fmt::format("device '{}'", rule.replace.device->text);
      loc = rule.replace.device->loc;
    }
    if (vendor == Vendor::None || for_ktransformers()) return false;
    diags_
        .error(loc, "D001",
               fmt::format("{} is for {}; ktx compiles for CPUs and NVIDIA GPUs", what,
                           rules::name(vendor)))
        .help("take the CUDA version of this rule file")
        .in_group("vendor of " + file_of(rule));
    return true;
  }

  void check_device(const Rule& rule) {
    const rules::OpInfo* op = rule.replace.op_info;
    if (!op || !rule.replace.place) return;
    const DeviceSpec& place = *rule.replace.place;
    using DeviceKind = DeviceSpec::Kind;
    const bool on_gpu = place.kind == DeviceKind::Cuda || place.kind == DeviceKind::Spread;
    const bool ours = !rule.replace.kwarg("generate_op");
    if (op->device == rules::OpDevice::Gpu && place.kind == DeviceKind::Cpu) {
      const char* instead = ours                                ? "op: cpu"
                            : op->computes == Replaces::Experts ? "KExpertsCPU"
                                                                : "KLinearCPUInfer";
      diags_
          .error(rule.replace.op->loc, "D003",
                 fmt::format("op {} has no CPU form, but the rule puts it on the CPU", op->name))
          .note(rule.replace.device->loc, "the device is given here")
          .help(fmt::format("write {}, or a cuda device", instead));
    } else if (op->device == rules::OpDevice::Cpu && on_gpu) {
      const char* instead = ours                                ? "op: marlin"
                            : op->computes == Replaces::Experts ? "KExpertsMarlin"
                                                                : "KLinearMarlin";
      diags_
          .error(rule.replace.op->loc, "D003",
                 fmt::format("op {} runs on the CPU, but the rule puts it on {}", op->name,
                             rules::to_string(place)))
          .note(rule.replace.device->loc, "the device is given here")
          .help(fmt::format("write {}: cpu, or {}", ours ? "device" : "generate_device", instead));
    }
  }

  bool is_open(const Rule& rule) const {
    const std::string& pattern = rule.match.name->text;
    return !pattern.ends_with('$') || !pattern.starts_with('^');
  }

  // The operator against the modules that it would replace.
  void check_fit(const Rule& rule) {
    const rules::OperatorInfo* info = rule.replace.operator_info;
    const rules::OpInfo* op = rule.replace.op_info;
    if (info && op && op->computes != Replaces::Any && info->replaces != op->computes) {
      diags_.error(
          rule.replace.op->loc, "O006",
          fmt::format("{} computes {}, but {} replaces {}", op->name, rules::name(op->computes),
                      info->short_name(), rules::name(info->replaces)));
      return;
    }
    const Replaces replaces = info ? info->replaces : op ? op->computes : Replaces::Any;
    std::vector<const ir::Module*> wrong;
    for (const ir::Module* module : won_) {
      if (!fits(replaces, *module)) wrong.push_back(module);
    }
    if (wrong.empty()) return;
    const auto named = info ? info->short_name() : op->name;
    const bool some = wrong.size() < won_.size();
    const bool open = rule.match.name && is_open(rule);
    std::string examples;
    for (size_t i = 0; i < std::min<size_t>(wrong.size(), 3); ++i) {
      examples += fmt::format("{}{} ({})", i ? ", " : "",
                              wrong[i]->path.empty() ? "the root" : wrong[i]->path,
                              rules::last_part(wrong[i]->class_name));
    }
    const std::string rest =
        wrong.size() > 3 ? fmt::format(" and {} more", wrong.size() - 3) : std::string();
    const bool too_much = some || open;
    const SourceLoc at = !too_much ? (info ? rule.replace.class_name->loc : rule.replace.op->loc)
                         : rule.match.name ? rule.match.name->loc
                                           : rule.loc;
    Diagnostic& diag = diags_.error(at, too_much ? "R014" : "O006",
                                    fmt::format("{} replaces {}, but the rule also gives it {}{}",
                                                named, rules::name(replaces), examples, rest));
    if (!some)
      diag.message =
          fmt::format("{} replaces {}, not {}{}", named, rules::name(replaces), examples, rest);
    if (!too_much) {
      diag.note(rule.loc, "the rule's modules are given here")
          .help("take an operator for these modules (docs/rules.md), or `class: default`");
    }
    if (open) {
      diag.help(
          "the pattern is searched anywhere in the path: begin it with `^` and end it with "
          "`$` so that it catches whole paths only");
    }
    if (replaces == Replaces::Linear && !rule.match.class_name) {
      diag.help("or add `class: torch.nn.Linear` to the match");
    }
  }

  void check_expert_sets(const Rule& rule) {
    if (rule.replace.experts.empty()) return;
    const rules::ExpertsOn& first = rule.replace.experts[0];
    for (const ir::Module* module : won_) {
      const std::string obstacle = expert_sets_obstacle(rule.replace, *module);
      if (obstacle.empty()) continue;
      Diagnostic& diag = diags_.error(
          first.loc, "R021",
          fmt::format("{} {}", module->path.empty() ? "the root" : module->path, obstacle));
      if (module->role != Role::Experts) diag.help("write `match: {kind: experts}`");
      return;
    }
  }

  void check_deferred(const Rule& rule) {
    const auto& deferred = rule.replace.deferred;
    if (!deferred) return;
    for (const ir::Module* module : won_) {
      const std::string obstacle =
          deferral_obstacle(state_.modules, *module, rule.replace.deferred_experts);
      if (obstacle.empty()) continue;
      Diagnostic& diag = diags_.error(
          deferred->loc, "R022",
          fmt::format("{} {}", module->path.empty() ? "the root" : module->path, obstacle));
      if (module->role != Role::Experts) diag.help("write `match: {kind: experts}`");
      return;
    }
    if (is_on_gpu(rule.replace)) {
      diags_
          .error(deferred->loc, "R022",
                 fmt::format("experts on {} are not deferred: a GPU does not wait for them",
                             rule.replace.device->text))
          .help("write `device: cpu`, or remove `deferred`");
    } else if (divides_over_hosts(rule.replace)) {
      diags_
          .error(deferred->loc, "R022",
                 "experts that are divided over hosts are not deferred: those of a token are added "
                 "at once")
          .help("put them on one host each layer, or remove `deferred`");
    } else if (!rule.replace.lossy_allowed) {
      diags_
          .error(deferred->loc, "Q007",
                 "experts that are added a layer later change the model's output, and the rule "
                 "does not allow that")
          .help("add `lossy: allow` if that is intended (docs/rules.md has measurements)");
    }
  }

  void check_config(const Rule& rule) {
    const rules::OperatorInfo* info = rule.replace.operator_info;
    if (!info || !state_.config || won_.empty()) return;
    for (std::string_view key : split(info->config_keys, ' ')) {
      if (key.empty()) continue;
      if (state_.config->has(key) && !state_.config->is_null(key)) continue;
      const auto families = rules::families_with_key(key);
      diags_
          .error(rule.replace.class_name->loc, "C001",
                 fmt::format("{} needs `{}` of the config, which {} {}: {}", info->short_name(),
                             key, state_.modules.facts.family,
                             state_.config->has(key) ? "has as null" : "does not have",
                             and_more(won_.front()->path, static_cast<int64_t>(won_.size()))))
          .help(fmt::format("this operator is for {}", fmt::join(families, ", ")));
      return;
    }
  }

  void check_rope(const Rule& rule) {
    const rules::OperatorInfo* info = rule.replace.operator_info;
    if (!info || !state_.config || won_.empty()) return;
    if (info->note != OpNote::Yarn && info->note != OpNote::PlainRope) return;
    const std::string type = state_.config->string("rope_scaling.rope_type").value_or("default");
    const bool wants_yarn = info->note == OpNote::Yarn;
    if (wants_yarn == (type == "yarn")) return;
    Diagnostic& diag = diags_.report(
        severity_in(state_, Severity::Warning), rule.replace.class_name->loc, "N002",
        wants_yarn
            ? fmt::format("{} computes yarn, but the config has {}", info->short_name(),
                          type == "default" ? "no rope scaling" : "rope scaling '" + type + "'")
            : fmt::format("{} computes plain rotary embedding, but the config asks for '{}'",
                          info->short_name(), type));
    diag.in_group("rope of " + file_of(rule));
    if (!for_ktransformers()) {
      diag.help("ktx computes what the config asks for, whatever the class");
    } else {
      diag.help(fmt::format("write ktransformers.operators.RoPE.{}",
                            wants_yarn ? "RotaryEmbeddingV3" : "YarnRotaryEmbeddingV3"));
    }
  }

  // A MoE block that routes in another way than the model.
  void check_routing(const Rule& rule) {
    const rules::OperatorInfo* info = rule.replace.operator_info;
    if (!info || !state_.config || won_.empty() || info->replaces != Replaces::Moe) return;
    const std::string method = state_.config->string("topk_method").value_or("");
    const bool v2_block = info->short_name() == "KDeepseekV2MoE";
    const bool v3_block = info->short_name().starts_with("KDeepseekV3MoE");
    const bool v3_routing = method == "noaux_tc";
    if ((v2_block && v3_routing) || (v3_block && !v3_routing)) {
      diags_
          .report(severity_in(state_, Severity::Warning), rule.replace.class_name->loc, "N003",
                  fmt::format(
                      "{} routes {}, but the config asks for topk_method '{}'", info->short_name(),
                      v2_block ? "without a correction bias" : "with a correction bias", method))
          .help("ktx routes as the config asks");
    }
  }

  void check_backend(const Rule& rule) {
    const rules::Kwarg* kwarg = rule.replace.kwarg("backend");
    const rules::BackendInfo* backend = kwarg ? rules::find_backend(kwarg->value.text) : nullptr;
    if (!backend || won_.empty()) return;
    if (state_.check.target_given) {
      const auto needs = isa_from_name(backend->isa);
      const Isa has = state_.target.cpu.isa;
      if (needs && has < *needs) {
        Diagnostic& diag = diags_.report(
            severity_in(state_, Severity::Warning), kwarg->value.loc, "D002",
            fmt::format("backend {} is written for {}, which the target's CPU lacks (it has {})",
                        backend->name, backend->isa, ktx::name(has)));
        diag.help(for_ktransformers()
                      ? "write backend: llamafile"
                      : fmt::format("ktx treats the backend as a hint and uses its own {} kernels",
                                    ktx::name(has)));
      }
    }
    if (backend->name == "AMXBF16" && first_time(rule, "amxbf16")) {
      diags_.note(kwarg->value.loc, "O005",
                  for_ktransformers()
                      ? "AMXBF16 reads twice the bytes of AMXInt8 in decode: expect half its speed"
                      : "AMXBF16 reads twice the bytes of AMXInt8 in decode; ktx reads the GGUF's "
                        "codes with either");
    }
    if (for_ktransformers() && backend->bf16_only && state_.check.has_gguf) {
      for (const ir::Module* module : won_) {
        for (const ir::Param& param : module->params) {
          if (param.dtype == DType::BF16) continue;
          diags_
              .error(kwarg->value.loc, "Q001",
                     fmt::format("backend {} reads BF16 weights only, but {}.{} is {}",
                                 backend->name, module->path, param.name, ktx::name(param.dtype)))
              .help("write backend: llamafile, or use a BF16 model");
          return;
        }
      }
    }
  }

  void check_layout(const Rule& rule) {
    const auto& layout = rule.replace.layout;
    if (!layout || !rules::is_lossy_layout(layout->text)) return;
    const bool changes = std::any_of(won_.begin(), won_.end(), [&](const ir::Module* module) {
      return std::any_of(module->params.begin(), module->params.end(), [&](const ir::Param& p) {
        return p.rows > 1 && ktx::name(p.dtype) != layout->text;
      });
    });
    if (!changes) return;
    if (!rule.replace.lossy_allowed) {
      diags_
          .error(layout->loc, "Q004",
                 fmt::format("layout {} re-quantises weights, and the rule does not allow that",
                             layout->text))
          .help(
              "add `lossy: allow` if that is intended; without a layout the GGUF's "
              "codes are kept bit for bit");
    } else if (!find_requantized_form(layout->text)) {
      std::vector<std::string> known;
      for (const RequantizedForm& form : requantized_forms()) known.emplace_back(form.name);
      diags_.warning(layout->loc, "Q004",
                     fmt::format("weights are not re-quantised to {}, but to {}; the GGUF's codes "
                                 "are kept",
                                 layout->text, join(known, ", ")));
    }
  }

  // Small and special matrices below a quantising op, and shapes it must pad.
  void check_weights(const Rule& rule) {
    const rules::OpInfo* op = rule.replace.op_info;
    if (!op || op->becomes != "marlin") return;
    int64_t routers = 0, narrow = 0, padded = 0;
    std::string first_router, first_narrow, first_padded;
    for (const ir::Module* module : won_) {
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
        check_type(rule, *module, param);
      }
    }
    const auto report = [&](std::string_view code, int64_t count, const std::string& first,
                            const std::string& what, const std::string& here) {
      if (count == 0) return;
      const bool theirs = for_ktransformers();
      diags_
          .report(severity_in(state_, Severity::Note, Severity::Warning), rule.replace.op->loc,
                  std::string(code),
                  fmt::format("{}: {}; {}", and_more(first, count), what,
                              theirs ? "quantised to 4 bits by " + std::string(op->name) : here))
          .in_group(fmt::format("{} of {}", code, file_of(rule)));
    };
    report("R006", routers, first_router, "a router",
           "KTransformers would quantise it to 4 bits, ktx keeps its weights as they are");
    report("R006", narrow, first_narrow, "a matrix of less than 64 rows",
           "KTransformers would quantise it to 4 bits, ktx keeps its weights as they are");
    report("Q003", padded, first_padded, "not a multiple of the 64 x 128 tile", "it is padded");
  }

  void check_type(const Rule& rule, const ir::Module& module, const ir::Param& param) {
    if (!for_ktransformers() || !state_.check.has_gguf) return;
    if (ktransformers_dequantises(param.dtype)) return;
    if (!first_time(rule, fmt::format("type {}", ktx::name(param.dtype)))) return;
    diags_
        .error(rule.replace.op->loc, "Q001",
               fmt::format("{} cannot read {}: {}.{}", rule.replace.op_info->name,
                           ktx::name(param.dtype), module.path, param.name))
        .help("KTransformers dequantises F32, F16, BF16, Q4_0, Q5_0, Q8_0, Q2_K to Q6_K, IQ4_XS");
  }

  void check_kwargs(const Rule& rule) {
    const rules::OperatorInfo* info = rule.replace.operator_info;
    std::vector<std::string> ignored;
    const rules::Kwarg* prefill = nullptr;
    for (const rules::Kwarg& kwarg : rule.replace.kwargs) {
      if (kwarg.info->use != rules::KwargUse::Ignored) continue;
      if (kwarg.info->name == "prefill_op" && !kwarg.is_null) {
        prefill = &kwarg;
      } else if (kwarg.info->name == "per_layer_prefill_intput_threshold") {
        note_threshold(rule, kwarg);
      } else if (!kwarg.info->name.starts_with("prefill_")) {
        if (first_time(rule, kwarg.key.text)) {
          diags_.note(kwarg.key.loc, "O005",
                      fmt::format("`{}` has no effect: {}", kwarg.key.text, kwarg.info->sentence));
        }
      }
    }
    if (prefill && first_time(rule, "prefill")) {
      diags_.note(prefill->key.loc, "R009",
                  for_ktransformers()
                      ? "prefill_op and prefill_device count in layer-wise prefill only"
                      : "prefill_op has no effect: ktx chooses kernels by the number of tokens");
    }
    const rules::Kwarg* device = rule.replace.kwarg("prefill_device");
    const auto& place = rule.replace.place;
    if (device && device->value.text == "cpu" && place &&
        place->kind == rules::DeviceSpec::Kind::Cuda && !for_ktransformers() &&
        first_time(rule, "prefill_device")) {
      diags_.note(
          device->key.loc, "O005",
          "`prefill_device: cpu` has no effect: weights on a GPU are used there in prompts, "
          "too");
    }
    if (info && info->replaces == Replaces::Model && for_ktransformers() &&
        !rule.replace.kwarg("per_layer_prefill_intput_threshold")) {
      diags_
          .warning(rule.replace.class_name->loc, "R009",
                   "without `per_layer_prefill_intput_threshold` KTransformers' default of 30000 "
                   "tokens turns layer-wise prefill on")
          .help("write per_layer_prefill_intput_threshold: 0");
    }
  }

  void note_threshold(const Rule& rule, const rules::Kwarg& kwarg) {
    if (kwarg.number == 0 || !first_time(rule, "threshold")) return;
    diags_.note(kwarg.key.loc, "R009",
                fmt::format("layer-wise prefill from {} tokens on: prompts of that length reload "
                            "every layer in KTransformers; ktx needs no such switch",
                            kwarg.number));
  }

  void note_op(const Rule& rule) {
    const rules::OperatorInfo* info = rule.replace.operator_info;
    const rules::OpInfo* op = rule.replace.op_info;
    if (won_.empty()) return;
    if (info && info->note == OpNote::Approximate && first_time(rule, info->short_name())) {
      diags_.report(
          severity_in(state_, Severity::Warning, Severity::Note), rule.replace.class_name->loc,
          "O005",
          fmt::format("{} approximates attention over long contexts{}", info->short_name(),
                      for_ktransformers() ? "" : "; ktx computes exact attention"));
    }
    if (!op || !first_time(rule, op->name)) return;
    const SourceLoc& at = rule.replace.op->loc;
    if (op->note == OpNote::KeepsCodes && !for_ktransformers()) {
      diags_.note(at, "Q005", fmt::format("{}: {}", op->name, op->sentence));
    } else if (op->note == OpNote::NoTraining) {
      diags_.note(at, "O005", fmt::format("{}: {}", op->name, op->sentence));
    } else if (op->note == OpNote::NoSuchWeights) {
      const char* kind =
          op->name == "KLinearFP8" ? "FP8 weights with their scales" : "int8 weights";
      diags_
          .report(severity_in(state_, Severity::Warning), at, "Q001",
                  fmt::format("{} needs {}, and a GGUF holds none", op->name, kind))
          .help(for_ktransformers() ? "use the model's safetensors, or write KLinearMarlin"
                                    : "ktx keeps the GGUF's codes, which loses nothing");
    }
    const bool placed_on_gpu =
        rule.replace.place && (rule.replace.place->kind == DeviceSpec::Kind::Cuda ||
                               rule.replace.place->kind == DeviceSpec::Kind::Spread);
    const bool on_gpu =
        op->device == rules::OpDevice::Gpu || (op->device != rules::OpDevice::Cpu && placed_on_gpu);
    if (op->computes == Replaces::Experts && on_gpu) {
      diags_.report(severity_in(state_, Severity::Note, Severity::Warning), at, "O003",
                    for_ktransformers()
                        ? fmt::format("{} cannot be captured in a CUDA graph: start with CUDA "
                                      "graphs off",
                                      op->name)
                        : "experts on a GPU: KTransformers needs CUDA graphs off for this, ktx "
                          "does not");
    }
  }

  CompileState& state_;
  DiagSink& diags_;
  std::vector<const ir::Module*> won_;  // by the rule that is looked at
  std::set<std::string> said_;
};

}  // namespace

Status check_ops(CompileState& state) {
  OpChecker(state).run();
  return {};
}

}  // namespace ktx::passes
