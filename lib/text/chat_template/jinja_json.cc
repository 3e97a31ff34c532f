#include "lib/text/chat_template/jinja_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lib/text/chat_template/jinja_operators.h"
#include "lib/text/chat_template/jinja_print.h"
#include "lib/text/chat_template/jinja_sort.h"
#include "lib/text/chat_template/unicode_text.h"
#include "lib/text/exact_json.h"

namespace ktx::text::jinja {
namespace {

std::string quoted(std::string_view text, bool ensure_ascii) {
  std::string out = "\"";
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    size_t bytes = 1;
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default: {
        if (c < 0x20) {
          out += fmt::format("\\u{:04x}", c);
        } else if (c < 0x7F || !ensure_ascii) {
          out += static_cast<char>(c);
        } else {
          auto code = static_cast<uint32_t>(decode_code_point(text, &bytes));
          if (code >= 0x10000) {
            code -= 0x10000;
            out += fmt::format("\\u{:04x}", 0xD800 + (code >> 10));
            code = 0xDC00 + (code & 0x3FF);
          }
          out += fmt::format("\\u{:04x}", code);
        }
      }
    }
    text.remove_prefix(bytes);
  }
  return out + "\"";
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_repr(value);
}

class Writer {
 public:
  Writer(Meter& meter, const JsonStyle& style) : meter_(meter), style_(style), out_(meter) {}

  Status write(const Value& value, int level) {
    KTX_TRY(meter_.step());
    switch (value.kind()) {
      case Kind::None:
        return out_.append("null");
      case Kind::Bool:
        return out_.append(value.as_bool() ? "true" : "false");
      case Kind::Int:
        return out_.append(fmt::format("{}", value.as_int()));
      case Kind::WideInt:
        return out_.append(value.text());
      case Kind::Float:
        return out_.append(json_float(value.as_double()));
      case Kind::String:
        KTX_TRY(meter_.step(static_cast<int64_t>(value.text().size() / 16)));
        return out_.append(quoted(value.text(), style_.ensure_ascii));
      case Kind::List:
      case Kind::Tuple:
        return write_list(value.list().items, level);
      case Kind::Generator:
        // json.dumps refuses these, which no user of a template can mend.
        return write_list(value.generator().items, level);
      case Kind::Dict:
        return write_dict(value.dict(), level);
      default:
        return Error{fmt::format("Object of type {} is not JSON serializable{}", type_name(value),
                                 value.undefined_story() != nullptr
                                     ? fmt::format(" ({})", *value.undefined_story())
                                     : "")};
    }
  }

  std::string take() { return out_.take(); }

 private:
  Status new_line(int level) {
    if (!style_.indent) return {};
    KTX_TRY(out_.append("\n"));
    for (int i = 0; i < level; ++i) KTX_TRY(out_.append(*style_.indent));
    return {};
  }

  Status write_list(const std::vector<Value>& items, int level) {
    if (items.empty()) return out_.append("[]");
    KTX_TRY(out_.append("["));
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) KTX_TRY(out_.append(style_.item_separator));
      KTX_TRY(new_line(level + 1));
      KTX_TRY(write(items[i], level + 1));
    }
    KTX_TRY(new_line(level));
    return out_.append("]");
  }

  Result<std::string> key_text(const Value& key) {
    if (key.is_string()) return key.text();
    if (key.is_none()) return std::string("null");
    if (key.is(Kind::Bool)) return std::string(key.as_bool() ? "true" : "false");
    if (key.is(Kind::Int)) return fmt::format("{}", key.as_int());
    if (key.is(Kind::WideInt)) return key.text();
    if (key.is(Kind::Float)) return json_float(key.as_double());
    return Error{fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key))};
  }

  Status write_dict(const DictObject& dict, int level) {
    if (dict.entries.empty()) return out_.append("{}");
    std::vector<size_t> order(dict.entries.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (style_.sort_keys) {
      KTX_TRY(stable_sort(order, [&](size_t a, size_t b) -> Result<bool> {
        return compare(meter_, CompareOp::Less, dict.entries[a].key, dict.entries[b].key);
      }));
    }
    KTX_TRY(out_.append("{"));
    bool first = true;
    for (const size_t i : order) {
      if (!first) KTX_TRY(out_.append(style_.item_separator));
      first = false;
      KTX_TRY(new_line(level + 1));
      KTX_TRY(out_.append(quoted(KTX_TRY(key_text(dict.entries[i].key)), style_.ensure_ascii)));
      KTX_TRY(out_.append(style_.key_separator));
      KTX_TRY(write(dict.entries[i].value, level + 1));
    }
    KTX_TRY(new_line(level));
    return out_.append("}");
  }

  Meter& meter_;
  const JsonStyle& style_;
  MeteredText out_;
};

Value from_text(Meter& meter, const std::string& text, bool outside) {
  TextSpans spans;
  if (outside) add_span(spans, 0, text.size());
  return make_string(meter, text, false, std::move(spans));
}

Result<Value> convert(Meter& meter, const nlohmann::ordered_json& json, int depth, bool outside) {
  if (depth > meter.limits.value_depth) {
    return Error{
        fmt::format("the messages or tools nest more than {} deep", meter.limits.value_depth)};
  }
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return Value::boolean(json.get<bool>());
    case Type::number_integer:
      return Value::integer(json.get<int64_t>());
    case Type::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > uint64_t{INT64_MAX}) return make_wide_int(meter, std::to_string(number));
      return Value::integer(static_cast<int64_t>(number));
    }
    case Type::binary: {
      const std::string text = wide_text(json);
      const bool is_integer = text.find_first_of(".eE") == std::string::npos;
      return is_integer ? make_wide_int(meter, text) : Value::real(number_value(json));
    }
    case Type::number_float:
      return Value::real(json.get<double>());
    case Type::string:
      return from_text(meter, json.get_ref<const std::string&>(), outside);
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json)
        items.push_back(KTX_TRY(convert(meter, item, depth + 1, outside)));
      return make_list(meter, std::move(items));
    }
    case Type::object: {
      auto dict = new_dict(meter);
      for (const auto& [key, value] : json.items()) {
        Value converted = KTX_TRY(convert(meter, value, depth + 1, outside));
        KTX_TRY(dict->set(meter, from_text(meter, key, outside), std::move(converted)));
      }
      return make_dict(std::move(dict));
    }
    default:
      return Value::none();
  }
}

}  // namespace

Result<std::string> to_json(Meter& meter, const Value& value, const JsonStyle& style) {
  Writer writer(meter, style);
  KTX_TRY(writer.write(value, 0));
  return writer.take();
}

Result<Value> from_json(Meter& meter, const nlohmann::ordered_json& json, bool outside) {
  return convert(meter, json, 0, outside);
}

Result<Value> from_messages(Meter& meter, const nlohmann::ordered_json& messages,
                            std::span<const std::string> answer_tags) {
  std::vector<Value> list;
  for (const auto& message : messages) {
    if (!message.is_object()) {
      list.push_back(KTX_TRY(convert(meter, message, 1, true)));
      continue;
    }
    auto dict = new_dict(meter);
    const auto role = message.find("role");
    const bool answers = role != message.end() && *role == "assistant";
    for (const auto& [key, value] : message.items()) {
      if (answers && value.is_string() && key != "role") {
        const std::string& text = value.get_ref<const std::string&>();
        TextSpans outside;
        add_outside(outside, text, 0, answer_tags);
        dict->set(meter, key, make_string(meter, text, false, std::move(outside)));
      } else {
        dict->set(meter, key, KTX_TRY(convert(meter, value, 2, key != "role")));
      }
    }
    list.push_back(make_dict(std::move(dict)));
  }
  return make_list(meter, std::move(list));
}

}  // namespace ktx::text::jinja
