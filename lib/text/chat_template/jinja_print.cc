#include "lib/text/chat_template/jinja_print.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "lib/text/chat_template/jinja_ast.h"
#include "lib/text/chat_template/unicode_text.h"

namespace ktx::text::jinja {
namespace {

// A namespace may hold itself, so the depth of values does not bound this.
constexpr int kMaxPrintDepth = 200;

Status append_value(MeteredText& out, Meter& meter, const Value& value, bool repr, int depth);

Status append_items(MeteredText& out, Meter& meter, const std::vector<Value>& items, int depth) {
  bool first = true;
  for (const Value& item : items) {
    if (!first) KTX_TRY(out.append(", "));
    first = false;
    KTX_TRY(append_value(out, meter, item, true, depth));
  }
  return {};
}

Status append_dict(MeteredText& out, Meter& meter, const DictObject& dict, int depth) {
  KTX_TRY(out.append("{"));
  bool first = true;
  for (const DictObject::Entry& entry : dict.entries) {
    if (!first) KTX_TRY(out.append(", "));
    first = false;
    KTX_TRY(append_value(out, meter, entry.key, true, depth));
    KTX_TRY(out.append(": "));
    KTX_TRY(append_value(out, meter, entry.value, true, depth));
  }
  return out.append("}");
}

Status append_value(MeteredText& out, Meter& meter, const Value& value, bool repr, int depth) {
  KTX_TRY(meter.step());
  if (++depth > kMaxPrintDepth) {
    return Error{fmt::format("the value nests more than {} deep", kMaxPrintDepth)};
  }
  switch (value.kind()) {
    case Kind::Undefined:
      return out.append(repr ? "Undefined" : "");
    case Kind::None:
      return out.append("None");
    case Kind::Bool:
      return out.append(value.as_bool() ? "True" : "False");
    case Kind::Int:
      return out.append(fmt::format("{}", value.as_int()));
    case Kind::WideInt:
      return out.append(value.text());
    case Kind::Float:
      return out.append(float_repr(value.as_double()));
    case Kind::String:
      if (!repr) return out.append(value.text());
      KTX_TRY(meter.step(static_cast<int64_t>(value.text().size() / 16)));
      if (value.string().markup) {
        return out.append(fmt::format("Markup({})", string_repr(value.text())));
      }
      return out.append(string_repr(value.text()));
    case Kind::List:
      KTX_TRY(out.append("["));
      KTX_TRY(append_items(out, meter, value.list().items, depth));
      return out.append("]");
    case Kind::Tuple:
      KTX_TRY(out.append("("));
      KTX_TRY(append_items(out, meter, value.list().items, depth));
      return out.append(value.list().items.size() == 1 ? ",)" : ")");
    case Kind::DictView:
      KTX_TRY(out.append(fmt::format("{}([", value.list().python_name)));
      KTX_TRY(append_items(out, meter, value.list().items, depth));
      return out.append("])");
    case Kind::Dict:
      return append_dict(out, meter, value.dict(), depth);
    case Kind::Range: {
      const RangeObject& range = value.range();
      if (range.step == 1) return out.append(fmt::format("range({}, {})", range.start, range.stop));
      return out.append(fmt::format("range({}, {}, {})", range.start, range.stop, range.step));
    }
    case Kind::Generator:
      return out.append("<generator object>");
    case Kind::Namespace:
      KTX_TRY(out.append("<Namespace "));
      KTX_TRY(append_dict(out, meter, *value.ns().attributes, depth));
      return out.append(">");
    case Kind::Callable: {
      const CallableObject& callable = value.callable();
      if (callable.macro != nullptr && callable.macro->is_caller) {
        return out.append("<Macro anonymous>");
      }
      if (callable.macro != nullptr) return out.append(fmt::format("<Macro '{}'>", callable.name));
      return out.append(fmt::format("<function {}>", callable.name));
    }
    case Kind::Loop:
      return out.append(
          fmt::format("<LoopContext {}/{}>", value.loop().index0 + 1, value.loop().items.size()));
  }
  return {};
}

}  // namespace

Status MeteredText::append(const Value& value) {
  if (value.is_string()) return append(value.string(), value.text());
  return append(KTX_TRY(to_str(meter_, value)), value.outside());
}

Status MeteredText::append(const StringObject& whole, std::string_view part) {
  if (part.empty()) return {};
  const auto begin = static_cast<size_t>(part.data() - whole.text.data());
  add_spans(outside_, text_.size(), whole.spans, begin, begin + part.size());
  return append(part);
}

Status MeteredText::append(std::string_view text, bool outside) {
  if (outside) add_span(outside_, text_.size(), text_.size() + text.size());
  text_.append(text);
  charged_ += static_cast<int64_t>(text.size());
  meter_.live_bytes += static_cast<int64_t>(text.size());
  return meter_.step(static_cast<int64_t>(text.size() / 64));
}

Result<std::string> to_str(Meter& meter, const Value& value) {
  if (value.is_string()) return value.text();
  MeteredText out(meter);
  KTX_TRY(append_value(out, meter, value, false, 0));
  return out.take();
}

Result<std::string> to_repr(Meter& meter, const Value& value) {
  MeteredText out(meter);
  KTX_TRY(append_value(out, meter, value, true, 0));
  return out.take();
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));  // -d.ddde+xx
  const size_t mark = text.find('e');
  int exponent = 0;
  const size_t digits_at = text[mark + 1] == '+' ? mark + 2 : mark + 1;
  std::from_chars(text.data() + digits_at, text.data() + text.size(), exponent);
  const bool negative = text[0] == '-';
  std::string digits;
  for (const char c : text.substr(0, mark)) {
    if (c != '-' && c != '.') digits += c;
  }
  std::string out = negative ? "-" : "";
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += fmt::format(".{}", std::string_view(digits).substr(1));
    out += fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    out += fmt::format("0.{}{}", std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
  } else if (count <= exponent + 1) {
    out +=
        fmt::format("{}{}.0", digits, std::string(static_cast<size_t>(exponent + 1 - count), '0'));
  } else {
    const size_t point = static_cast<size_t>(exponent) + 1;
    out += fmt::format("{}.{}", std::string_view(digits).substr(0, point),
                       std::string_view(digits).substr(point));
  }
  return out;
}

std::string string_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  while (!text.empty()) {
    size_t bytes = 0;
    const char32_t c = decode_code_point(text, &bytes);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20 || c == 0x7F || (c >= 0x80 && !is_printable(c))) {
      const auto code = static_cast<uint32_t>(c);
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return out + quote;
}

}  // namespace ktx::text::jinja
