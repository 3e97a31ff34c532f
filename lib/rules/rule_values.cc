#include "lib/rules/rule_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "lib/rules/rule_keys.h"
#include "lib/support/strings.h"
#include "lib/target/device_id.h"

namespace ktx::rules {

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

std::string suggestion(const std::string& nearest) {
  return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
}

Diagnostic& RuleValues::wrong(const YamlNode& node, std::string message) {
  return diags_.error(node.loc, "Y003", std::move(message));
}

// A scalar as it is written.
std::string RuleValues::source_of(const YamlNode& node) const {
  const std::string* text = diags_.source(path_);
  const auto lines = text ? split(*text, '\n') : std::vector<std::string_view>();
  const auto line = static_cast<size_t>(node.loc.line);
  if (line == 0 || line > lines.size()) return printable(node.text);
  return printable(lines[line - 1].substr(
      std::min(static_cast<size_t>(node.loc.column) - 1, lines[line - 1].size()),
      static_cast<size_t>(node.loc.length)));
}

bool RuleValues::take_text(const YamlNode& node, std::string_view key,
                           std::optional<Located>& out) {
  if (!node.is_scalar()) {
    wrong(node, fmt::format("`{}` must be a text, not {}", key, name(node.kind)));
    return false;
  }
  out = Located{node.text, node.loc};
  return true;
}

void RuleValues::take_bool(const YamlNode& node, std::string_view key, bool& out) {
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

void RuleValues::take_device(const YamlNode& node, std::string_view key,
                             std::optional<Located>& text, std::optional<DeviceSpec>& place) {
  if (node.is_list()) return take_device_list(node, key, text, place);
  if (!take_text(node, key, text)) return;
  place = parse_device(node.text);
  if (!place) bad_device(*text);
}

// [cuda:0, cuda:1]: layers spread over these.
void RuleValues::take_device_list(const YamlNode& node, std::string_view key,
                                  std::optional<Located>& text, std::optional<DeviceSpec>& place) {
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
      wrong(*item,
            fmt::format("a list in `{}` is of GPUs: each of them once, and no other device", key));
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

void RuleValues::take_devices(const YamlNode& node, std::optional<Located>& text,
                              std::optional<DeviceSpec>& place) {
  if (!node.is_list() || node.items.size() < 2) {
    wrong(node, "`devices` lists two GPUs or more that compute together: [cuda:0, cuda:1]");
    return;
  }
  std::optional<DeviceSpec> listed;
  take_device_list(node, "devices", text, listed);
  if (!listed) return;
  listed->kind = DeviceSpec::Kind::Split;
  text = Located{to_string(*listed), node.loc};
  place = listed;
}

void RuleValues::take_split(const YamlNode& node, std::vector<Split>& out) {
  std::vector<const YamlNode*> values;
  if (!node.is_list()) values.push_back(&node);
  for (const YamlRef& item : node.items) values.push_back(&*item);
  for (const YamlNode* value : values) {
    const auto* const found =
        std::find(std::begin(kSplitNames), std::end(kSplitNames), value->text);
    if (value->is_scalar() && found != std::end(kSplitNames)) {
      out.push_back(static_cast<Split>(found - std::begin(kSplitNames)));
      continue;
    }
    const std::vector<std::string> known(std::begin(kSplitNames), std::end(kSplitNames));
    wrong(*value, fmt::format("`split` is heads, columns or experts, or a list of these{}",
                              suggestion(nearest_name(value->text, known))));
  }
}

void RuleValues::bad_device(const Located& value) {
  const std::string nearest = nearest_device(value.text);
  Diagnostic& diag = diags_.error(
      value.loc, "D004",
      fmt::format("unknown device '{}'{}", printable(value.text), suggestion(nearest)));
  if (nearest.empty()) {
    diag.help(fmt::format(
        "devices are cpu, cuda, cuda:0 to cuda:{}, cuda:0-3, cuda:*, cuda:0+1, split, auto",
        target::kMaxGpu));
  } else {
    fix_value(diag, value, nearest);
  }
}

// Replaces a scalar's text and keeps its quotes.
void RuleValues::fix_value(Diagnostic& diag, const Located& value, const std::string& text) {
  const std::string* source = diags_.source(path_);
  const bool quoted = value.loc.length == static_cast<int>(value.text.size()) + 2;
  diag.fix(value.loc, source && quoted ? fmt::format("\"{}\"", text) : text);
}

void RuleValues::take_layout(const YamlNode& node, std::optional<Located>& out) {
  if (!take_text(node, "layout", out)) return;
  const std::vector<std::string> known = layout_names();
  if (std::find(known.begin(), known.end(), node.text) != known.end()) return;
  const std::string nearest = nearest_name(node.text, known);
  Diagnostic& diag =
      diags_.error(node.loc, "O004",
                   fmt::format("unknown layout '{}'{}", printable(node.text), suggestion(nearest)));
  if (find_op(node.text)) {
    diag.help(fmt::format("'{0}' is an op: write `op: {0}`", node.text));
  } else if (nearest.empty()) {
    diag.help(fmt::format("layouts are {}", join(known, ", ")));
  } else {
    fix_value(diag, *out, nearest);
  }
  out.reset();
}

void RuleValues::take_lossy(const YamlNode& node, std::optional<Located>& out, bool& allowed) {
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

void RuleValues::take_op(const YamlNode& node, std::string_view key, std::optional<Located>& text,
                         const OpInfo*& info) {
  if (!take_text(node, key, text)) return;
  info = resolve_op(*text);
}

const OpInfo* RuleValues::resolve_op(const Located& value) {
  if (const OpInfo* op = find_op(value.text)) return op;
  if (const OpInfo* op = find_op(new_name_of(value.text))) {
    Diagnostic& diag = diags_.note(value.loc, "R007",
                                   fmt::format("'{}' is now called '{}'", value.text, op->name));
    fix_value(diag, value, std::string(op->name));
    return op;
  }
  const std::string nearest = nearest_name(value.text, op_names());
  Diagnostic& diag =
      diags_.error(value.loc, "O004",
                   fmt::format("unknown op '{}'{}", printable(value.text), suggestion(nearest)));
  if (nearest.empty()) {
    diag.help(fmt::format("ops are {}", join(op_names(), ", ")));
  } else {
    fix_value(diag, value, nearest);
  }
  return nullptr;
}

}  // namespace ktx::rules
