#include "lib/text/grammar/gbnf.h"

#include <gmock/gmock.h>

#include "tests/unit/text/grammar/grammar_tools.h"

namespace ktx::text {
namespace {

using ::testing::HasSubstr;

struct Case {
  const char* grammar;
  std::vector<std::string> yes;
  std::vector<std::string> no;
};

const Case kCases[] = {
    {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "ye", "yesno", "YES"}},
    {"root ::= \"\"", {""}, {"x"}},
    {"root ::= [a-c]+ [^x]", {"aa", "abc!", "cé"}, {"a", "ax", "d!"}},
    {"root ::= \"a\"{2} \"b\"{1,2} \"c\"{0,} \"d\"?", {"aab", "aabbccd"}, {"ab", "aabbb", "aabdd"}},
    {"root ::= a | b\na ::= \"x\" # one\n\n# two\nb ::=\n  \"y\"\n  \"z\"",
     {"x", "yz"},
     {"y", "z"}},
    {"root ::= (\"a\" | \"b\" (\"c\")*)+", {"a", "bcca", "abab"}, {"", "c"}},
    {"root ::= \"\\x41\\u00e9\\U0001F600\\n\\\"\\\\\"", {"Aé😀\n\"\\"}, {"A"}},
    {"root ::= [\\]\\-a^] [é-ü你]", {"]é", "-ü", "a你", "^ê"}, {"aa", "\\é"}},
    {"root ::= . .", {"ab", "你好", "a\n"}, {"a", "abc", "\xFF\xFF"}},
    // recursion: balanced brackets, and a palindrome of many stacks at once
    {"root ::= \"(\" root \")\" | \"\"", {"", "((()))"}, {"(", "(()", "())"}},
    {"root ::= [ab] | \"a\" root \"a\" | \"b\" root \"b\"", {"a", "aba", "abbabba"}, {"ab", ""}},
    {"root ::= e\ne ::= t (\"+\" t)*\nt ::= f (\"*\" f)*\nf ::= [0-9]+ | \"(\" e \")\"",
     {"1", "1+2*(3+4)", "((1))"},
     {"1+", "(1", "+1"}},
    {"root ::= x root-2\nx ::= \"\" | \"a\"\nroot-2 ::= \"b\" | x \"c\"",
     {"b", "aac", "c"},
     {"aaac"}},
    {"root ::= (\"a\"?)* \"b\"", {"b", "aaab"}, {"a"}},
};

TEST(Gbnf, MatchesWhatItSays) {
  for (const Case& c : kCases) {
    const Grammar grammar = gbnf(c.grammar);
    for (const std::string& text : c.yes)
      EXPECT_TRUE(matches(grammar, text)) << c.grammar << ": " << text;
    for (const std::string& text : c.no)
      EXPECT_FALSE(matches(grammar, text)) << c.grammar << ": " << text;
  }
}

TEST(Gbnf, SaysWhatIsWrongAndWhere) {
  const std::pair<const char*, const char*> kErrors[] = {
      {"", "no rule 'root'"},
      {"a ::= \"x\"", "no rule 'root'"},
      {"root ::= b", "grammar:1:10: rule 'b' is not defined"},
      {"root ::= \"a\"\nroot ::= \"b\"", "grammar:2:1: rule 'root' is defined twice"},
      {"root ::= \"a", "grammar:1:12: the literal has no closing '\"', found the end"},
      {"root ::= [a", "the class has no closing ']'"},
      {"root ::= (\"a\"", "expected ')'"},
      {"root ::= \"a\" )", "expected"},
      {"root = \"a\"", "grammar:1:6: expected '::=' behind the rule name, found '= \"a\"'"},
      {"root ::= \"\\q\"", "unknown escape"},
      {"root ::= \"\\uD800\"", "not a character"},
      {"root ::= [b-a]", "the range ends below its begin"},
      {"root ::= \"a\"{3,2}", "a repetition ends below its begin"},
      {"root ::= \"a\"{99999999999}", "expected a number from 0 to 10000"},
      {"root ::= *", "expected a literal"},
      {"root ::= \"\xFF\"", "not UTF-8"},
      {"root ::= root \"a\" | \"b\"", "left-recursive"},
      {"root ::= x root \"a\" | \"b\"\nx ::= \"\"", "left-recursive"},
      {"root ::= \"a\" root", "matches no text at all"},
      {"root ::= []", "matches no text at all"},
  };
  for (const auto& [text, error] : kErrors) {
    EXPECT_THAT(error_of(GrammarKind::Gbnf, text), HasSubstr(error)) << text;
  }
}

TEST(Gbnf, HostileGrammarsMeetLimits) {
  const std::string open(100000, '(');
  EXPECT_THAT(error_of(GrammarKind::Gbnf, "root ::= " + open), HasSubstr("nested deeper"));
  // A repetition whose length is known is counted; one that may end early beside its like is
  // copied.
  EXPECT_EQ(error_of(GrammarKind::Gbnf,
                     "root ::= [ab]{9999} [abc]{9999} [bcd]{9999} [a-z]{9999} [a-z]{9999} "
                     "[a-z]{9999} [a-z]{9999}"),
            "no error");
  EXPECT_THAT(error_of(GrammarKind::Gbnf,
                       "root ::= [ab]{0,9999} [abc]{0,9999} [bcd]{0,9999} [a-z]{0,9999} "
                       "[a-z]{0,9999} [a-z]{0,9999} [a-z]{0,9999}"),
              HasSubstr("too large"));
  EXPECT_THAT(error_of(GrammarKind::Gbnf, "root ::= [ab]* \"a\" [ab]{30}"), HasSubstr("too large"));
  std::string doubling = "root ::= r0\n";
  for (int i = 0; i < 60; ++i) {
    doubling += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " r" +
                std::to_string(i + 1) + "\n";
  }
  EXPECT_EQ(error_of(GrammarKind::Gbnf, doubling + "r60 ::= \"a\""), "no error");  // by calls
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 5000; ++i) {
    chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + " | \"a\"\n";
  }
  EXPECT_TRUE(matches(gbnf(chain + "r5000 ::= \"b\""), "b"));
  EXPECT_EQ(error_of(GrammarKind::Gbnf, chain + "r5000 ::= \"b\" r0"), "no error");
  EXPECT_THAT(error_of(GrammarKind::Gbnf, chain + "r5000 ::= r0"), HasSubstr("left-recursive"));
  EXPECT_THAT(error_of(GrammarKind::Gbnf, std::string(2 << 20, ' ')), HasSubstr("bytes; at most"));
}

// An ambiguous text has many parses at once; they are kept apart only as long as they differ.
TEST(Gbnf, AmbiguousGrammarsTakeBoundedTime) {
  const Grammar grammar = gbnf("root ::= x*\nx ::= \"a\" | \"a\" x | \"a\" x \"a\"");
  GrammarState state(grammar);
  EXPECT_TRUE(state.accept(std::string(300, 'a')));
}

// A mask follows every token of the vocabulary: what a text can be read as bounds that too.
TEST(Gbnf, MasksOfAmbiguousGrammarsAreGivenUpInTime) {
  std::vector<std::string> words;
  std::mt19937 random(1);
  while (words.size() < 20000) {
    std::string& word = words.emplace_back();
    for (size_t i = 0; i < 1 + words.size() % 12; ++i)
      word += static_cast<char>('a' + random() % 26);
  }
  const auto vocabulary = GrammarVocabulary::create(std::move(words), {});
  const auto after = [&](const char* grammar, size_t letters) {
    GrammarState state(Grammar::compile({GrammarKind::Gbnf, grammar}, vocabulary).take());
    EXPECT_TRUE(state.accept(std::string(letters, 'a'))) << grammar;
    return state;
  };
  std::vector<uint32_t> mask(vocabulary->mask_words());
  for (const char* hostile :
       {"root ::= x*\nx ::= . | . x | . x .", "root ::= s\ns ::= . | . s s s s"}) {
    const GrammarState state = after(hostile, 30);
    EXPECT_FALSE(state.fill_mask(mask)) << hostile;
    EXPECT_TRUE(state.exhausted()) << hostile;
    EXPECT_EQ(mask, std::vector<uint32_t>(mask.size(), 0));
  }
  const GrammarState palindrome = after("root ::= [a-z] root [a-z] | [a-z]", 20);
  EXPECT_TRUE(palindrome.fill_mask(mask));
  EXPECT_FALSE(palindrome.exhausted());
}

TEST(Gbnf, DeepTextIsCutNotCrashed) {
  GrammarState state(gbnf("root ::= \"(\" root \")\" | \"x\""));
  EXPECT_TRUE(state.accept(std::string(200, '(') + "x" + std::string(200, ')')));
  GrammarState deep(gbnf("root ::= \"(\" root \")\" | \"x\""));
  EXPECT_FALSE(deep.accept(std::string(100000, '(')));
}

}  // namespace
}  // namespace ktx::text
