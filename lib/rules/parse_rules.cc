// A rule file's tree -> rules, every mistake reported at its place.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <span>

#include "lib/formats/dtype.h"
#include "lib/rules/pattern_check.h"
#include "lib/rules/rule.h"
#include "lib/rules/rule_keys.h"
#include "lib/rules/yaml_hints.h"
#include "lib/rules/yaml_tree.h"
#include "lib/support/mapped_file.h"
#include "lib/support/strings.h"

namespace ktx::rules {
namespace {

constexpr size_t kMaxFileBytes = 1u << 20;

std::optional<int64_t> parse_int(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

// The words of YAML 1.1, as PyYAML reads them.
std::optional<bool> parse_bool(std::string_view text) {
  for (std::string_view yes : {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"}) {
    if (text == yes) return true;
  }
  for (std::string_view no : {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"}) {
    if (text == no) return false;
  }
  return std::nullopt;
}

class RuleParser {
 public:
  RuleParser(RuleSet& set, std::string path, DiagSink& diags)
      : set_(set), path_(std::move(path)), diags_(diags) {
    file_.path = path_;
  }

  void run(const std::string& text) {
    const YamlRef root = parse_yaml(text, path_, diags_);
    std::vector<Rule> rules;
    if (root) parse_root(*root, rules);
    set_.files.push_back(std::move(file_));
    set_.rules.insert(set_.rules.begin(), std::make_move_iterator(rules.begin()),
                      std::make_move_iterator(rules.end()));
  }

 private:
  using Field = std::function<void(const YamlNode& key, const YamlNode& value)>;

  Diagnostic& wrong(const YamlNode& node, std::string message) {
    return diags_.error(node.loc, "Y003", std::move(message));
  }

  void parse_root(const YamlNode& root, std::vector<Rule>& rules) {
    if (root.is_list() && !root.items.empty()) return parse_list(root, rules);
    if (root.is_map() && (root.find("match") || root.find("replace"))) {
      wrong(root, "a rule without its list; every rule begins with a dash")
          .fix({path_, root.loc.line, root.loc.column, 0}, "- ")
          .help("write `- match:` and indent what follows by two more spaces");
      return;
    }
    if (!root.is_map()) {
      const bool empty = root.is_null() || root.is_list();
      const char* what = empty ? "the file holds no rules" : "expected a list of rules";
      diags_.error(
          {path_, std::max(root.loc.line, 1), std::max(root.loc.column, 1), 1}, "Y003",
          fmt::format("{}; a rule file is a list of entries with `match` and `replace`", what));
      return;
    }
    const YamlNode* list = nullptr;
    if (!root.fields.empty()) file_.map_form = root.fields[0].first->loc;
    parse_map(root, Level::File,
              {{"version", [&](const auto&, const auto& n) { parse_version(n); }},
               {"defaults", [&](const auto&, const auto& n) { parse_defaults(n); }},
               {"rules", [&](const auto&, const auto& n) { list = &n; }}});
    if (!list) {
      wrong(root, "the file has no `rules`");
    } else if (!list->is_list()) {
      wrong(*list, fmt::format("`rules` must be a list, not {}", name(list->kind)));
    } else {
      parse_list(*list, rules);
    }
  }

  void parse_list(const YamlNode& list, std::vector<Rule>& rules) {
    int& number = file_.rules;
    for (const YamlRef& item : list.items) {
      ++number;
      if (set_.rules.size() + rules.size() >= kMaxRules) {
        wrong(*item, fmt::format("more than {} rules; use layer ranges and kinds to say the same "
                                 "with fewer",
                                 kMaxRules));
        return;
      }
      parse_rule(*item, number, rules);
    }
  }

  // Calls the handler of each key; an unknown key is an error with what was meant.
  void parse_map(const YamlNode& node, Level level, const std::map<std::string, Field>& fields) {
    if (!node.is_map()) {
      const bool flat = (level == Level::Match && match_is_empty_) ||
                        (level == Level::Replace && replace_is_empty_);
      if (node.is_null() && flat) return;  // its keys are reported where they stand
      Diagnostic& diag =
          wrong(node, fmt::format("{} must be a map, not {}", describe(level), name(node.kind)));
      if (node.is_null()) diag.help("its entries are indented by two more spaces than itself");
      if (node.is_scalar()) suggest_map(node, level, diag);
      return;
    }
    for (const auto& [key, value] : node.fields) {
      const auto field = key->is_scalar() ? fields.find(key->text) : fields.end();
      if (field != fields.end()) {
        field->second(*key, *value);
      } else {
        unknown_key(*key, level);
      }
    }
  }

  // A text where entries belong: a colon without its space, or the value alone.
  void suggest_map(const YamlNode& node, Level level, Diagnostic& diag) {
    if (const size_t key = key_without_space(node.text); key > 0 && !node.quoted) {
      SourceLoc after = node.loc;
      after.column += static_cast<int>(key) + 1;
      after.length = 0;
      diag.help("a colon needs a space after it").fix(after, " ");
    } else if (level == Level::Match) {
      diag.help(fmt::format("write `match: {{name: {}}}`", source_of(node)));
    } else if (level == Level::Replace) {
      const bool device = parse_device(node.text).has_value();
      diag.help(
          fmt::format("write `replace: {{{}: {}}}`", device ? "device" : "class", source_of(node)));
    }
  }

  // A scalar as it is written.
  std::string source_of(const YamlNode& node) const {
    const std::string* text = diags_.source(path_);
    const auto lines = text ? split(*text, '\n') : std::vector<std::string_view>();
    const auto line = static_cast<size_t>(node.loc.line);
    if (line == 0 || line > lines.size()) return printable(node.text);
    return printable(lines[line - 1].substr(
        std::min(static_cast<size_t>(node.loc.column) - 1, lines[line - 1].size()),
        static_cast<size_t>(node.loc.length)));
  }

  // A key of `match` or `replace` that stands beside it, where it should be indented.
  bool report_flat_key(const YamlNode& key, Level level) {
    if (level != Level::Rule) return false;
    const auto known_in = [&](Level other) {
      const std::vector<std::string> names = key_names(other);
      return std::find(names.begin(), names.end(), key.text) != names.end();
    };
    std::optional<Level> home;
    if (replace_is_empty_ && known_in(Level::Replace)) home = Level::Replace;
    // `class` may be of either; the first is that of `match`.
    const bool of_match = !home || key.loc.line < replace_line_;
    if (match_is_empty_ && of_match && known_in(Level::Match)) home = Level::Match;
    if (!home) return false;
    SourceLoc before = key.loc;
    before.length = 0;
    diags_
        .error(key.loc, "Y002",
               fmt::format("'{}' belongs into {}: indent it by two more spaces", key.text,
                           describe(*home)))
        .fix(before, "  ");
    return true;
  }

  void unknown_key(const YamlNode& key, Level level) {
    if (key.is_scalar() && report_flat_key(key, level)) return;
    const std::string text = key.is_scalar() ? key.text : "";
    const std::vector<std::string> here = key_names(level);
    const std::string nearest = nearest_name(text, here);
    Diagnostic& diag = diags_.error(
        key.loc, "Y002",
        fmt::format("unknown key '{}' in {}{}", printable(text), describe(level),
                    nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
    if (!nearest.empty()) {
      diag.fix(key.loc, nearest);
    } else if (const std::optional<Level> home = level_of_key(text, level)) {
      diag.help(fmt::format("'{}' belongs into {}: change its indentation", text, describe(*home)));
    } else {
      diag.help(fmt::format("keys here are {}", join(here, ", ")));
    }
  }

  bool take_text(const YamlNode& node, std::string_view key, std::optional<Located>& out) {
    if (!node.is_scalar()) {
      wrong(node, fmt::format("`{}` must be a text, not {}", key, name(node.kind)));
      return false;
    }
    out = Located{node.text, node.loc};
    return true;
  }

  void take_bool(const YamlNode& node, std::string_view key, bool& out) {
    const auto value = node.is_scalar() && !node.quoted ? parse_bool(node.text) : std::nullopt;
    if (value) {
      out = *value;
      return;
    }
    Diagnostic& diag = wrong(node, fmt::format("`{}` must be true or false", key));
    if (node.is_scalar()) {
      if (const auto meant = parse_bool(node.text)) diag.fix(node.loc, *meant ? "true" : "false");
    }
  }

  void parse_version(const YamlNode& node) {
    if (node.is_scalar() && node.text == "1") return;
    wrong(node, fmt::format("version '{}' of the rule language is not known; this ktx reads 1",
                            printable(node.text)));
  }

  void parse_defaults(const YamlNode& node) {
    std::optional<Located> lossy;
    Defaults& defaults = file_.defaults;
    parse_map(node, Level::Defaults,
              {{"device",
                [&](const auto&, const auto& n) {
                  take_device(n, "device", defaults.device, defaults.place);
                }},
               {"layout", [&](const auto&, const auto& n) { take_layout(n, defaults.layout); }},
               {"lossy", [&](const auto&, const auto& n) {
                  take_lossy(n, lossy, defaults.lossy_allowed);
                }}});
  }

  void take_device(const YamlNode& node, std::string_view key, std::optional<Located>& text,
                   std::optional<DeviceSpec>& place) {
    if (node.is_list()) return take_device_list(node, key, text, place);
    if (!take_text(node, key, text)) return;
    place = parse_device(node.text);
    if (!place) bad_device(*text);
  }

  // [cuda:0, cuda:1]: layers spread over these.
  void take_device_list(const YamlNode& node, std::string_view key, std::optional<Located>& text,
                        std::optional<DeviceSpec>& place) {
    DeviceSpec spread;
    spread.kind = DeviceSpec::Kind::Spread;
    for (const YamlRef& item : node.items) {
      const auto one = item->is_scalar() ? parse_device(item->text) : std::nullopt;
      if (!one) {
        bad_device({item->text, item->loc});
        return;
      }
      const bool again = !one->gpus.empty() && std::find(spread.gpus.begin(), spread.gpus.end(),
                                                         one->gpus[0]) != spread.gpus.end();
      if (one->kind != DeviceSpec::Kind::Cuda || again) {
        wrong(*item, fmt::format("a list in `{}` spreads layers over GPUs: each of them once, and "
                                 "no other device",
                                 key));
        return;
      }
      spread.gpus.push_back(one->gpus[0]);
    }
    if (spread.gpus.empty()) {
      wrong(node, fmt::format("`{}` lists no device", key));
      return;
    }
    if (spread.gpus.size() == 1) spread.kind = DeviceSpec::Kind::Cuda;
    text = Located{to_string(spread), node.loc};
    place = spread;
  }

  void bad_device(const Located& value) {
    const std::string nearest = nearest_device(value.text);
    Diagnostic& diag = diags_.error(
        value.loc, "D004",
        fmt::format("unknown device '{}'{}", printable(value.text),
                    nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
    if (nearest.empty()) {
      diag.help(
          fmt::format("devices are cpu, cuda, cuda:0 to cuda:{}, cuda:0-3, cuda:*, auto", kMaxGpu));
    } else {
      fix_value(diag, value, nearest);
    }
  }

  // Replaces a scalar's text and keeps its quotes.
  void fix_value(Diagnostic& diag, const Located& value, const std::string& text) {
    const std::string* source = diags_.source(path_);
    const bool quoted = value.loc.length == static_cast<int>(value.text.size()) + 2;
    diag.fix(value.loc, source && quoted ? fmt::format("\"{}\"", text) : text);
  }

  void take_layout(const YamlNode& node, std::optional<Located>& out) {
    if (!take_text(node, "layout", out)) return;
    const std::vector<std::string> known = layout_names();
    if (std::find(known.begin(), known.end(), node.text) != known.end()) return;
    const std::string nearest = nearest_name(node.text, known);
    Diagnostic& diag = diags_.error(
        node.loc, "O004",
        fmt::format("unknown layout '{}'{}", printable(node.text),
                    nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
    if (find_op(node.text)) {
      diag.help(fmt::format("'{0}' is an op: write `op: {0}`", node.text));
    } else if (nearest.empty()) {
      diag.help(fmt::format("layouts are {}", join(known, ", ")));
    } else {
      fix_value(diag, *out, nearest);
    }
    out.reset();
  }

  void take_lossy(const YamlNode& node, std::optional<Located>& out, bool& allowed) {
    if (!take_text(node, "lossy", out)) return;
    const auto truth = parse_bool(node.text);
    if (node.text == "allow" || (truth && *truth)) {
      allowed = true;
    } else if (node.text == "deny" || truth) {
      allowed = false;
    } else {
      wrong(node, fmt::format("`lossy` is allow or deny, not '{}'", printable(node.text)));
    }
  }

  void take_op(const YamlNode& node, std::string_view key, std::optional<Located>& text,
               const OpInfo*& info) {
    if (!take_text(node, key, text)) return;
    info = resolve_op(*text);
  }

  const OpInfo* resolve_op(const Located& value) {
    if (const OpInfo* op = find_op(value.text)) return op;
    if (const OpInfo* op = find_op(new_name_of(value.text))) {
      Diagnostic& diag = diags_.note(value.loc, "R007",
                                     fmt::format("'{}' is now called '{}'", value.text, op->name));
      fix_value(diag, value, std::string(op->name));
      return op;
    }
    const std::string nearest = nearest_name(value.text, op_names());
    Diagnostic& diag = diags_.error(
        value.loc, "O004",
        fmt::format("unknown op '{}'{}", printable(value.text),
                    nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
    if (nearest.empty()) {
      diag.help(fmt::format("ops are {}", join(op_names(), ", ")));
    } else {
      fix_value(diag, value, nearest);
    }
    return nullptr;
  }

  void parse_match(const YamlNode& node, Match& match) {
    parse_map(
        node, Level::Match,
        {{"name",
          [&](const auto&, const auto& n) {
            if (take_text(n, "name", match.name)) compile_pattern(n, match);
          }},
         {"class", [&](const auto&, const auto& n) { take_text(n, "class", match.class_name); }},
         {"layers", [&](const auto&, const auto& n) { parse_layers(n, match.layers); }},
         {"kind", [&](const auto&, const auto& n) { parse_kind(n, match); }}});
    if (node.is_map() && node.fields.empty()) {
      wrong(node, "`match` selects nothing; give it a `name`, `class`, `layers` or `kind`");
    }
    if (match.class_name) {
      // Checkpoints with their own code: only the last part is the same everywhere.
      std::string& text = match.class_name->text;
      if (text.starts_with("transformers_modules.")) text = std::string(last_part(text));
      if (text.starts_with("ktransformers.")) file_.names_ktransformers = true;
    }
  }

  void compile_pattern(const YamlNode& node, Match& match) {
    const std::string& pattern = match.name->text;
    if (pattern.size() > kMaxPatternBytes) {
      diags_.error(node.loc, "R010",
                   fmt::format("a pattern of {} bytes; at most {} are read", pattern.size(),
                               kMaxPatternBytes));
      return;
    }
    if (const auto error = Regex::check(pattern)) {
      diags_
          .error(place_in_scalar(node, diags_, error->offset > 0 ? error->offset - 1 : 0, 1),
                 "R010", fmt::format("bad regular expression: {}", error->message))
          .help("patterns are those of Python's re.search; a literal dot is `\\.`");
      return;
    }
    bool usable = true;
    for (const PatternFinding& finding : check_pattern(pattern)) {
      const SourceLoc at = place_in_scalar(node, diags_, finding.offset, finding.length);
      usable = report_pattern(finding, at) && usable;
    }
    if (!usable) return;
    Result<Regex> regex = Regex::compile(pattern);
    if (regex) match.name_regex = regex.take();
  }

  // False: the pattern must not be used.
  bool report_pattern(const PatternFinding& finding, const SourceLoc& at) {
    using Kind = PatternFinding::Kind;
    if (finding.kind == Kind::NotPython) {
      diags_.error(at, "R011",
                   fmt::format("{} is not Python's: rule files are read by its `re` module, which "
                               "refuses it or means something else",
                               printable(finding.text)));
      return false;
    }
    if (finding.kind == Kind::DoubledEscape) {
      diags_.warning(at, "R017", "a literal backslash, which no module path has")
          .help("outside of double quotes a backslash is not doubled: '\\.' or \"\\\\.\"");
    } else {
      diags_.note(at, "R011",
                  fmt::format("{} works here, but C++ readers of such files take it as the letter; "
                              "'^' and '$' say the same",
                              finding.text));
    }
    return true;
  }

  // 3, "3..30", "3-30", "..5", "30..", or a list of these.
  void parse_layers(const YamlNode& node, std::vector<LayerRange>& out) {
    if (node.is_list()) {
      for (const YamlRef& item : node.items) parse_layers(*item, out);
      if (node.items.empty()) wrong(node, "`layers` lists no layer");
      return;
    }
    if (node.is_scalar()) {
      for (std::string_view part : split(node.text, ',')) {
        const auto range = parse_range(trim(part));
        if (!range) {
          wrong(node, fmt::format("'{}' is no range of layers", printable(part)))
              .help("write 3, 3..30 (both included), 30.. or a list of these");
          return;
        }
        out.push_back({range->first, range->second, node.loc});
      }
      return;
    }
    wrong(node,
          fmt::format("`layers` must be a number, a range or a list, not {}", name(node.kind)));
  }

  static std::optional<std::pair<int32_t, int32_t>> parse_range(std::string_view text) {
    std::string_view first = text, last = text;
    size_t at = text.find(".."), width = 2;
    if (at == std::string_view::npos) {
      at = text.find('-');
      width = 1;
    }
    if (at != std::string_view::npos) {
      first = trim(text.substr(0, at));
      last = trim(text.substr(at + width));
      if (first.empty() && last.empty()) return std::nullopt;
    }
    const auto low = first.empty() ? 0 : parse_int(first);
    const auto high = last.empty() ? INT32_MAX : parse_int(last);
    if (!low || !high || *low < 0 || *high < *low || *high > INT32_MAX) return std::nullopt;
    return std::pair(static_cast<int32_t>(*low), static_cast<int32_t>(*high));
  }

  void parse_kind(const YamlNode& node, Match& match) {
    if (!take_text(node, "kind", match.kind_text)) return;
    match.kind = ir::kind_from_name(node.text);
    if (!match.kind) match.role = ir::role_from_name(node.text);
    if (match.kind || match.role) return;
    const std::vector<std::string> known = kind_names();
    const std::string nearest = nearest_name(node.text, known);
    Diagnostic& diag = wrong(
        node, fmt::format("unknown kind '{}'{}", printable(node.text),
                          nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
    if (nearest.empty()) {
      const auto kinds = std::span(known).first(static_cast<size_t>(ir::Kind::Expert) + 1);
      diag.help(fmt::format("kinds are {}; or a role, such as head, q_proj or final_norm",
                            join(kinds, ", ")));
    } else {
      fix_value(diag, *match.kind_text, nearest);
    }
  }

  void parse_class(const YamlNode& node, Replace& replace) {
    if (!take_text(node, "class", replace.class_name)) return;
    const std::string& text = node.text;
    if (text.starts_with("ktransformers.")) file_.names_ktransformers = true;
    if (text == "default") return;
    replace.operator_info = find_operator(text);
    if (replace.operator_info) return;
    if (const OperatorInfo* now = find_operator(new_name_of(text))) {
      replace.operator_info = now;
      Diagnostic& diag =
          diags_.note(node.loc, "R007",
                      fmt::format("'{}' is now called '{}'", printable(text), now->short_name()));
      fix_value(diag, *replace.class_name, fmt::format("ktransformers.operators.{}", now->path));
      return;
    }
    const bool dotted = text.find('.') != std::string::npos;
    // The class may be right and only its module wrong.
    const OperatorInfo* same_class = find_operator(last_part(text));
    const std::string nearest = same_class
                                    ? fmt::format("ktransformers.operators.{}", same_class->path)
                                    : nearest_name(text, operator_names(dotted));
    Diagnostic& diag = diags_.error(
        node.loc, "R007",
        fmt::format("unknown operator class '{}'{}", printable(text),
                    nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
    if (nearest.empty()) {
      diag.help("operator classes are listed in docs/rules.md; `default` keeps the module");
    } else {
      fix_value(diag, *replace.class_name, nearest);
    }
  }

  void parse_kwargs(const YamlNode& key, const YamlNode& node, Replace& replace) {
    if (node.is_null()) {
      wrong(key,
            "`kwargs` is empty, which KTransformers cannot read; remove the key or give it "
            "entries");
      return;
    }
    if (!node.is_map()) {
      wrong(node, fmt::format("`kwargs` must be a map, not {}", name(node.kind)));
      return;
    }
    replace.has_kwargs = true;
    for (const auto& [key, value] : node.fields) parse_kwarg(*key, *value, replace);
  }

  void parse_kwarg(const YamlNode& key, const YamlNode& value, Replace& replace) {
    Kwarg kwarg;
    kwarg.key = {key.is_scalar() ? key.text : "", key.loc};
    kwarg.info = find_kwarg(kwarg.key.text);
    if (!kwarg.info) kwarg.info = find_kwarg(new_name_of(kwarg.key.text));
    if (!kwarg.info) return unknown_kwarg(kwarg.key);
    if (kwarg.info->name != kwarg.key.text) {
      diags_
          .note(
              key.loc, "R007",
              fmt::format("'{}' is spelt '{}' in KTransformers", kwarg.key.text, kwarg.info->name))
          .fix(key.loc, std::string(kwarg.info->name));
    }
    kwarg.value = {value.is_scalar() ? value.text : "", value.loc};
    kwarg.is_null = value.is_null() || (value.is_scalar() && value.text == "None");
    if (!parse_value(value, kwarg, replace)) return;
    replace.kwargs.push_back(std::move(kwarg));
  }

  void unknown_kwarg(const Located& key) {
    const std::vector<std::string> known = kwarg_names();
    const std::string nearest = nearest_name(key.text, known);
    Diagnostic& diag = diags_.error(
        key.loc, "O004",
        fmt::format("unknown kwarg '{}'{}", printable(key.text),
                    nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
    diag.note({}, "KTransformers swallows unknown kwargs without a word");
    if (!nearest.empty()) {
      diag.fix(key.loc, nearest);
    } else if (const auto home = level_of_key(key.text, Level::Match)) {
      diag.help(fmt::format("'{}' belongs into {}", key.text, describe(*home)));
    }
  }

  bool wrong_value(const YamlNode& value, const KwargInfo& info) {
    diags_.error(value.loc, "O004",
                 fmt::format("`{}` takes {}, not {}", info.name, name(info.type),
                             value.is_scalar() ? "'" + printable(value.text) + "'"
                                               : std::string(name(value.kind))));
    return false;
  }

  bool parse_value(const YamlNode& value, Kwarg& kwarg, Replace& replace) {
    const KwargInfo& info = *kwarg.info;
    if (info.type == KwargType::DeviceMap) return parse_device_map(value, kwarg);
    if (kwarg.is_null) return parse_none(value, info);
    if (!value.is_scalar()) return wrong_value(value, info);
    switch (info.type) {
      case KwargType::Device:
        return parse_device_kwarg(kwarg, replace);
      case KwargType::Op: {
        const OpInfo* op = resolve_op(kwarg.value);
        if (info.name == "generate_op") {
          replace.op = kwarg.value;
          replace.op_info = op;
        }
        return op != nullptr;
      }
      case KwargType::Bool: {
        const auto truth = parse_bool(value.text);
        kwarg.number = truth.value_or(false);
        return truth && !value.quoted ? true : wrong_value(value, info);
      }
      case KwargType::Int: {
        const auto number = parse_int(value.text);
        kwarg.number = number.value_or(0);
        return number ? true : wrong_value(value, info);
      }
      case KwargType::Backend:
        return parse_backend(kwarg.value);
      default:
        return true;
    }
  }

  bool parse_none(const YamlNode& value, const KwargInfo& info) {
    if (info.name.starts_with("prefill_")) return true;  // no implementation: as KTransformers
    if (info.name == "generate_op") {
      diags_.error(value.loc, "O004",
                   "`generate_op` is none: the module would have no implementation; null and "
                   "\"None\" fit `prefill_op` only");
      return false;
    }
    return info.type == KwargType::Text || info.type == KwargType::Backend
               ? true
               : wrong_value(value, info);
  }

  bool parse_device_kwarg(const Kwarg& kwarg, Replace& replace) {
    const auto place = parse_device(kwarg.value.text);
    if (!place) {
      bad_device(kwarg.value);
      return false;
    }
    if (kwarg.info->name == "generate_device" || kwarg.info->name == "device") {
      replace.device = kwarg.value;
      replace.place = place;
    }
    return true;
  }

  bool parse_backend(const Located& value) {
    if (find_backend(value.text)) return true;
    const std::string nearest = nearest_name(value.text, backend_names());
    Diagnostic& diag =
        diags_.error(value.loc, "O004",
                     fmt::format("unknown backend '{}'{}", printable(value.text),
                                 nearest.empty() ? "; backends are " + join(backend_names(), ", ")
                                                 : fmt::format("; did you mean '{}'?", nearest)));
    if (!nearest.empty()) fix_value(diag, value, nearest);
    return false;
  }

  bool parse_device_map(const YamlNode& value, Kwarg& kwarg) {
    if (!value.is_map()) return wrong_value(value, *kwarg.info);
    for (const auto& [layer, device] : value.fields) {
      const auto number = layer->is_scalar() ? parse_int(layer->text) : std::nullopt;
      if (!number || *number < 0 || *number > INT32_MAX) {
        diags_.error(layer->loc, "O004",
                     fmt::format("`{}` maps layer numbers to devices; '{}' is no layer",
                                 kwarg.info->name, printable(layer->text)));
        return false;
      }
      const Located text = {device->text, device->loc};
      const auto place = device->is_scalar() ? parse_device(device->text) : std::nullopt;
      if (!place) {
        bad_device(text);
        return false;
      }
      kwarg.devices.emplace_back(static_cast<int32_t>(*number), text);
    }
    return true;
  }

  void parse_replace(const YamlNode& node, Replace& replace) {
    replace.loc = node.loc;
    const auto& defaults = file_.defaults;
    replace.lossy_allowed = defaults.lossy_allowed;
    parse_map(
        node, Level::Replace,
        {{"class", [&](const auto&, const auto& n) { parse_class(n, replace); }},
         {"kwargs", [&](const auto& key, const auto& n) { parse_kwargs(key, n, replace); }},
         {"device",
          [&](const auto& key, const auto& n) {
            if (replace.device) {
              wrong(key, "`device` and `generate_device` are the same; write one of them");
            }
            take_device(n, "device", replace.device, replace.place);
          }},
         {"op", [&](const auto&, const auto& n) { take_op(n, "op", replace.op, replace.op_info); }},
         {"layout", [&](const auto&, const auto& n) { take_layout(n, replace.layout); }},
         {"lossy", [&](const auto&, const auto& n) {
            take_lossy(n, replace.lossy, replace.lossy_allowed);
          }}});
    if (!replace.device && defaults.device) {
      replace.device = defaults.device;
      replace.place = defaults.place;
    }
    if (!replace.layout) replace.layout = defaults.layout;
  }

  // Whether this key has no value and some of what belongs into it stands beside it.
  static bool is_empty_beside(const YamlNode& node, std::string_view key,
                              std::initializer_list<std::string_view> entries) {
    const YamlNode* value = node.is_map() ? node.find(key) : nullptr;
    return value && value->is_null() &&
           std::any_of(entries.begin(), entries.end(),
                       [&](std::string_view entry) { return node.find(entry) != nullptr; });
  }

  void parse_rule(const YamlNode& node, int number, std::vector<Rule>& rules) {
    const int errors = diags_.errors();
    bool match_is_whole = true;
    match_is_empty_ = is_empty_beside(node, "match", {"name", "class", "layers", "kind"});
    replace_line_ = node.is_map() && node.find("replace") ? node.find("replace")->loc.line : 0;
    replace_is_empty_ = is_empty_beside(node, "replace", {"class", "kwargs", "device", "op"});
    Rule rule;
    rule.file = static_cast<int>(set_.files.size());
    rule.number = number;
    rule.loc = node.is_map() && !node.fields.empty() ? node.fields[0].first->loc : node.loc;
    parse_map(
        node, Level::Rule,
        {{"match",
          [&](const auto&, const auto& n) {
            const int before = diags_.errors();
            parse_match(n, rule.match);
            match_is_whole = diags_.errors() == before && !match_is_empty_;
          }},
         {"replace", [&](const auto&, const auto& n) { parse_replace(n, rule.replace); }},
         {"recursive",
          [&](const auto&, const auto& n) { take_bool(n, "recursive", rule.recursive); }},
         {"optional", [&](const auto&, const auto& n) { take_bool(n, "optional", rule.optional); }},
         {"id", [&](const auto&, const auto& n) { take_text(n, "id", rule.id); }},
         {"note", [&](const auto&, const auto& n) { take_text(n, "note", rule.note); }}});
    if (!node.is_map()) return;
    for (const char* key : {"match", "replace"}) {
      // A misspelt key was reported already.
      if (node.find(key) || diags_.errors() > errors) continue;
      const bool match = std::string_view(key) == "match";
      diags_.error(rule.loc, "Y003", fmt::format("a rule needs `{}`", key))
          .help(match ? "say which modules are meant: `match: {kind: experts}`, for example"
                      : "say what becomes of them: `replace: {device: cuda:0}`, for example");
    }
    const bool selects = rule.match.name_regex || rule.match.class_name || rule.match.kind ||
                         rule.match.role || !rule.match.layers.empty();
    const bool pattern_lost = rule.match.name && !rule.match.name_regex;
    // With a part of its match missing it would take modules that it is not meant for.
    if (selects && !pattern_lost && match_is_whole) rules.push_back(std::move(rule));
  }

  RuleSet& set_;
  std::string path_;
  DiagSink& diags_;
  RuleFile file_;
  // Of the rule that is read: the key stands there without entries, which follow it
  // without their indentation.
  bool match_is_empty_ = false;
  bool replace_is_empty_ = false;
  int replace_line_ = 0;
};

}  // namespace

const Kwarg* Replace::kwarg(std::string_view name) const {
  for (const Kwarg& kwarg : kwargs) {
    if (kwarg.info->name == name) return &kwarg;
  }
  return nullptr;
}

bool Rule::keeps_module() const {
  return !replace.class_name || replace.class_name->text == "default";
}

std::string RuleSet::label(const Rule& rule) const {
  const std::string id = rule.id ? fmt::format(" ({})", printable(rule.id->text)) : "";
  return fmt::format("{}:{}{}", file_of(rule).path, rule.loc.line, id);
}

void add_rules_text(RuleSet& set, const std::string& text, const std::string& path,
                    DiagSink& diags) {
  diags.add_source(path, text);
  RuleParser(set, path, diags).run(text);
}

Status add_rules(RuleSet& set, const std::string& path, DiagSink& diags) {
  const std::string text = KTX_TRY(read_text_file(path, kMaxFileBytes));
  add_rules_text(set, text, path, diags);
  return {};
}

}  // namespace ktx::rules
