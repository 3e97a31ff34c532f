// Checks whether each rule reaches what its author meant. Three ways in which it does less:
//
//   R018  it takes containers, whose weights another rule puts elsewhere
//   R019  it takes modules without weights, or single experts of a stack
//   R020  it leaves out a layer between those that it takes
//
// A rule that decides no module at all: check_rules.cc.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "lib/passes/lint/rule_reach.h"
#include "lib/passes/lint/rule_report.h"
#include "lib/passes/pass.h"
#include "lib/support/strings.h"

namespace ktx::passes {
namespace {

using rules::Rule;

// "puts on cpu 32 modules", "gives op marlin to 32 modules"
std::string what_it_does(const Rule& rule, int64_t modules) {
  const std::string many = count_of(modules, "module");
  if (rule.replace.place) {
    return fmt::format("puts on {} {}", rules::to_string(*rule.replace.place), many);
  }
  if (rule.replace.op) return fmt::format("gives op {} to {}", rule.replace.op->text, many);
  return fmt::format("gives layout {} to {}", rule.replace.layout->text, many);
}

// Writes `recursive: false` as first key of the rule, in the form that the rule has.
void fix_recursion(const CompileState& state, const Rule& rule, Diagnostic& diag) {
  const std::string* text = state.diags->source(rule.loc.file);
  if (!text || rule.loc.line < 1) return;
  const auto lines = split(*text, '\n');
  if (static_cast<size_t>(rule.loc.line) > lines.size()) return;
  const std::string_view line = lines[static_cast<size_t>(rule.loc.line) - 1];
  const auto column = static_cast<size_t>(std::max(rule.loc.column, 1)) - 1;
  if (column > line.size()) return;
  const std::string_view before = trim(line.substr(0, column));
  const std::string_view spaces = line.substr(0, column);
  SourceLoc at = rule.loc;
  at.length = 0;
  if (before.ends_with('{')) {
    diag.fix(at, "recursive: false, ");
  } else if (before == "-" || before.empty()) {
    std::string indent(spaces);
    std::replace(indent.begin(), indent.end(), '-', ' ');
    diag.fix(at, "recursive: false\n" + indent);
  }
}

// A rule that says `recursive: true` has the key already.
bool names_recursion(const CompileState& state, const Rule& rule) {
  const std::string* text = state.diags->source(rule.loc.file);
  if (!text) return true;
  const auto lines = split(*text, '\n');
  int next = static_cast<int>(lines.size()) + 1;
  for (const Rule& other : state.rules.rules) {
    const bool later = other.file == rule.file && other.loc.line > rule.loc.line;
    if (later) next = std::min(next, other.loc.line);
  }
  for (int line = rule.loc.line; line < next; ++line) {
    if (lines[static_cast<size_t>(line) - 1].find("recursive") != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

void report_containers(CompileState& state, const Unreached& found, const Rule& rule) {
  const std::string taker =
      found.taker < 0 ? "`defaults` or the compiler"
                      : fmt::format("rule {} (line {})",
                                    state.rules.rules[static_cast<size_t>(found.taker)].number,
                                    state.rules.rules[static_cast<size_t>(found.taker)].loc.line);
  Diagnostic& diag = state.diags->warning(
      rule.loc, "R018",
      fmt::format("the rule {} that have no weights of their own, and no weight follows: {} "
                  "decides the {} with weights in them ({}) [rule {}]",
                  what_it_does(rule, found.modules), taker, count_of(found.below, "module"),
                  human_bytes(found.below_bytes), rule.number));
  diag.note({}, fmt::format("the modules are {}", and_more(found.first, found.modules)));
  diag.help("add `recursive: false` to the rule: it then applies to everything in them");
  if (!names_recursion(state, rule)) fix_recursion(state, rule, diag);
}

void report_nothing(CompileState& state, const Unreached& found, const Rule& rule) {
  if (found.single_experts) {
    state.diags
        ->warning(rule.loc, "R019",
                  fmt::format("the rule decides nothing: the routed experts of a layer are one "
                              "stack, and another rule decides it [rule {}]",
                              rule.number))
        .note({},
              fmt::format("it takes parts of the stack, {}", and_more(found.first, found.modules)))
        .help("match the stack: `kind: experts`, with `layers` for some of the layers");
    return;
  }
  state.diags
      ->warning(rule.loc, "R019",
                fmt::format("the rule moves nothing: its {} and all that is in {} have no weights "
                            "[rule {}]",
                            count_of(found.modules, "module"), found.modules == 1 ? "it" : "them",
                            rule.number))
      .note({}, fmt::format("the modules are {}", and_more(found.first, found.modules)))
      .help("match the modules that compute with them: `kind: linear`, `attention` or `mlp`");
}

// "3, 7 and 12"
std::string list_of(const std::set<int32_t>& layers) {
  std::string out;
  size_t i = 0;
  for (const int32_t layer : layers) {
    if (i == 5) return out + fmt::format(" and {} more", layers.size() - 5);
    out += fmt::format("{}{}", i == 0 ? "" : ", ", layer);
    ++i;
  }
  return out;
}

// Whether neither a rule nor one of the containers in its layer says where a module goes.
bool goes_its_own_way(const CompileState& state, ir::ModuleId id) {
  const int32_t layer = state.modules.modules[static_cast<size_t>(id)].layer;
  while (id >= 0) {
    const ir::Module& module = state.modules.modules[static_cast<size_t>(id)];
    if (module.layer != layer) return true;
    if (module.decision.rule >= 0) return false;
    id = module.parent;
  }
  return true;
}

// A run of layers without a rule that is shorter than the runs with one on both sides is
// taken for a slip; a longer one may be left to the compiler on purpose.
bool is_slip(int32_t layer, const std::set<int32_t>& open, const std::map<int32_t, int>& ruled) {
  int32_t first = layer, last = layer;
  while (open.count(first - 1) > 0) --first;
  while (open.count(last + 1) > 0) ++last;
  const int32_t length = last - first + 1;
  for (int32_t i = 1; i <= length + 1; ++i) {
    if (ruled.count(first - i) == 0 || ruled.count(last + i) == 0) return false;
  }
  return true;
}

// Layers without a rule between layers with one, for modules of the same name.
void report_gaps(CompileState& state) {
  struct Layers {
    std::map<int32_t, int> ruled;  // layer -> its rule
    std::set<int32_t> open;
    std::string first_open;
  };
  std::map<std::string, Layers> by_name;
  for (size_t id = 0; id < state.modules.modules.size(); ++id) {
    const ir::Module& module = state.modules.modules[id];
    if (module.layer < 0 || module.params.empty()) continue;
    Layers& layers = by_name[without_layers(module.path)];
    if (!goes_its_own_way(state, static_cast<ir::ModuleId>(id))) {
      layers.ruled.emplace(module.layer, module.decision.rule);
    } else if (layers.open.insert(module.layer).second && layers.first_open.empty()) {
      layers.first_open = module.path;
    }
  }
  std::set<int32_t> gaps;
  std::string example;
  int before = -1;
  for (const auto& [name, layers] : by_name) {
    for (const int32_t layer : layers.open) {
      if (!is_slip(layer, layers.open, layers.ruled)) continue;
      gaps.insert(layer);
      if (example.empty()) example = layers.first_open;
      if (before < 0) before = std::prev(layers.ruled.lower_bound(layer))->second;
    }
  }
  if (gaps.empty()) return;
  SourceLoc loc;
  if (before >= 0) loc = state.rules.rules[static_cast<size_t>(before)].loc;
  state.diags
      ->warning(loc, "R020",
                fmt::format("layer{} {} {} modules without a rule, though layers before and after "
                            "have one for them: {} for one",
                            gaps.size() == 1 ? "" : "s", list_of(gaps),
                            gaps.size() == 1 ? "has" : "have", example))
      .help("ranges include both ends: 0..14 is followed by 15..; --list-unruled names them");
}

}  // namespace

Status check_reach(CompileState& state) {
  if (state.rules.empty() || state.wrong_model) return {};
  if (state.check.dialect == rules::Dialect::KTransformers) return {};
  for (const Unreached& found : unreached_rules(state)) {
    const Rule& rule = state.rules.rules[static_cast<size_t>(found.rule)];
    if (found.below > 0) {
      report_containers(state, found, rule);
    } else {
      report_nothing(state, found, rule);
    }
  }
  report_gaps(state);
  return {};
}

}  // namespace ktx::passes
