#include "lib/passes/lint/rule_report.h"

#include <fmt/format.h>

#include "lib/support/strings.h"

namespace ktx::passes {

std::string and_more(std::string_view first, int64_t count) {
  const std::string_view shown = first.empty() ? "the root" : first;
  return count > 1 ? fmt::format("{} and {} more", shown, count - 1) : std::string(shown);
}

std::string count_of(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::vector<const ir::Module*> modules_of(const CompileState& state, int rule) {
  std::vector<const ir::Module*> modules;
  for (size_t id = 0; id < state.modules.modules.size(); ++id) {
    if (state.matched.rule_of_module[id] == rule) modules.push_back(&state.modules.modules[id]);
  }
  return modules;
}

Severity severity_in(const CompileState& state, Severity ktx, Severity ktransformers) {
  return state.check.dialect == rules::Dialect::KTransformers ? ktransformers : ktx;
}

bool is_torch_linear(const ir::Module& module) {
  return ir::has_class(module, "torch.nn.Linear");
}

SourceLoc loc_of(const rules::Rule& rule) {
  if (rule.replace.class_name) return rule.replace.class_name->loc;
  if (rule.replace.op) return rule.replace.op->loc;
  if (rule.replace.device) return rule.replace.device->loc;
  return rule.loc;
}

std::string without_layers(std::string_view path) {
  std::string out;
  for (std::string_view part : split(path, '.')) {
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    if (!out.empty()) out += '.';
    out += number ? std::string_view("*") : part;
  }
  return out;
}

}  // namespace ktx::passes
