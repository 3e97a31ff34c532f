#include "lib/rules/kwarg_values.h"

#include <cstdint>

#include <fmt/format.h>

#include "lib/rules/rule_keys.h"
#include "lib/support/strings.h"

namespace ktx::rules {
namespace {

bool wrong_value(RuleValues& values, const YamlNode& value, const KwargInfo& info) {
  values.diags().error(value.loc, "O004",
                       fmt::format("`{}` takes {}, not {}", info.name, name(info.type),
                                   value.is_scalar() ? "'" + printable(value.text) + "'"
                                                     : std::string(name(value.kind))));
  return false;
}

void unknown_kwarg(RuleValues& values, const Located& key) {
  const std::vector<std::string> known = kwarg_names();
  const std::string nearest = nearest_name(key.text, known);
  Diagnostic& diag = values.diags().error(
      key.loc, "O004",
      fmt::format("unknown kwarg '{}'{}", printable(key.text), suggestion(nearest)));
  diag.note({}, "KTransformers swallows unknown kwargs without a word");
  if (!nearest.empty()) {
    diag.fix(key.loc, nearest);
  } else if (const auto home = level_of_key(key.text, Level::Match)) {
    diag.help(fmt::format("'{}' belongs into {}", key.text, describe(*home)));
  }
}

bool parse_none(RuleValues& values, const YamlNode& value, const KwargInfo& info) {
  if (info.name.starts_with("prefill_")) return true;  // no implementation: as KTransformers
  if (info.name == "generate_op") {
    values.diags().error(value.loc, "O004",
                         "`generate_op` is none: the module would have no implementation; null and "
                         "\"None\" fit `prefill_op` only");
    return false;
  }
  return info.type == KwargType::Text || info.type == KwargType::Backend
             ? true
             : wrong_value(values, value, info);
}

bool parse_device_kwarg(RuleValues& values, const Kwarg& kwarg, Replace& replace) {
  const auto place = parse_device(kwarg.value.text);
  if (!place) {
    values.bad_device(kwarg.value);
    return false;
  }
  if (kwarg.info->name == "generate_device" || kwarg.info->name == "device") {
    replace.device = kwarg.value;
    replace.place = place;
  }
  return true;
}

bool parse_backend(RuleValues& values, const Located& value) {
  if (find_backend(value.text)) return true;
  const std::string nearest = nearest_name(value.text, backend_names());
  Diagnostic& diag = values.diags().error(
      value.loc, "O004",
      fmt::format(
          "unknown backend '{}'{}", printable(value.text),
          nearest.empty() ? "; backends are " + join(backend_names(), ", ") : suggestion(nearest)));
  if (!nearest.empty()) values.fix_value(diag, value, nearest);
  return false;
}

bool parse_device_map(RuleValues& values, const YamlNode& value, Kwarg& kwarg) {
  if (!value.is_map()) return wrong_value(values, value, *kwarg.info);
  for (const auto& [layer, device] : value.fields) {
    const auto number = layer->is_scalar() ? parse_int(layer->text) : std::nullopt;
    if (!number || *number < 0 || *number > INT32_MAX) {
      values.diags().error(layer->loc, "O004",
                           fmt::format("`{}` maps layer numbers to devices; '{}' is no layer",
                                       kwarg.info->name, printable(layer->text)));
      return false;
    }
    const Located text = {device->text, device->loc};
    const auto place = device->is_scalar() ? parse_device(device->text) : std::nullopt;
    if (!place) {
      values.bad_device(text);
      return false;
    }
    kwarg.devices.emplace_back(static_cast<int32_t>(*number), text);
  }
  return true;
}

bool parse_value(RuleValues& values, const YamlNode& value, Kwarg& kwarg, Replace& replace) {
  const KwargInfo& info = *kwarg.info;
  if (info.type == KwargType::DeviceMap) return parse_device_map(values, value, kwarg);
  if (kwarg.is_null) return parse_none(values, value, info);
  if (!value.is_scalar()) return wrong_value(values, value, info);
  switch (info.type) {
    case KwargType::Device:
      return parse_device_kwarg(values, kwarg, replace);
    case KwargType::Op: {
      const OpInfo* op = values.resolve_op(kwarg.value);
      if (info.name == "generate_op") {
        replace.op = kwarg.value;
        replace.op_info = op;
      }
      return op != nullptr;
    }
    case KwargType::Bool: {
      const auto truth = parse_bool(value.text);
      kwarg.number = truth.value_or(false);
      return truth && !value.quoted ? true : wrong_value(values, value, info);
    }
    case KwargType::Int: {
      const auto number = parse_int(value.text);
      kwarg.number = number.value_or(0);
      return number ? true : wrong_value(values, value, info);
    }
    case KwargType::Backend:
      return parse_backend(values, kwarg.value);
    default:
      return true;
  }
}

void parse_kwarg(RuleValues& values, const YamlNode& key, const YamlNode& value, Replace& replace) {
  Kwarg kwarg;
  kwarg.key = {key.is_scalar() ? key.text : "", key.loc};
  kwarg.info = find_kwarg(kwarg.key.text);
  if (!kwarg.info) kwarg.info = find_kwarg(new_name_of(kwarg.key.text));
  if (!kwarg.info) return unknown_kwarg(values, kwarg.key);
  if (kwarg.info->name != kwarg.key.text) {
    values.diags()
        .note(key.loc, "R007",
              fmt::format("'{}' is spelt '{}' in KTransformers", kwarg.key.text, kwarg.info->name))
        .fix(key.loc, std::string(kwarg.info->name));
  }
  kwarg.value = {value.is_scalar() ? value.text : "", value.loc};
  kwarg.is_null = value.is_null() || (value.is_scalar() && value.text == "None");
  if (!parse_value(values, value, kwarg, replace)) return;
  replace.kwargs.push_back(std::move(kwarg));
}

}  // namespace

void take_class(RuleValues& values, const YamlNode& node, Replace& replace) {
  if (!values.take_text(node, "class", replace.class_name)) return;
  const std::string& text = node.text;
  if (text == "default") return;
  replace.operator_info = find_operator(text);
  if (replace.operator_info) return;
  if (const OperatorInfo* now = find_operator(new_name_of(text))) {
    replace.operator_info = now;
    Diagnostic& diag = values.diags().note(
        node.loc, "R007",
        fmt::format("'{}' is now called '{}'", printable(text), now->short_name()));
    values.fix_value(diag, *replace.class_name,
                     fmt::format("ktransformers.operators.{}", now->path));
    return;
  }
  const bool dotted = text.find('.') != std::string::npos;
  // The class may be right and only its module wrong.
  const OperatorInfo* same_class = find_operator(last_part(text));
  const std::string nearest = same_class
                                  ? fmt::format("ktransformers.operators.{}", same_class->path)
                                  : nearest_name(text, operator_names(dotted));
  Diagnostic& diag = values.diags().error(
      node.loc, "R007",
      fmt::format("unknown operator class '{}'{}", printable(text), suggestion(nearest)));
  if (nearest.empty()) {
    diag.help("operator classes are listed in docs/rules.md; `default` keeps the module");
  } else {
    values.fix_value(diag, *replace.class_name, nearest);
  }
}

void take_kwargs(RuleValues& values, const YamlNode& key, const YamlNode& node, Replace& replace) {
  if (node.is_null()) {
    values.wrong(key,
                 "`kwargs` is empty, which KTransformers cannot read; remove the key or give it "
                 "entries");
    return;
  }
  if (!node.is_map()) {
    values.wrong(node, fmt::format("`kwargs` must be a map, not {}", name(node.kind)));
    return;
  }
  replace.has_kwargs = true;
  for (const auto& [key, value] : node.fields) parse_kwarg(values, *key, *value, replace);
}

}  // namespace ktx::rules
