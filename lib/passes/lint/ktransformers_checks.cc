#include "lib/passes/lint/ktransformers_checks.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "lib/passes/lint/rule_report.h"

namespace ktx::passes {
namespace {

using ir::Role;
using rules::DeviceSpec;
using rules::Mode;
using rules::Rule;

void not_theirs(DiagSink& diags, const SourceLoc& loc, std::string_view what,
                std::string_view instead) {
  diags.error(loc, "Y002", fmt::format("{} is ktx's own; KTransformers does not know it", what))
      .help(std::string(instead))
      .in_group("own words of " + loc.file);
}

std::vector<Mode> modes_of(const Rule& rule) {
  std::vector<Mode> modes;
  if (rule.replace.operator_info) modes.push_back(rule.replace.operator_info->mode);
  if (rule.replace.op_info) modes.push_back(rule.replace.op_info->mode);
  return modes;
}
bool op_has_mode(const Rule& rule) {
  return rule.replace.op_info && rule.replace.op_info->mode != Mode::Any;
}
SourceLoc mode_place(const Rule& rule) {
  return op_has_mode(rule) ? rule.replace.op->loc : rule.replace.class_name->loc;
}
std::string_view mode_name(const Rule& rule) {
  return op_has_mode(rule) ? rule.replace.op_info->name : rule.replace.operator_info->short_name();
}

// Operators of both of KTransformers' run modes in one set of rules.
void check_one_mode(CompileState& state) {
  const Rule* plain = nullptr;
  const Rule* serve = nullptr;
  for (const Rule& rule : state.rules.rules) {
    for (const Mode mode : modes_of(rule)) {
      if (mode == Mode::Plain && !plain) plain = &rule;
      if (mode == Mode::Serve && !serve) serve = &rule;
    }
  }
  if (!plain || !serve) return;
  const bool serve_later =
      std::pair(serve->file, serve->loc.line) > std::pair(plain->file, plain->loc.line);
  const Rule& odd = serve_later ? *serve : *plain;
  const Rule& other = serve_later ? *plain : *serve;
  Diagnostic& diag =
      state.diags->report(severity_in(state, Severity::Note), mode_place(odd), "O001",
                          fmt::format("{} belongs to KTransformers' {} mode, {} to its {} mode",
                                      mode_name(odd), serve_later ? "serve" : "single-stream",
                                      mode_name(other), serve_later ? "single-stream" : "serve"));
  diag.note(mode_place(other), "the operator of the other mode");
  diag.help(state.check.dialect == rules::Dialect::KTransformers
                ? "one rule file serves one mode: take all operators of balance_serve, or none"
                : "ktx has one form for both; KTransformers would fail at the first token");
}

// A block of one mode that calls experts of the other.
void check_block_calls(CompileState& state) {
  const auto& modules = state.modules.modules;
  for (size_t id = 0; id < modules.size(); ++id) {
    if (modules[id].role != Role::Experts || modules[id].parent < 0) continue;
    const int experts = state.matched.rule_of_module[id];
    const int block = state.matched.rule_of_module[static_cast<size_t>(modules[id].parent)];
    if (experts < 0 || block < 0) continue;
    const Rule& a = state.rules.rules[static_cast<size_t>(block)];
    const Rule& b = state.rules.rules[static_cast<size_t>(experts)];
    if (!a.replace.operator_info || !b.replace.operator_info) continue;
    const Mode caller = a.replace.operator_info->mode;
    const Mode callee = b.replace.operator_info->mode;
    if (caller == Mode::Any || callee == Mode::Any || caller == callee) continue;
    (*state.diags)
        .report(severity_in(state, Severity::Note), b.replace.class_name->loc, "O002",
                fmt::format("{} calls its experts with {} arguments, {} takes {}: {}",
                            a.replace.operator_info->short_name(), caller == Mode::Plain ? 3 : 5,
                            b.replace.operator_info->short_name(), callee == Mode::Plain ? 3 : 5,
                            modules[id].path))
        .note(a.replace.class_name->loc, "the block that calls");
    return;
  }
}

}  // namespace

void check_form_of_files(CompileState& state) {
  for (const rules::RuleFile& file : state.rules.files) {
    if (!file.map_form) continue;
    not_theirs(*state.diags, *file.map_form, "a file that is a map",
               "write the list of rules alone");
  }
}

void check_own_words(CompileState& state, const Rule& rule) {
  DiagSink& diags = *state.diags;
  const rules::Match& match = rule.match;
  const rules::Replace& replace = rule.replace;
  if (match.kind_text) not_theirs(diags, match.kind_text->loc, "`kind`", "write `name` or `class`");
  if (!match.layers.empty()) {
    not_theirs(diags, match.layers.front().loc, "`layers`",
               "write the numbers in `name`, such as \"^model\\\\.layers\\\\.([0-9])\\\\.\"");
  }
  if (replace.layout) not_theirs(diags, replace.layout->loc, "`layout`", "remove it");
  if (!replace.experts.empty()) {
    not_theirs(diags, replace.experts.front().device.loc, "`experts`",
               "place whole stacks of experts, by layers");
  }
  if (replace.deferred) {
    not_theirs(diags, replace.deferred->loc, "`deferred`",
               "remove it; KTransformers has an option for it");
  }
  if (replace.lossy) not_theirs(diags, replace.lossy->loc, "`lossy`", "remove it");
  if (replace.op && !replace.kwarg("generate_op")) {
    not_theirs(diags, replace.op->loc, "`op`", "write `generate_op` in `kwargs`");
  }
  const bool in_kwargs = replace.kwarg("generate_device") || replace.kwarg("device");
  if (replace.device && !in_kwargs) {
    not_theirs(diags, replace.device->loc, "`device`", "write `generate_device` in `kwargs`");
  } else if (replace.place && (replace.place->kind == DeviceSpec::Kind::Auto ||
                               replace.place->kind == DeviceSpec::Kind::Spread)) {
    not_theirs(diags, replace.device->loc, fmt::format("device '{}'", replace.device->text),
               "name one device in each rule: cpu, cuda:0 and so on");
  }
}

void check_run_modes(CompileState& state) {
  check_one_mode(state);
  check_block_calls(state);
}

}  // namespace ktx::passes
