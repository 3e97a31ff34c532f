// Filters that convert their input to text.
#include <fmt/format.h>

#include <algorithm>

#include "lib/support/escape_html.h"
#include "lib/text/chat_template/jinja_builtins.h"
#include "lib/text/chat_template/jinja_format.h"
#include "lib/text/chat_template/jinja_operators.h"
#include "lib/text/chat_template/jinja_print.h"
#include "lib/text/chat_template/string_building.h"
#include "lib/text/chat_template/unicode_text.h"

namespace ktx::text::jinja {
namespace {

// The result of a text function on what it was given: |safe text stays safe.
Value like_self(Call& call, std::string text) {
  return make_string(call.meter, std::move(text),
                     call.self.is_string() && call.self.string().markup);
}

// What it was given, as a string.
Result<Value> self_string(Call& call) {
  if (call.self.is_string()) return call.self;
  Value text = call.string(KTX_TRY(to_str(call.meter, call.self)));
  inherit_origin(text, call.self);
  return text;
}

template <std::string (*change)(std::string_view)>
Result<Value> filter_change(Call& call) {
  return like_self(call, change(KTX_TRY(to_str(call.meter, call.self))));
}

// Words begin after white space and after - ( { [ <, unlike str.title().
Result<Value> filter_title(Call& call) {
  const std::string text = KTX_TRY(to_str(call.meter, call.self));
  std::string out;
  std::string word;
  const auto flush = [&] {
    if (word.empty()) return;
    const size_t first = code_point_bytes(word);
    out += to_upper(std::string_view(word).substr(0, first));
    out += to_lower(std::string_view(word).substr(first));
    word.clear();
  };
  std::string_view rest = text;
  while (!rest.empty()) {
    size_t bytes = 0;
    const char32_t c = decode_code_point(rest, &bytes);
    if (is_python_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                               std::string_view::npos)) {
      flush();
      out += rest.substr(0, bytes);
    } else {
      word += rest.substr(0, bytes);
    }
    rest.remove_prefix(bytes);
  }
  flush();
  return like_self(call, std::move(out));
}

Result<Value> filter_trim(Call& call) {
  const Value whole = KTX_TRY(self_string(call));
  const bool space = !call.has(0) || call.args[0].is_none();
  const std::string_view text = space ? strip_space(whole.text(), Side::Both)
                                      : strip(whole.text(), KTX_TRY(call.text(0)), Side::Both);
  const auto begin = text.empty() ? 0 : static_cast<size_t>(text.data() - whole.text().data());
  return make_part(call.meter, whole.string(), begin, text.size());
}

Result<Value> filter_replace(Call& call) {
  const Value text = KTX_TRY(self_string(call));
  const std::string from = KTX_TRY(call.printed(0));
  const Value to = call.args[1].is_string() ? call.args[1] : call.string(KTX_TRY(call.printed(1)));
  return replace_text(call.meter, text, from, to, KTX_TRY(call.integer(2, -1)), false);
}

Result<Value> filter_indent(Call& call) {
  if (!call.self.is_string()) {
    if (call.self.is_undefined()) return undefined_error(call.self);
    return Error{fmt::format("indent: expected a str, got {}", type_name(call.self))};
  }
  std::string margin;
  if (call.has(0) && call.args[0].is_string()) {
    margin = call.args[0].text();
  } else {
    const int64_t width = std::max<int64_t>(0, KTX_TRY(call.integer(0, 4)));
    KTX_TRY(call.meter.reserve(width));
    margin.assign(static_cast<size_t>(width), ' ');
  }
  const bool blank_lines = call.flag(2);
  const std::string text = call.self.text() + "\n";
  MeteredText out(call.meter);
  if (call.flag(1)) KTX_TRY(out.append(margin));
  bool first = true;
  for (const std::string_view line : split_lines(text, false)) {
    if (!first) {
      KTX_TRY(out.append("\n"));
      if (blank_lines || !line.empty()) KTX_TRY(out.append(margin));
    }
    first = false;
    KTX_TRY(out.append(line));
  }
  return like_self(call, out.take());
}

Result<Value> filter_center(Call& call) {
  const std::string text = KTX_TRY(to_str(call.meter, call.self));
  return like_self(call, KTX_TRY(justify(call.meter, text, KTX_TRY(call.integer(0, 80)), " ",
                                         Alignment::Center)));
}

Result<Value> filter_truncate(Call& call) {
  const int64_t length = KTX_TRY(call.integer(0, 255));
  const bool kill_words = call.flag(1);
  const std::string_view end = KTX_TRY(call.text(2, "..."));
  const int64_t leeway = KTX_TRY(call.integer(3, 5));
  const int64_t kept = length - count_code_points(end);
  if (kept < 0) {
    return Error{fmt::format("truncate: expected length >= {}, got {}", length - kept, length)};
  }
  if (leeway < 0) return Error{fmt::format("truncate: expected leeway >= 0, got {}", leeway)};
  if (!call.self.is_string()) {
    // Anything with a length passes when it is short enough; the rest is for texts.
    const int64_t items = call.self.is_undefined() ? 0 : KTX_TRY(length_of(call.self));
    if (items <= length || items - length <= leeway) return call.self;
    return Error{fmt::format("truncate: expected a string, got {}", type_name(call.self))};
  }
  const std::string& text = call.self.text();
  const int64_t size = count_code_points(text);
  if (size <= length || size - length <= leeway) return like_self(call, text);
  std::string_view head = std::string_view(text).substr(0, code_point_offset(text, kept));
  if (!kill_words) head = head.substr(0, std::min(head.rfind(' '), head.size()));
  return like_self(call, std::string(head) + std::string(end));
}

Result<Value> filter_wordcount(Call& call) {
  const std::string text = KTX_TRY(to_str(call.meter, call.self));
  int64_t words = 0;
  bool inside = false;
  std::string_view rest = text;
  while (!rest.empty()) {
    size_t bytes = 0;
    const bool word = is_word(decode_code_point(rest, &bytes));
    if (word && !inside) ++words;
    inside = word;
    rest.remove_prefix(bytes);
  }
  return Value::integer(words);
}

Result<Value> filter_format(Call& call) {
  if (!call.args.empty() && !call.named.empty()) {
    return Error{"format: can't handle positional and keyword arguments at the same time"};
  }
  const Value text = KTX_TRY(self_string(call));
  if (call.named.empty()) {
    return percent_format(call.meter, text, make_tuple(call.meter, call.args));
  }
  auto dict = new_dict(call.meter);
  for (const auto& [name, value] : call.named) dict->set(call.meter, name, value);
  return percent_format(call.meter, text, make_dict(std::move(dict)));
}

std::string url_quote(std::string_view text, bool for_query) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !for_query);
    if (plain) {
      out += c;
    } else if (c == ' ' && for_query) {
      out += '+';
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Result<Value> filter_urlencode(Call& call) {
  const Value& self = call.self;
  if (self.is_string() || !is_iterable(self)) {
    return call.string(url_quote(KTX_TRY(to_str(call.meter, self)), false));
  }
  std::string out;
  const auto add = [&](const Value& key, const Value& value) -> Status {
    if (!out.empty()) out += '&';
    out += url_quote(KTX_TRY(to_str(call.meter, key)), true) + '=';
    out += url_quote(KTX_TRY(to_str(call.meter, value)), true);
    return call.meter.reserve(static_cast<int64_t>(out.size()));
  };
  if (self.is(Kind::Dict)) {
    for (const DictObject::Entry& entry : self.dict().entries) KTX_TRY(add(entry.key, entry.value));
  } else {
    for (const Value& item : KTX_TRY(items_of(call.meter, self))) {
      const std::vector<Value> pair = KTX_TRY(items_of(call.meter, item));
      if (pair.size() != 2) return Error{"urlencode: expected pairs"};
      KTX_TRY(add(pair[0], pair[1]));
    }
  }
  return call.string(std::move(out));
}

Result<Value> filter_escape(Call& call) {
  if (call.self.is_string() && call.self.string().markup) return call.self;
  return make_string(call.meter, escape_html(KTX_TRY(to_str(call.meter, call.self))), true);
}

Result<Value> filter_forceescape(Call& call) {
  return make_string(call.meter, escape_html(KTX_TRY(to_str(call.meter, call.self))), true);
}

Result<Value> filter_safe(Call& call) {
  return make_string(call.meter, KTX_TRY(to_str(call.meter, call.self)), true);
}

Result<Value> filter_string(Call& call) {
  if (call.self.is_string()) return call.self;
  return call.string(KTX_TRY(to_str(call.meter, call.self)));
}

constexpr Builtin kTextFilters[] = {
    {"upper", "", filter_change<to_upper>},
    {"lower", "", filter_change<to_lower>},
    {"capitalize", "", filter_change<to_capitalized>},
    {"title", "", filter_title},
    {"trim", "chars?", filter_trim},
    {"replace", "old new count?", filter_replace},
    {"indent", "width? first? blank?", filter_indent},
    {"center", "width?", filter_center},
    {"truncate", "length? killwords? end? leeway?", filter_truncate},
    {"wordcount", "", filter_wordcount},
    {"format", "*", filter_format},
    {"urlencode", "", filter_urlencode},
    {"escape", "", filter_escape},
    {"e", "", filter_escape},
    {"forceescape", "", filter_forceescape},
    {"safe", "", filter_safe},
    {"string", "", filter_string},
    {"pprint", "", nullptr},
    {"random", "", nullptr},
    {"striptags", "", nullptr},
    {"urlize", "", nullptr},
    {"wordwrap", "", nullptr},
    {"xmlattr", "", nullptr},
};

}  // namespace

std::span<const Builtin> text_filters() {
  return kTextFilters;
}

}  // namespace ktx::text::jinja
