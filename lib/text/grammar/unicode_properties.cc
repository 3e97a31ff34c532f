#include "lib/text/grammar/unicode_properties.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <string>

#include "lib/support/regex.h"
#include "lib/support/strings.h"
#include "lib/text/utf8.h"

namespace ktx::text::grammar {
namespace {

using Ranges = std::vector<CodeRange>;

// Sets of categories, a bit for each.
constexpr uint32_t only(utf8proc_category_t category) {
  return 1u << category;
}
constexpr uint32_t from_to(utf8proc_category_t first, utf8proc_category_t last) {
  return (2u << last) - (1u << first);
}

struct CategoryRow {
  std::string_view name, long_name;  // without what is not compared
  uint32_t categories;
};
constexpr CategoryRow kCategories[] = {
    {"l", "letter", from_to(UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO)},
    {"lc", "casedletter", from_to(UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LT)},
    {"lu", "uppercaseletter", only(UTF8PROC_CATEGORY_LU)},
    {"ll", "lowercaseletter", only(UTF8PROC_CATEGORY_LL)},
    {"lt", "titlecaseletter", only(UTF8PROC_CATEGORY_LT)},
    {"lm", "modifierletter", only(UTF8PROC_CATEGORY_LM)},
    {"lo", "otherletter", only(UTF8PROC_CATEGORY_LO)},
    {"m", "mark", from_to(UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME)},
    {"m", "combiningmark", from_to(UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME)},
    {"mn", "nonspacingmark", only(UTF8PROC_CATEGORY_MN)},
    {"mc", "spacingmark", only(UTF8PROC_CATEGORY_MC)},
    {"me", "enclosingmark", only(UTF8PROC_CATEGORY_ME)},
    {"n", "number", from_to(UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO)},
    {"nd", "decimalnumber", only(UTF8PROC_CATEGORY_ND)},
    {"nd", "digit", only(UTF8PROC_CATEGORY_ND)},
    {"nl", "letternumber", only(UTF8PROC_CATEGORY_NL)},
    {"no", "othernumber", only(UTF8PROC_CATEGORY_NO)},
    {"p", "punctuation", from_to(UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO)},
    {"p", "punct", from_to(UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO)},
    {"pc", "connectorpunctuation", only(UTF8PROC_CATEGORY_PC)},
    {"pd", "dashpunctuation", only(UTF8PROC_CATEGORY_PD)},
    {"ps", "openpunctuation", only(UTF8PROC_CATEGORY_PS)},
    {"pe", "closepunctuation", only(UTF8PROC_CATEGORY_PE)},
    {"pi", "initialpunctuation", only(UTF8PROC_CATEGORY_PI)},
    {"pf", "finalpunctuation", only(UTF8PROC_CATEGORY_PF)},
    {"po", "otherpunctuation", only(UTF8PROC_CATEGORY_PO)},
    {"s", "symbol", from_to(UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SO)},
    {"sm", "mathsymbol", only(UTF8PROC_CATEGORY_SM)},
    {"sc", "currencysymbol", only(UTF8PROC_CATEGORY_SC)},
    {"sk", "modifiersymbol", only(UTF8PROC_CATEGORY_SK)},
    {"so", "othersymbol", only(UTF8PROC_CATEGORY_SO)},
    {"z", "separator", from_to(UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP)},
    {"zs", "spaceseparator", only(UTF8PROC_CATEGORY_ZS)},
    {"zl", "lineseparator", only(UTF8PROC_CATEGORY_ZL)},
    {"zp", "paragraphseparator", only(UTF8PROC_CATEGORY_ZP)},
    {"c", "other",
     from_to(UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO) | only(UTF8PROC_CATEGORY_CN)},
    {"cc", "control", only(UTF8PROC_CATEGORY_CC)},
    {"cc", "cntrl", only(UTF8PROC_CATEGORY_CC)},
    {"cf", "format", only(UTF8PROC_CATEGORY_CF)},
    {"cs", "surrogate", only(UTF8PROC_CATEGORY_CS)},
    {"co", "privateuse", only(UTF8PROC_CATEGORY_CO)},
    {"cn", "unassigned", only(UTF8PROC_CATEGORY_CN)},
};

struct ListRow {
  std::string_view name;
  Ranges ranges;
};
const ListRow kLists[] = {
    {"any", {{0, 0xD7FF}, {0xE000, kMaxCodePoint}}},
    {"ascii", {{0, 0x7F}}},
    {"whitespace",
     {{9, 13},
      {' ', ' '},
      {0x85, 0x85},
      {0xA0, 0xA0},
      {0x1680, 0x1680},
      {0x2000, 0x200A},
      {0x2028, 0x2029},
      {0x202F, 0x202F},
      {0x205F, 0x205F},
      {0x3000, 0x3000}}},
    {"emojicomponent",
     {{'#', '#'},
      {'*', '*'},
      {'0', '9'},
      {0x200D, 0x200D},
      {0x20E3, 0x20E3},
      {0xFE0F, 0xFE0F},
      {0x1F1E6, 0x1F1FF},
      {0x1F3FB, 0x1F3FF},
      {0x1F9B0, 0x1F9B3},
      {0xE0020, 0xE007F}}},
};

// What is known of all characters, as ranges of one value each. Made once, in some 10 ms.
struct ValueRange {
  CodeRange range;
  utf8proc_category_t category;
  bool pictographic;
};
const std::vector<ValueRange>& all_values() {
  static const std::vector<ValueRange> values = [] {
    std::vector<ValueRange> out;
    for (uint32_t code = 0; code <= kMaxCodePoint; ++code) {
      const utf8proc_property_t& property =
          *utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
      const auto category = static_cast<utf8proc_category_t>(property.category);
      const bool pictographic = property.boundclass == UTF8PROC_BOUNDCLASS_EXTENDED_PICTOGRAPHIC;
      if (!out.empty() && out.back().category == category &&
          out.back().pictographic == pictographic) {
        out.back().range.last = code;
      } else {
        out.push_back({{code, code}, category, pictographic});
      }
    }
    return out;
  }();
  return values;
}

template <typename Holds>
Ranges characters(Holds holds) {
  Ranges out;
  for (const ValueRange& value : all_values()) {
    if (value.category == UTF8PROC_CATEGORY_CS || !holds(value)) continue;
    if (!out.empty() && out.back().last + 1 == value.range.first) {
      out.back().last = value.range.last;
    } else {
      out.push_back(value.range);
    }
  }
  return out;
}

std::string compared(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '_' || c == '-' || c == ' ') continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c | 32) : c;
  }
  return out;
}

// All characters that have properties, each once; those behind are unassigned or for private use.
const std::vector<std::string>& all_characters() {
  static const std::vector<std::string> parts = [] {
    std::vector<std::string> out;
    constexpr CodeRange kParts[] = {{0, 0xD7FF}, {0xE000, 0x3FFFF}, {0xE0000, 0xE0FFF}};
    for (const CodeRange& part : kParts) {
      std::string& text = out.emplace_back();
      for (uint32_t code = part.first; code <= part.last; ++code) append_utf8(code, text);
    }
    return out;
  }();
  return parts;
}

// Those that PCRE2 finds, in some milliseconds.
Ranges found_characters(const Regex& regex) {
  Ranges out;
  RegexScanner scanner(regex);
  for (const std::string& text : all_characters()) {
    Regex::Match match;
    for (size_t at = 0; scanner.next(text, at, match) == RegexScanner::Found::Match;) {
      size_t last = match.end - 1;
      while ((static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
      const std::string_view all = text;
      out.push_back(
          {decode_utf8(all.substr(match.begin)).code, decode_utf8(all.substr(last)).code});
      at = match.end;
    }
  }
  return out;
}

// As PCRE2 writes properties: of scripts those characters that have no other first, then what has
// the name at all (all that older versions know).
Result<Regex> library_property(std::string_view name) {
  const size_t sign = name.find('=');
  const std::string key = sign == name.npos ? "" : compared(name.substr(0, sign));
  const std::string_view value = name.substr(sign == name.npos ? 0 : sign + 1);
  const bool is_name = !value.empty() && std::all_of(value.begin(), value.end(), [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  });
  const bool extends = key == "scx" || key == "scriptextensions";
  if (is_name && (extends || key.empty() || key == "sc" || key == "script")) {
    for (const char* form : {extends ? "scx:" : "sc:", ""}) {
      Result<Regex> regex = Regex::compile(fmt::format("\\p{{{}{}}}++", form, value));
      if (regex) return regex;
    }
  }
  return Error{fmt::format("'{}' is no property of characters", printable(name))};
}

}  // namespace

Result<Ranges> property_characters(std::string_view name, RegularWork& work) {
  const std::string whole = compared(name);
  std::string_view category = whole;
  for (const std::string_view key : {"gc=", "generalcategory="}) {
    if (category.starts_with(key)) category.remove_prefix(key.size());
  }
  for (const CategoryRow& row : kCategories) {
    if (category != row.name && category != row.long_name) continue;
    return characters([&](const ValueRange& v) { return (row.categories >> v.category & 1) != 0; });
  }
  for (const ListRow& row : kLists) {
    if (whole == row.name) return row.ranges;
  }
  if (whole == "assigned") {
    return characters([](const ValueRange& v) { return v.category != UTF8PROC_CATEGORY_CN; });
  }
  if (whole == "extendedpictographic" || whole == "extpict") {
    return characters([](const ValueRange& v) { return v.pictographic; });
  }
  constexpr uint64_t kSearchWork = 250'000;
  const Regex regex = KTX_TRY(library_property(name));
  if (!work.spend(kSearchWork)) return Error{"too many properties of characters"};
  return found_characters(regex);
}

}  // namespace ktx::text::grammar
