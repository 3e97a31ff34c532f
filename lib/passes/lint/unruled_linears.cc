#include "lib/passes/lint/unruled_linears.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lib/passes/lint/rule_report.h"
#include "lib/support/strings.h"

namespace ktx::passes {

void report_linears_without_rule(const CompileState& state) {
  const bool ktransformers =
      std::any_of(state.rules.files.begin(), state.rules.files.end(),
                  [](const rules::RuleFile& file) { return file.names_ktransformers; });
  if (!ktransformers) return;
  struct Group {
    int64_t count = 0;
    uint64_t bytes = 0;
  };
  std::map<std::string, Group> groups;
  uint64_t bytes = 0;
  int64_t count = 0;
  const auto& modules = state.modules.modules;
  for (size_t id = 0; id < modules.size(); ++id) {
    const ir::Module& module = modules[id];
    if (state.matched.rule_of_module[id] != rules::kNoRule || !is_torch_linear(module)) continue;
    // KTransformers needs it dense; every file leaves it out on purpose.
    if (module.role == ir::Role::KvBProj) continue;
    Group& group = groups[without_layers(module.path)];
    ++group.count;
    ++count;
    for (const ir::Param& param : module.params) {
      const auto row = row_bytes(param.dtype, param.cols);
      const auto size = static_cast<uint64_t>(row.value_or(0) * param.rows * param.matrices);
      group.bytes += size;
      bytes += size;
    }
  }
  if (count == 0) return;
  std::vector<std::pair<std::string, Group>> sorted(groups.begin(), groups.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  const bool dense = state.check.dialect == rules::Dialect::KTransformers;
  // As a note, where most of them are is enough.
  const size_t shown = std::min<size_t>(sorted.size(), dense ? 3 : 1);
  std::string examples;
  for (size_t i = 0; i < shown; ++i) {
    examples += fmt::format("{}{} ({}, {})", i ? ", " : "", sorted[i].first, sorted[i].second.count,
                            human_bytes(sorted[i].second.bytes));
  }
  if (sorted.size() > shown) {
    examples +=
        fmt::format(" and {}", count_of(static_cast<int64_t>(sorted.size() - shown), "more kind"));
  }
  (*state.diags)
      .report(severity_in(state, Severity::Note, Severity::Warning),
              {state.rules.files.front().path}, "R005",
              fmt::format("{} ({}) {} no rule and {}: {}", count_of(count, "linear layer"),
                          human_bytes(bytes), count == 1 ? "has" : "have",
                          dense ? count == 1 ? "stays dense in 16 bits" : "stay dense in 16 bits"
                          : count == 1 ? "is placed by the compiler"
                                       : "are placed by the compiler",
                          examples))
      .help("--list-unruled names them");
}

}  // namespace ktx::passes
