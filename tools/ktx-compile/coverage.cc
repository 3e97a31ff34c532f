#include "tools/ktx-compile/coverage.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lib/passes/cost/module_bytes.h"
#include "lib/support/strings.h"

namespace ktx::tools {
namespace {

using rules::MatchResult;
using rules::Rule;

std::string device_of(const Rule& rule) {
  return rule.replace.place ? rules::to_string(*rule.replace.place) : "-";
}
std::string op_of(const Rule& rule) {
  if (rule.replace.op) return printable(rule.replace.op->text, 24);
  return rule.replace.operator_info ? std::string(rule.replace.operator_info->short_name())
                                    : "default";
}

}  // namespace

uint64_t bytes_of_rule(const passes::CompileState& state, int rule) {
  uint64_t bytes = 0;
  for (const ir::Module& module : state.modules.modules) {
    if (module.decision.rule == rule) bytes += passes::source_bytes(module);
  }
  return bytes;
}

std::string coverage_table(const passes::CompileState& state) {
  const MatchResult& matched = state.matched;
  std::string out = fmt::format("{} modules, {} visited, {} without a rule\n", matched.modules,
                                matched.visited, matched.without_rule);
  for (size_t file = 0; file < state.rules.files.size(); ++file) {
    out += fmt::format("{}:\n{:>5} {:>5} {:>8} {:>8} {:>11}  {:<9} {:<24} {}\n",
                       state.rules.files[file].path, "rule", "line", "wins", "loses", "bytes",
                       "device", "op", "verdict");
    for (size_t i = 0; i < state.rules.rules.size(); ++i) {
      const Rule& rule = state.rules.rules[i];
      if (rule.file != static_cast<int>(file)) continue;
      const rules::RuleOutcome& outcome = matched.outcomes[i];
      const std::string verdict =
          outcome.verdict == rules::Verdict::Wins ? "" : std::string(rules::name(outcome.verdict));
      std::string row = fmt::format("{:>5} {:>5} {:>8} {:>8} {:>11}  {:<9} {:<24} {}", rule.number,
                                    rule.loc.line, outcome.won, outcome.lost,
                                    human_bytes(bytes_of_rule(state, static_cast<int>(i))),
                                    device_of(rule), op_of(rule), verdict);
      out += fmt::format("{}\n", std::string_view(row).substr(0, row.find_last_not_of(' ') + 1));
    }
  }
  return out;
}

std::string coverage_json(const passes::CompileState& state) {
  using Json = nlohmann::ordered_json;
  const MatchResult& matched = state.matched;
  Json list = Json::array();
  for (size_t i = 0; i < state.rules.rules.size(); ++i) {
    const Rule& rule = state.rules.rules[i];
    const rules::RuleOutcome& outcome = matched.outcomes[i];
    list.push_back({{"file", state.rules.file_of(rule).path},
                    {"rule", rule.number},
                    {"line", rule.loc.line},
                    {"id", rule.id ? rule.id->text : ""},
                    {"wins", outcome.won},
                    {"loses", outcome.lost},
                    {"verdict", rules::name(outcome.verdict)},
                    {"bytes", bytes_of_rule(state, static_cast<int>(i))},
                    {"device", device_of(rule)},
                    {"op", op_of(rule)}});
  }
  const Json json = {{"modules", matched.modules},
                     {"visited", matched.visited},
                     {"without_rule", matched.without_rule},
                     {"rules", list}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string unruled_list(const passes::CompileState& state) {
  std::string out;
  for (size_t id = 0; id < state.modules.modules.size(); ++id) {
    if (state.matched.rule_of_module[id] != rules::kNoRule) continue;
    const ir::Module& module = state.modules.modules[id];
    const uint64_t bytes = passes::source_bytes(module);
    out += fmt::format("{}\t{}\t{}\t{}\n", module.path.empty() ? "(root)" : module.path,
                       module.class_name, module.decision.device, bytes ? human_bytes(bytes) : "-");
  }
  return out;
}

}  // namespace ktx::tools
