// Methods of strings, with the semantics of Python's str.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>

#include "lib/support/escape_html.h"
#include "lib/support/strings.h"
#include "lib/text/chat_template/jinja_builtins.h"
#include "lib/text/chat_template/jinja_format.h"
#include "lib/text/chat_template/jinja_operators.h"
#include "lib/text/chat_template/jinja_print.h"
#include "lib/text/chat_template/string_building.h"
#include "lib/text/chat_template/unicode_text.h"

namespace ktx::text::jinja {
namespace {

constexpr int64_t kPieceBytes = sizeof(Value) + sizeof(StringObject) + 32;

std::string_view self_text(const Call& call) {
  return call.self.text();
}

// Methods of |safe text give safe text.
Value like_self(Call& call, std::string_view text) {
  const std::string_view self = self_text(call);
  const bool part = !text.empty() && text.data() >= self.data() &&
                    text.data() + text.size() <= self.data() + self.size();
  if (!part) return make_string(call.meter, std::string(text), call.self.string().markup);
  return make_part(call.meter, call.self.string(), static_cast<size_t>(text.data() - self.data()),
                   text.size());
}

template <std::string (*change)(std::string_view)>
Result<Value> str_change(Call& call) {
  return like_self(call, change(self_text(call)));
}

template <Side side>
Result<Value> str_strip(Call& call) {
  if (!call.has(0) || call.args[0].is_none()) {
    return like_self(call, strip_space(self_text(call), side));
  }
  return like_self(call, strip(self_text(call), KTX_TRY(call.text(0)), side));
}

// Every code point passes, and there is one.
template <bool (*passes)(char32_t)>
Result<Value> str_all(Call& call) {
  std::string_view text = self_text(call);
  bool all = !text.empty();
  while (all && !text.empty()) {
    size_t bytes = 0;
    all = passes(decode_code_point(text, &bytes));
    text.remove_prefix(bytes);
  }
  return Value::boolean(all);
}

bool is_alnum(char32_t c) {
  return is_alpha(c) || is_numeric(c);
}
bool is_identifier_part(char32_t c) {
  return is_word(c);
}

Result<Value> str_isascii(Call& call) {
  return Value::boolean(std::all_of(self_text(call).begin(), self_text(call).end(),
                                    [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

Result<Value> str_isprintable(Call& call) {
  if (self_text(call).empty()) return Value::boolean(true);
  return str_all<is_printable>(call);
}

Result<Value> str_isidentifier(Call& call) {
  const std::string_view text = self_text(call);
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return Value::boolean(false);
  return str_all<is_identifier_part>(call);
}

template <bool upper>
Result<Value> str_iscase(Call& call) {
  std::string_view text = self_text(call);
  bool any = false;
  while (!text.empty()) {
    size_t bytes = 0;
    const char32_t c = decode_code_point(text, &bytes);
    if (upper ? is_lower(c) : is_upper(c)) return Value::boolean(false);
    any = any || (upper ? is_upper(c) : is_lower(c));
    text.remove_prefix(bytes);
  }
  return Value::boolean(any);
}

Result<Value> str_istitle(Call& call) {
  const std::string_view text = self_text(call);
  const std::string title = to_title(text);
  const bool cased = to_upper(text) != to_lower(text);
  return Value::boolean(cased && title == text);
}

// text[start:stop] for methods that take a range, and where it starts.
struct Window {
  std::string_view text;
  int64_t start = 0;
  bool valid = true;  // start is not past the end
};

Result<Window> window_of(Call& call, size_t start_arg) {
  const std::string_view text = self_text(call);
  if (!call.has(start_arg) && !call.has(start_arg + 1)) return Window{text};
  const int64_t size = call.self.string().length();
  int64_t start = KTX_TRY(call.integer(start_arg, 0));
  int64_t stop = KTX_TRY(call.integer(start_arg + 1, size));
  if (start < 0) start = std::max<int64_t>(0, start + size);
  if (stop < 0) stop = std::max<int64_t>(0, stop + size);
  stop = std::min(stop, size);
  if (start > stop) return Window{{}, start, false};
  KTX_TRY(call.meter.step(static_cast<int64_t>(text.size() / 32)));
  const size_t from = code_point_offset(text, start);
  const size_t bytes = code_point_offset(text.substr(from), stop - start);
  return Window{text.substr(from, bytes), start};
}

template <bool at_start>
Result<Value> str_affix(Call& call) {
  const Window window = KTX_TRY(window_of(call, 1));
  const auto matches = [&](const Value& affix) -> Result<bool> {
    if (affix.is_undefined()) return undefined_error(affix);
    if (!affix.is_string()) {
      return Error{fmt::format("{} first arg must be str or a tuple of str, not {}",
                               call.builtin.name, type_name(affix))};
    }
    if (!window.valid) return false;
    return at_start ? window.text.starts_with(affix.text()) : window.text.ends_with(affix.text());
  };
  if (!call.args[0].is(Kind::Tuple)) return Value::boolean(KTX_TRY(matches(call.args[0])));
  for (const Value& affix : call.args[0].list().items) {
    if (KTX_TRY(matches(affix))) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <bool from_end, bool required>
Result<Value> str_find(Call& call) {
  const Window window = KTX_TRY(window_of(call, 1));
  const std::string_view needle = KTX_TRY(call.text(0));
  const size_t found = !window.valid ? std::string_view::npos
                       : from_end    ? rfind_text(window.text, needle)
                                     : find_text(window.text, needle);
  if (found != std::string_view::npos) {
    return Value::integer(window.start + count_code_points(window.text.substr(0, found)));
  }
  if (required) return Error{"substring not found"};
  return Value::integer(-1);
}

Result<Value> str_count(Call& call) {
  const Window window = KTX_TRY(window_of(call, 1));
  const std::string_view needle = KTX_TRY(call.text(0));
  if (!window.valid) return Value::integer(0);
  if (needle.empty()) return Value::integer(count_code_points(window.text) + 1);
  int64_t count = 0;
  for (size_t at = find_text(window.text, needle); at != std::string_view::npos;
       at = find_text(window.text, needle, at + needle.size())) {
    ++count;
  }
  return Value::integer(count);
}

Result<Value> str_replace(Call& call) {
  std::string from(KTX_TRY(call.text(0)));
  std::string to(KTX_TRY(call.text(1)));
  if (call.self.string().markup) {
    if (!call.args[0].string().markup) from = escape_html(from);
    if (!call.args[1].string().markup) to = escape_html(to);
  }
  Value by = call.string(to);
  inherit_origin(by, call.args[1]);
  return replace_text(call.meter, call.self, from, by, KTX_TRY(call.integer(2, -1)),
                      call.self.string().markup);
}

Result<Value> to_list(Call& call, const std::vector<std::string_view>& pieces) {
  KTX_TRY(call.meter.step(static_cast<int64_t>(pieces.size())));
  KTX_TRY(call.meter.reserve(static_cast<int64_t>(pieces.size()) * kPieceBytes));
  std::vector<Value> items;
  items.reserve(pieces.size());
  for (const std::string_view piece : pieces) items.push_back(like_self(call, piece));
  return make_list(call.meter, std::move(items));
}

// Room for pieces of one byte with a separator of one byte between them.
Status reserve_pieces(const Call& call) {
  return call.meter.reserve(
      static_cast<int64_t>(self_text(call).size() / 2 * sizeof(std::string_view)));
}

// Runs of white space separate; none at the ends.
std::vector<std::string_view> split_space(std::string_view text, int64_t limit, bool from_end) {
  std::vector<std::string_view> pieces;
  const Side near = from_end ? Side::Right : Side::Left;
  text = strip_space(text, near);
  while (!text.empty()) {
    if (limit-- == 0) {
      pieces.push_back(text);
      break;
    }
    size_t length = 0;
    if (from_end) {
      while (length < text.size()) {
        const std::string_view rest = text.substr(0, text.size() - length);
        const size_t step = last_code_point_bytes(rest);
        size_t bytes = 0;
        if (is_python_space(decode_code_point(rest.substr(rest.size() - step), &bytes))) break;
        length += step;
      }
      pieces.push_back(text.substr(text.size() - length));
      text.remove_suffix(length);
    } else {
      size_t bytes = 0;
      while (length < text.size() &&
             !is_python_space(decode_code_point(text.substr(length), &bytes))) {
        length += bytes;
      }
      pieces.push_back(text.substr(0, length));
      text.remove_prefix(length);
    }
    text = strip_space(text, near);
  }
  return pieces;
}

template <bool from_end>
Result<Value> str_split(Call& call) {
  std::string_view text = self_text(call);
  int64_t limit = KTX_TRY(call.integer(1, -1));
  KTX_TRY(reserve_pieces(call));
  std::vector<std::string_view> pieces;
  if (!call.has(0) || call.args[0].is_none()) {
    pieces = split_space(text, limit, from_end);
  } else {
    const std::string_view separator = KTX_TRY(call.text(0));
    if (separator.empty()) return Error{"empty separator"};
    if (from_end && limit < 0) limit = INT64_MAX;
    for (; limit != 0; --limit) {
      // rfind on what is left would be quadratic for a long separator: its
      // matches are bounded by the steps charged here.
      KTX_TRY(call.meter.step(
          from_end ? static_cast<int64_t>(separator.size() > 16 ? text.size() / 64 : 0) : 0));
      const size_t found = from_end ? rfind_text(text, separator) : find_text(text, separator);
      if (found == std::string_view::npos) break;
      if (from_end) {
        pieces.push_back(text.substr(found + separator.size()));
        text = text.substr(0, found);
      } else {
        pieces.push_back(text.substr(0, found));
        text.remove_prefix(found + separator.size());
      }
    }
    pieces.push_back(text);
  }
  if (from_end) std::reverse(pieces.begin(), pieces.end());
  return to_list(call, pieces);
}

Result<Value> str_splitlines(Call& call) {
  KTX_TRY(reserve_pieces(call));
  return to_list(call, split_lines(self_text(call), call.flag(0)));
}

template <bool from_end>
Result<Value> str_partition(Call& call) {
  const std::string_view text = self_text(call);
  const std::string_view separator = KTX_TRY(call.text(0));
  if (separator.empty()) return Error{"empty separator"};
  const size_t found = from_end ? rfind_text(text, separator) : find_text(text, separator);
  std::string_view parts[3] = {from_end ? "" : text, "", from_end ? text : ""};
  if (found != std::string_view::npos) {
    parts[0] = text.substr(0, found);
    parts[1] = separator;
    parts[2] = text.substr(found + separator.size());
  }
  std::vector<Value> items;
  for (const std::string_view part : parts) items.push_back(like_self(call, part));
  return make_tuple(call.meter, std::move(items));
}

Result<Value> str_join(Call& call) {
  MeteredText out(call.meter);
  int64_t index = 0;
  for (const Value& item : KTX_TRY(items_of(call.meter, call.args[0]))) {
    if (!item.is_string()) {
      return Error{
          fmt::format("sequence item {}: expected str instance, {} found", index, type_name(item))};
    }
    if (index++ > 0) KTX_TRY(out.append(call.self));
    KTX_TRY(out.append(item));
  }
  return out.take_string(call.self.string().markup);
}

template <Alignment alignment>
Result<Value> str_justify(Call& call) {
  const std::string_view fill = KTX_TRY(call.text(1, " "));
  if (count_code_points(fill) != 1) {
    return Error{"the fill character must be exactly one character long"};
  }
  return like_self(call, KTX_TRY(justify(call.meter, self_text(call), KTX_TRY(call.integer(0)),
                                         fill, alignment)));
}

Result<Value> str_zfill(Call& call) {
  std::string_view text = self_text(call);
  std::string sign;
  const int64_t width = KTX_TRY(call.integer(0));
  if (call.self.string().length() >= width) return call.self;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    sign = std::string(text.substr(0, 1));
    text.remove_prefix(1);
  }
  return like_self(
      call, sign + KTX_TRY(justify(call.meter, text, width - static_cast<int64_t>(sign.size()), "0",
                                   Alignment::Right)));
}

Result<Value> str_removeprefix(Call& call) {
  std::string_view text = self_text(call);
  const std::string_view prefix = KTX_TRY(call.text(0));
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  return like_self(call, text);
}

Result<Value> str_removesuffix(Call& call) {
  std::string_view text = self_text(call);
  const std::string_view suffix = KTX_TRY(call.text(0));
  if (text.ends_with(suffix)) text.remove_suffix(suffix.size());
  return like_self(call, text);
}

Result<Value> str_expandtabs(Call& call) {
  const int64_t size = std::max<int64_t>(0, KTX_TRY(call.integer(0, 8)));
  KTX_TRY(call.meter.reserve(size));
  const std::string blanks(static_cast<size_t>(size), ' ');
  MeteredText out(call.meter);
  int64_t column = 0;
  for (std::string_view rest = self_text(call); !rest.empty();) {
    const size_t bytes = code_point_bytes(rest);
    if (rest[0] == '\t') {
      if (size > 0) {
        const int64_t fill = size - column % size;
        KTX_TRY(out.append(std::string_view(blanks).substr(0, static_cast<size_t>(fill))));
        column += fill;
      }
    } else {
      KTX_TRY(out.append(rest.substr(0, bytes)));
      column = rest[0] == '\n' || rest[0] == '\r' ? 0 : column + 1;
    }
    rest.remove_prefix(bytes);
  }
  return like_self(call, out.take());
}

Result<Value> str_format(Call& call) {
  return brace_format(call.in, call.meter, call.self, Args{call.args, call.named});
}

Result<Value> str_format_map(Call& call) {
  Args args;
  if (!call.args[0].is(Kind::Dict)) return Error{"format_map: expected a mapping"};
  for (const DictObject::Entry& entry : call.args[0].dict().entries) {
    if (entry.key.is_string()) args.named.emplace_back(entry.key.text(), entry.value);
  }
  return brace_format(call.in, call.meter, call.self, args);
}

constexpr Builtin kStringMethods[] = {
    {"capitalize", "", str_change<to_capitalized>},
    {"casefold", "", str_change<to_lower>},
    {"center", "width fillchar?", str_justify<Alignment::Center>},
    {"count", "sub start? end?", str_count},
    {"endswith", "suffix start? end?", str_affix<false>},
    {"expandtabs", "tabsize?", str_expandtabs},
    {"find", "sub start? end?", str_find<false, false>},
    {"format", "*", str_format},
    {"format_map", "mapping", str_format_map},
    {"index", "sub start? end?", str_find<false, true>},
    {"isalnum", "", str_all<is_alnum>},
    {"isalpha", "", str_all<is_alpha>},
    {"isascii", "", str_isascii},
    {"isdecimal", "", str_all<is_decimal>},
    {"isdigit", "", str_all<is_digit>},
    {"isidentifier", "", str_isidentifier},
    {"islower", "", str_iscase<false>},
    {"isnumeric", "", str_all<is_numeric>},
    {"isprintable", "", str_isprintable},
    {"isspace", "", str_all<is_python_space>},
    {"istitle", "", str_istitle},
    {"isupper", "", str_iscase<true>},
    {"join", "iterable", str_join},
    {"ljust", "width fillchar?", str_justify<Alignment::Left>},
    {"lower", "", str_change<to_lower>},
    {"lstrip", "chars?", str_strip<Side::Left>},
    {"partition", "sep", str_partition<false>},
    {"removeprefix", "prefix", str_removeprefix},
    {"removesuffix", "suffix", str_removesuffix},
    {"replace", "old new count?", str_replace},
    {"rfind", "sub start? end?", str_find<true, false>},
    {"rindex", "sub start? end?", str_find<true, true>},
    {"rjust", "width fillchar?", str_justify<Alignment::Right>},
    {"rpartition", "sep", str_partition<true>},
    {"rsplit", "sep? maxsplit?", str_split<true>},
    {"rstrip", "chars?", str_strip<Side::Right>},
    {"split", "sep? maxsplit?", str_split<false>},
    {"splitlines", "keepends?", str_splitlines},
    {"startswith", "prefix start? end?", str_affix<true>},
    {"strip", "chars?", str_strip<Side::Both>},
    {"swapcase", "", str_change<to_swapped_case>},
    {"title", "", str_change<to_title>},
    {"upper", "", str_change<to_upper>},
    {"zfill", "width", str_zfill},
};

}  // namespace

std::span<const Builtin> string_methods() {
  return kStringMethods;
}

}  // namespace ktx::text::jinja
