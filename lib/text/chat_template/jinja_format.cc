#include "lib/text/chat_template/jinja_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "lib/support/strings.h"
#include "lib/text/chat_template/format_spec.h"
#include "lib/text/chat_template/jinja_interpreter.h"
#include "lib/text/chat_template/jinja_operators.h"
#include "lib/text/chat_template/jinja_print.h"
#include "lib/text/chat_template/unicode_text.h"

namespace ktx::text::jinja {

Result<std::string> format_value(Meter& meter, const Value& value, std::string_view text) {
  if (text.empty()) return to_str(meter, value);
  if (value.is_undefined()) return undefined_error(value);
  const FormatSpec spec = KTX_TRY(parse_spec(text));
  const auto wrong_type = [&] {
    return Error{fmt::format("Unknown format code '{}' for object of type '{}'", spec.type,
                             type_name(value))};
  };
  if (value.is_string()) {
    if (spec.type != 0 && spec.type != 's') return wrong_type();
    if (spec.align == '=' && !spec.zero) {
      return Error{"'=' alignment not allowed in string format specifier"};
    }
    FormatSpec adjusted = spec;
    if (spec.align == '=') adjusted.align = '<';
    return pad(cut(value.text(), spec.precision), adjusted, '<');
  }
  if (!value.is_number()) {
    return Error{
        fmt::format("unsupported format string passed to {}.__format__", type_name(value))};
  }
  if (value.is(Kind::Bool) && spec.type == 0) {
    return pad(KTX_TRY(to_str(meter, value)), spec, '<');
  }
  const bool as_float =
      spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (value.is_integral() && !as_float) {
    if (spec.type == 's') return wrong_type();
    if (spec.precision >= 0) return Error{"Precision not allowed in integer format specifier"};
    if (spec.type == 'c') {
      if (value.as_int() < 0 || value.as_int() > 0x10FFFF) return Error{"%c arg not in range"};
      std::string character;
      append_code_point(character, static_cast<char32_t>(value.as_int()));
      return pad(std::move(character), spec, '<');
    }
    return pad(format_integer(value.as_int(), spec), spec, '>');
  }
  if (!as_float && spec.type != 0 && spec.type != 'n') return wrong_type();
  return pad(format_float(value.as_double(), spec), spec, '>');
}

namespace {

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& in, Meter& meter, const StringObject& whole, const Args& args)
      : in_(in), meter_(meter), whole_(whole), args_(args) {}

  // `format`: a part of the whole one.
  Status run(std::string_view format, int depth, MeteredText& out) {
    if (depth > 2) return Error{"Max string recursion exceeded"};
    while (!format.empty()) {
      const size_t brace = std::min(format.find_first_of("{}"), format.size());
      KTX_TRY(out.append(whole_, format.substr(0, brace)));
      format.remove_prefix(brace);
      if (format.empty()) break;
      if (format.size() > 1 && format[1] == format[0]) {
        KTX_TRY(out.append(whole_, format.substr(0, 1)));
        format.remove_prefix(2);
        continue;
      }
      if (format[0] == '}') return Error{"Single '}' encountered in format string"};
      size_t end = 1;
      for (int open = 1; open > 0; ++end) {
        if (end >= format.size()) return Error{"expected '}' before end of string"};
        if (format[end] == '{') ++open;
        if (format[end] == '}') --open;
      }
      KTX_TRY(field(format.substr(1, end - 2), depth, out));
      format.remove_prefix(end);
    }
    return {};
  }

 private:
  // name[.attribute|[item]]…[!s|!r][:spec]
  Status field(std::string_view text, int depth, MeteredText& out) {
    const size_t mark = std::min(text.find_first_of("!:"), text.size());
    Value value = KTX_TRY(lookup(text.substr(0, mark)));
    const bool outside = value.outside();
    text.remove_prefix(mark);
    if (!text.empty() && text[0] == '!') {
      if (text.size() < 2 || (text.size() > 2 && text[2] != ':')) {
        return Error{"expected ':' after conversion specifier"};
      }
      if (text[1] != 's' && text[1] != 'r' && text[1] != 'a') {
        return Error{"Unknown conversion specifier"};
      }
      value = make_string(meter_, text[1] == 's' ? KTX_TRY(to_str(meter_, value))
                                                 : KTX_TRY(to_repr(meter_, value)));
      text.remove_prefix(2);
    }
    if (!text.empty()) text.remove_prefix(1);
    MeteredText spec(meter_);
    KTX_TRY(run(text, depth + 1, spec));
    return out.append(KTX_TRY(format_value(meter_, value, spec.take())), outside);
  }

  Result<Value> lookup(std::string_view path) {
    const size_t mark = std::min(path.find_first_of(".["), path.size());
    const std::string_view name = path.substr(0, mark);
    path.remove_prefix(mark);
    Value value = KTX_TRY(argument(name));
    while (!path.empty()) {
      const bool is_item = path[0] == '[';
      path.remove_prefix(1);
      const size_t end = is_item ? path.find(']') : path.find_first_of(".[");
      if (is_item && end == std::string_view::npos) return Error{"Missing ']' in format string"};
      const std::string_view key = path.substr(0, end);
      path.remove_prefix(std::min(path.size(), key.size() + (is_item ? 1 : 0)));
      if (is_item) {
        int64_t index = 0;
        std::string_view rest = key;
        const bool number = !key.empty() && key.find_first_not_of("0123456789") == key.npos;
        if (number) index = KTX_TRY(take_number(rest, INT64_MAX / 16));
        const Value item = number ? Value::integer(index) : make_string(meter_, std::string(key));
        value = KTX_TRY(item_of(meter_, value, item));
      } else {
        value = KTX_TRY(in_.attribute(value, key));
      }
      if (value.is_undefined()) return undefined_error(value);
    }
    return value;
  }

  Result<Value> argument(std::string_view name) {
    const bool number = name.find_first_not_of("0123456789") == name.npos;
    if (!number) {
      for (const auto& [key, value] : args_.named) {
        if (key == name) return value;
      }
      return Error{fmt::format("the format's key '{}' is missing", printable(name))};
    }
    if (name.empty() != automatic_ && numbered_) {
      return Error{"cannot switch between automatic and manual field numbering"};
    }
    automatic_ = name.empty();
    numbered_ = true;
    std::string_view rest = name;
    const int64_t index = name.empty() ? next_++ : KTX_TRY(take_number(rest, kMaxFormatWidth));
    if (index >= static_cast<int64_t>(args_.positional.size())) {
      return Error{
          fmt::format("Replacement index {} out of range for positional args tuple", index)};
    }
    return args_.positional[static_cast<size_t>(index)];
  }

  Interpreter& in_;
  Meter& meter_;
  const StringObject& whole_;
  const Args& args_;
  int64_t next_ = 0;
  bool automatic_ = false, numbered_ = false;
};

}  // namespace

Result<Value> brace_format(Interpreter& in, Meter& meter, const Value& format, const Args& args) {
  MeteredText out(meter);
  KTX_TRY(BraceFormatter(in, meter, format.string(), args).run(format.text(), 0, out));
  return out.take_string();
}

}  // namespace ktx::text::jinja
