// Turns a rule file's YAML tree into rules and reports every mistake at its place.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "lib/rules/expert_values.h"
#include "lib/rules/kwarg_values.h"
#include "lib/rules/match_values.h"
#include "lib/rules/rule.h"
#include "lib/rules/rule_keys.h"
#include "lib/rules/rule_values.h"
#include "lib/rules/yaml_hints.h"
#include "lib/rules/yaml_tree.h"
#include "lib/support/mapped_file.h"
#include "lib/support/strings.h"

namespace ktx::rules {
namespace {

constexpr size_t kMaxFileBytes = 1u << 20;

class RuleParser {
 public:
  RuleParser(RuleSet& set, std::string path, DiagSink& diags)
      : set_(set), path_(std::move(path)), diags_(diags), values_(path_, diags) {
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

  void parse_root(const YamlNode& root, std::vector<Rule>& rules) {
    if (root.is_list() && !root.items.empty()) return parse_list(root, rules);
    if (root.is_map() && (root.find("match") || root.find("replace"))) {
      values_.wrong(root, "a rule without its list; every rule begins with a dash")
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
      values_.wrong(root, "the file has no `rules`");
    } else if (!list->is_list()) {
      values_.wrong(*list, fmt::format("`rules` must be a list, not {}", name(list->kind)));
    } else {
      parse_list(*list, rules);
    }
  }

  void parse_list(const YamlNode& list, std::vector<Rule>& rules) {
    int& number = file_.rules;
    for (const YamlRef& item : list.items) {
      ++number;
      if (set_.rules.size() + rules.size() >= kMaxRules) {
        values_.wrong(*item,
                      fmt::format("more than {} rules; use layer ranges and kinds to say the same "
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
      Diagnostic& diag = values_.wrong(
          node, fmt::format("{} must be a map, not {}", describe(level), name(node.kind)));
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
      diag.help(fmt::format("write `match: {{name: {}}}`", values_.source_of(node)));
    } else if (level == Level::Replace) {
      const bool device = parse_device(node.text).has_value();
      diag.help(fmt::format("write `replace: {{{}: {}}}`", device ? "device" : "class",
                            values_.source_of(node)));
    }
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
    Diagnostic& diag = diags_.error(key.loc, "Y002",
                                    fmt::format("unknown key '{}' in {}{}", printable(text),
                                                describe(level), suggestion(nearest)));
    if (!nearest.empty()) {
      diag.fix(key.loc, nearest);
    } else if (const std::optional<Level> home = level_of_key(text, level)) {
      diag.help(fmt::format("'{}' belongs into {}: change its indentation", text, describe(*home)));
    } else {
      diag.help(fmt::format("keys here are {}", join(here, ", ")));
    }
  }

  void parse_version(const YamlNode& node) {
    if (node.is_scalar() && node.text == "1") return;
    values_.wrong(node,
                  fmt::format("version '{}' of the rule language is not known; this ktx reads 1",
                              printable(node.text)));
  }

  void parse_defaults(const YamlNode& node) {
    std::optional<Located> lossy;
    Defaults& defaults = file_.defaults;
    parse_map(
        node, Level::Defaults,
        {{"device",
          [&](const auto&, const auto& n) {
            values_.take_device(n, "device", defaults.device, defaults.place);
          }},
         {"layout", [&](const auto&, const auto& n) { values_.take_layout(n, defaults.layout); }},
         {"lossy", [&](const auto&, const auto& n) {
            values_.take_lossy(n, lossy, defaults.lossy_allowed);
          }}});
  }

  void parse_match(const YamlNode& node, Match& match) {
    parse_map(
        node, Level::Match,
        {{"name",
          [&](const auto&, const auto& n) {
            if (values_.take_text(n, "name", match.name)) take_pattern(values_, n, match);
          }},
         {"class",
          [&](const auto&, const auto& n) { values_.take_text(n, "class", match.class_name); }},
         {"layers", [&](const auto&, const auto& n) { take_layers(values_, n, match.layers); }},
         {"kind", [&](const auto&, const auto& n) { take_kind(values_, n, match); }}});
    if (node.is_map() && node.fields.empty()) {
      values_.wrong(node, "`match` selects nothing; give it a `name`, `class`, `layers` or `kind`");
    }
    if (match.class_name) {
      // Checkpoints with their own code: only the last part is the same everywhere.
      std::string& text = match.class_name->text;
      if (text.starts_with("transformers_modules.")) text = std::string(last_part(text));
      if (text.starts_with("ktransformers.")) file_.names_ktransformers = true;
    }
  }

  void parse_replace(const YamlNode& node, Replace& replace) {
    replace.loc = node.loc;
    const auto& defaults = file_.defaults;
    replace.lossy_allowed = defaults.lossy_allowed;
    std::optional<SourceLoc> split;
    parse_map(
        node, Level::Replace,
        {{"class", [&](const auto&, const auto& n) { take_class(values_, n, replace); }},
         {"kwargs", [&](const auto& key, const auto& n) { take_kwargs(values_, key, n, replace); }},
         {"device",
          [&](const auto& key, const auto& n) {
            if (replace.device) {
              values_.wrong(key, "`device` and `generate_device` are the same; write one of them");
            }
            values_.take_device(n, "device", replace.device, replace.place);
          }},
         {"devices",
          [&](const auto& key, const auto& n) {
            if (replace.device) values_.wrong(key, "`device` and `devices`; write one of them");
            values_.take_devices(n, replace.device, replace.place);
          }},
         {"split",
          [&](const auto& key, const auto& n) {
            values_.take_split(n, replace.splits);
            split = key.loc;
          }},
         {"experts",
          [&](const auto&, const auto& n) { take_experts(values_, n, replace.experts); }},
         {"deferred",
          [&](const auto&, const auto& n) {
            take_deferred(values_, n, replace.deferred, replace.deferred_experts);
          }},
         {"op", [&](const auto&,
                    const auto& n) { values_.take_op(n, "op", replace.op, replace.op_info); }},
         {"layout", [&](const auto&, const auto& n) { values_.take_layout(n, replace.layout); }},
         {"lossy", [&](const auto&, const auto& n) {
            values_.take_lossy(n, replace.lossy, replace.lossy_allowed);
          }}});
    if (replace.class_name && replace.class_name->text.starts_with("ktransformers.")) {
      file_.names_ktransformers = true;
    }
    const bool together = replace.place && replace.place->kind == DeviceSpec::Kind::Split;
    if (split && !together) {
      diags_.error(*split, "Y003", "`split` says what several GPUs divide, and the rule names none")
          .help("name them: `devices: [cuda:0, cuda:1]`, or all: `device: split`");
    }
    if (!replace.device && defaults.device) {
      replace.device = defaults.device;
      replace.place = defaults.place;
    }
    if (!replace.layout && defaults.layout) {
      replace.layout = defaults.layout;
      replace.layout_of_defaults = true;
    }
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
    replace_is_empty_ = is_empty_beside(
        node, "replace",
        {"class", "kwargs", "device", "devices", "split", "experts", "deferred", "op"});
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
          [&](const auto&, const auto& n) { values_.take_bool(n, "recursive", rule.recursive); }},
         {"optional",
          [&](const auto&, const auto& n) { values_.take_bool(n, "optional", rule.optional); }},
         {"id", [&](const auto&, const auto& n) { values_.take_text(n, "id", rule.id); }},
         {"note", [&](const auto&, const auto& n) { values_.take_text(n, "note", rule.note); }}});
    if (!node.is_map()) return;
    for (const char* key : {"match", "replace"}) {
      // A misspelt key was reported already.
      if (node.find(key) || diags_.errors() > errors) continue;
      const bool match = std::string_view(key) == "match";
      diags_.error(rule.loc, "Y003", fmt::format("a rule needs `{}`", key))
          .help(match ? "say which modules are meant: `match: {kind: experts}`, for example"
                      : "say what to do with them: `replace: {device: cuda:0}`, for example");
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
  RuleValues values_;
  RuleFile file_;
  // In the rule that is being read, the key stands there without entries, which follow it
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

std::string RuleSet::label(const Rule& rule) const {
  const std::string id = rule.id ? fmt::format(" ({})", printable(rule.id->text)) : "";
  return fmt::format("{}:{}{}", file_of(rule).path, rule.loc.line, id);
}

void add_rules_text(RuleSet& set, const std::string& text, const std::string& path,
                    DiagSink& diags) {
  RuleParser(set, path, diags).run(text);
}

Status add_rules(RuleSet& set, const std::string& path, DiagSink& diags) {
  const std::string text = KTX_TRY(read_text_file(path, kMaxFileBytes));
  add_rules_text(set, text, path, diags);
  return {};
}

}  // namespace ktx::rules
