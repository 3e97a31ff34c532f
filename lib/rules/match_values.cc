#include "lib/rules/match_values.h"

#include <fmt/format.h>

#include <cstdint>
#include <span>

#include "lib/rules/pattern_check.h"
#include "lib/rules/rule_keys.h"
#include "lib/support/strings.h"

namespace ktx::rules {
namespace {

// False: the pattern must not be used.
bool report_pattern(RuleValues& values, const PatternFinding& finding, const SourceLoc& at) {
  using Kind = PatternFinding::Kind;
  if (finding.kind == Kind::NotPython) {
    values.diags().error(
        at, "R011",
        fmt::format("{} is not Python's: rule files are read by its `re` module, which "
                    "refuses it or means something else",
                    printable(finding.text)));
    return false;
  }
  if (finding.kind == Kind::DoubledEscape) {
    values.diags()
        .warning(at, "R017", "a literal backslash, which no module path has")
        .help("outside of double quotes a backslash is not doubled: '\\.' or \"\\\\.\"");
  } else {
    values.diags().note(
        at, "R011",
        fmt::format("{} works here, but C++ readers of such files take it as the letter; "
                    "'^' and '$' say the same",
                    finding.text));
  }
  return true;
}

std::optional<std::pair<int32_t, int32_t>> parse_range(std::string_view text) {
  std::string_view first = text, last = text;
  size_t at = text.find(".."), width = 2;
  if (at == std::string_view::npos) {
    at = text.find('-');
    width = 1;
  }
  if (at != std::string_view::npos) {
    first = trim(text.substr(0, at));
    last = trim(text.substr(at + width));
    // -1 could be the last layer or all up to 1: only dots leave an end open.
    if (width == 1 ? first.empty() || last.empty() : first.empty() && last.empty()) {
      return std::nullopt;
    }
  }
  const auto low = first.empty() ? 0 : parse_int(first);
  const auto high = last.empty() ? INT32_MAX : parse_int(last);
  if (!low || !high || *low < 0 || *high < *low || *high > INT32_MAX) return std::nullopt;
  return std::pair(static_cast<int32_t>(*low), static_cast<int32_t>(*high));
}

}  // namespace

void take_pattern(RuleValues& values, const YamlNode& node, Match& match) {
  const std::string& pattern = match.name->text;
  if (pattern.size() > kMaxPatternBytes) {
    values.diags().error(node.loc, "R010",
                         fmt::format("a pattern of {} bytes; at most {} are read", pattern.size(),
                                     kMaxPatternBytes));
    return;
  }
  if (const auto error = Regex::check(pattern)) {
    values.diags()
        .error(place_in_scalar(node, values.diags(), error->offset > 0 ? error->offset - 1 : 0, 1),
               "R010", fmt::format("bad regular expression: {}", error->message))
        .help("patterns are those of Python's re.search; a literal dot is `\\.`");
    return;
  }
  bool usable = true;
  for (const PatternFinding& finding : check_pattern(pattern)) {
    const SourceLoc at = place_in_scalar(node, values.diags(), finding.offset, finding.length);
    usable = report_pattern(values, finding, at) && usable;
  }
  if (!usable) return;
  Result<Regex> regex = Regex::compile(pattern);
  if (regex) match.name_regex = regex.take();
}

// 3, "3..30", "3-30", "..5", "30..", or a list of these.
void take_layers(RuleValues& values, const YamlNode& node, std::vector<LayerRange>& out) {
  if (node.is_list()) {
    for (const YamlRef& item : node.items) take_layers(values, *item, out);
    if (node.items.empty()) values.wrong(node, "`layers` lists no layer");
    return;
  }
  if (node.is_scalar()) {
    for (std::string_view part : split(node.text, ',')) {
      const auto range = parse_range(trim(part));
      if (!range) {
        values.wrong(node, fmt::format("'{}' is no range of layers", printable(part)))
            .help(
                "write 3, 3..30 (both included), ..5, 30.. or a list of these; layers count from 0");
        return;
      }
      out.push_back({range->first, range->second, node.loc});
    }
    return;
  }
  values.wrong(
      node, fmt::format("`layers` must be a number, a range or a list, not {}", name(node.kind)));
}

void take_kind(RuleValues& values, const YamlNode& node, Match& match) {
  if (!values.take_text(node, "kind", match.kind_text)) return;
  match.kind = ir::kind_from_name(node.text);
  if (!match.kind) match.role = ir::role_from_name(node.text);
  if (match.kind || match.role) return;
  const std::vector<std::string> known = kind_names();
  const std::string nearest = nearest_name(node.text, known);
  Diagnostic& diag = values.wrong(
      node, fmt::format("unknown kind '{}'{}", printable(node.text), suggestion(nearest)));
  if (nearest.empty()) {
    const auto kinds = std::span(known).first(static_cast<size_t>(ir::Kind::Expert) + 1);
    diag.help(fmt::format("kinds are {}; or a role, such as head, q_proj or final_norm",
                          join(kinds, ", ")));
  } else {
    values.fix_value(diag, *match.kind_text, nearest);
  }
}

}  // namespace ktx::rules
