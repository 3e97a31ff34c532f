#include "lib/text/grammar/unicode_properties.h"

#include <gmock/gmock.h>
#include <utf8proc.h>

#include <algorithm>

#include "tests/support/cpu_time.h"
#include "tests/unit/text/grammar/grammar_tools.h"

namespace ktx::text::grammar {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

Result<std::vector<CodeRange>> characters(std::string_view name) {
  RegularWork work;
  return property_characters(name, work);
}
bool has(const std::vector<CodeRange>& ranges, uint32_t code) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const CodeRange& range) {
    return code >= range.first && code <= range.last;
  });
}

TEST(UnicodeProperties, EveryCharacterHasOneCategory) {
  std::vector<std::vector<CodeRange>> all;
  std::vector<std::string> names;
  for (const char* name :
       {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
        "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"}) {
    all.push_back(characters(name).value());
    names.emplace_back(name);
  }
  for (uint32_t code = 0; code <= kMaxCodePoint; code += code < 0x3000 ? 1 : 97) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    const std::string category = utf8proc_category_string(static_cast<utf8proc_int32_t>(code));
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(has(all[i], code), names[i] == category) << code << names[i];
    }
  }
}

TEST(UnicodeProperties, NamesAreLongOrShort) {
  const auto same = [](const char* a, const char* b) {
    const auto x = characters(a), y = characters(b);
    return x && y && std::equal(x->begin(), x->end(), y->begin(), y->end(), [](auto& p, auto& q) {
             return p.first == q.first && p.last == q.last;
           });
  };
  for (const char* name :
       {"Letter", "letter", "gc=L", "General_Category=Letter", "general category=l"}) {
    EXPECT_TRUE(same("L", name)) << name;
  }
  EXPECT_TRUE(same("Lu", "Uppercase_Letter"));
  EXPECT_TRUE(same("Nd", "digit"));
  EXPECT_FALSE(same("Lu", "Ll"));
  EXPECT_TRUE(has(*characters("Extended_Pictographic"), 0x1F98A));
  EXPECT_FALSE(has(*characters("Extended_Pictographic"), 'a'));
  EXPECT_TRUE(has(*characters("Any"), 0x10FFFF));
  EXPECT_FALSE(has(*characters("Any"), 0xD800));
  for (const char* name :
       {"", "X", "Klingon", "Script=Klingon", "Script=", "script=L}", "L}", "gc="}) {
    EXPECT_FALSE(characters(name).ok()) << name;
  }
}

// Those that utf8proc does not know are PCRE2's.
TEST(UnicodeProperties, ScriptsAreKnown) {
  for (const char* name :
       {"Script=Greek", "sc=Greek", "Greek", "Script_Extensions=Greek", "scx=Greek"}) {
    const auto greek = characters(name);
    ASSERT_TRUE(greek.ok()) << name;
    for (const uint32_t code : {0x3B1u, 0x3A9u, 0x1F00u, 0x1D242u}) EXPECT_TRUE(has(*greek, code));
    for (const uint32_t code : {uint32_t{'a'}, 0x416u, 0x4E00u}) EXPECT_FALSE(has(*greek, code));
  }
  const auto han = characters("Script=Han");
  ASSERT_TRUE(han.ok());
  for (const uint32_t code : {0x4E00u, 0x20000u, 0x2FA1Du}) EXPECT_TRUE(has(*han, code));
  EXPECT_FALSE(has(*han, 0x3042));
  for (size_t i = 1; i < han->size(); ++i) EXPECT_GT((*han)[i].first, (*han)[i - 1].last + 1);
}

std::string of_pattern(const std::string& pattern) {
  return ordered_json({{"type", "string"}, {"pattern", pattern}}).dump();
}
std::string quoted(std::string_view text) {
  return "\"" + std::string(text) + "\"";
}

TEST(UnicodeProperties, PatternsHaveThem) {
  struct Case {
    const char* pattern;
    std::vector<const char*> yes, no;
  };
  const Case kCases[] = {
      {R"(^\p{L}+$)", {"a", "Zoé", "你好", "Ωмега", "ﬁ"}, {"", "a1", "a b", "_", "🦊"}},
      {R"(^\p{Lu}\p{Ll}*$)", {"É", "Ab", "Ωмега"}, {"a", "AB", "你"}},
      {R"(^\P{N}*$)", {"", "ab !", "你"}, {"1", "٣", "Ⅷ", "a½"}},
      {R"(^[\p{L}\p{M}\p{N}_ .'-]{1,40}$)", {"O'Neil-Ångström 2", "नमस्ते"}, {"a@b", "a/b"}},
      {R"(^[^\p{C}\p{Z}]+$)",
       {"a-b", "é"},
       {"a b",
        "a\xC2\xA0"
        "b"}},
      {R"(^[^\P{L}]$)", {"a", "é"}, {"1"}},
      {R"(^\p{Uppercase_Letter}\p{gc=Nd}$)", {"A1", "É٣"}, {"a1", "A½"}},
      {R"(^(\p{Extended_Pictographic}|\p{Emoji_Component})+$)",
       {"🦊", "👍🏽", "👩‍🔬", "1"},
       {"a", "é"}},
      {R"(^\pL\u{1F98A}\uD83E\uDD8A$)", {"a🦊🦊"}, {"a🦊"}},
      {R"(^[\p{Script=Greek}\p{Script=Han} ]+$)", {"Ωμέγα 你好"}, {"a", "あ"}},
      {R"(^\P{Script=Latin}+$)", {"Ω1 ", "你"}, {"a", "Ωa"}},
      {R"(^(?=.*\p{Lu})[\p{L}]{2,4}$)", {"aB", "éÉ"}, {"ab", "A", "ABCDE"}},
  };
  for (const Case& c : kCases) {
    const Grammar grammar = schema(of_pattern(c.pattern));
    for (const char* text : c.yes) EXPECT_TRUE(matches(grammar, quoted(text))) << c.pattern << text;
    for (const char* text : c.no) EXPECT_FALSE(matches(grammar, quoted(text))) << c.pattern << text;
  }
  const auto error = [](const char* pattern) {
    return error_of(GrammarKind::JsonSchema, of_pattern(pattern));
  };
  EXPECT_THAT(error(R"(^a\p{Script=Klingon}$)"),
              HasSubstr("character 6: 'Script=Klingon' is no property of characters"));
  std::string many;
  for (int i = 0; i < 200; ++i) many += R"(\p{Script=Greek})";
  EXPECT_THAT(error(many.c_str()), HasSubstr("too many properties of characters"));
  EXPECT_THAT(error(R"(\p{L)"), HasSubstr("no name of a property"));
  EXPECT_THAT(error(R"(\p)"), HasSubstr("no name of a property"));
  EXPECT_THAT(error(R"(\p{})"), HasSubstr("'' is no property"));
  EXPECT_THAT(error(R"([a-\p{L}])"), HasSubstr("not a range"));
  for (const char* bad : {R"(\u{})", R"(\u{110000})", R"(\u{41)", R"(\uD83E)", R"(\uD83Ex)",
                          R"(\uD83E\u0041)", R"(\u{D800})", R"(\u00)", R"(\x)"}) {
    EXPECT_THAT(error(bad), HasSubstr("character 2: not a character")) << bad;
  }
}

// 650 ranges in each of many places.
TEST(UnicodeProperties, RepeatedOnesFit) {
  for (const char* pattern :
       {R"(^\p{L}{1,1000}$)", R"(^[\p{L}\p{N} ]{1,100}( \p{Lu}[\p{L}'-]{0,50}){0,10}$)",
        R"(^\p{L}*@\p{L}{2,}\.\P{L}{3}$)"}) {
    const double begin = testing::cpu_seconds();
    EXPECT_EQ(error_of(GrammarKind::JsonSchema, of_pattern(pattern)), "no error") << pattern;
    EXPECT_LT(testing::cpu_seconds() - begin, 5) << pattern;
  }
}

}  // namespace
}  // namespace ktx::text::grammar
