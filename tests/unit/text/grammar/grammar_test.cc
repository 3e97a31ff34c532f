#include "lib/text/grammar/grammar.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <optional>
#include <span>
#include <thread>

#include "tests/unit/text/grammar/grammar_tools.h"

namespace ktx::text {
namespace {

constexpr const char* kPerson = R"({
  "type": "object",
  "properties": {
    "name": {"type": "string"},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "tags": {"type": "array", "items": {"type": "string"}},
    "boss": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}
  },
  "required": ["name", "age"]
})";

// The mask, found the slow way: is each token accepted? None where accept() gave up.
std::vector<std::optional<bool>> tried(const GrammarState& state, size_t size) {
  std::vector<std::optional<bool>> out;
  for (size_t t = 0; t < size; ++t) {
    GrammarState copy = state;
    const bool accepted = copy.accept(static_cast<int32_t>(t));
    out.push_back(copy.exhausted() ? std::nullopt : std::optional(accepted));
  }
  return out;
}

// Along random answers, each mask beside what accept() says of every token.
void expect_masks_are_right(const Grammar& grammar, int rounds, std::mt19937& random,
                            std::string_view begin = "") {
  const size_t size = grammar.vocabulary().size();
  std::vector<uint32_t> mask(grammar.vocabulary().mask_words());
  for (int round = 0; round < rounds; ++round) {
    GrammarState state(grammar);
    ASSERT_TRUE(state.accept(begin));
    for (int step = 0; step < 25; ++step) {
      state.fill_mask(mask);
      if (state.exhausted()) break;  // too many ways to read the text: no mask, by contract
      const std::vector<std::optional<bool>> want = tried(state, size);
      std::vector<int32_t> allowed;
      for (size_t t = 0; t < size; ++t) {
        if (!want[t]) continue;
        const bool is_set = mask[t / 32] >> (t % 32) & 1;
        ASSERT_EQ(is_set, want[t]) << "token " << t << " step " << step;
        if (is_set && t != kEndToken) allowed.push_back(static_cast<int32_t>(t));
      }
      if (allowed.empty()) break;
      ASSERT_TRUE(state.accept(allowed[random() % allowed.size()]));
    }
  }
}

TEST(GrammarState, MaskIsWhatAcceptAccepts) {
  std::mt19937 random(21);
  const Grammar kGrammars[] = {
      schema(kPerson),
      schema("true"),
      schema(R"({"type": "array", "items": {"type": "array", "items": true}})"),
      gbnf("root ::= [ab] | \"a\" root \"a\" | \"b\" root \"b\" | \"ab\" root"),
      gbnf("root ::= s\ns ::= w (\", \" s)? | \"[\" s \"]\"\nw ::= [a-z]+ | \"\\\"\" [^\"]* "
           "\"\\\"\""),
      // Strings with limits, alone and where their end leads to other rules.
      schema(R"({"type": "string", "maxLength": 3})"),
      schema(R"({"type": "string", "minLength": 2, "maxLength": 9})"),
      schema(R"({"type": "array", "items": {"type": "string", "maxLength": 2}})"),
      schema(R"({"type": "string", "pattern": "^[a-z ]{1,4}$"})"),
      schema(R"({"anyOf": [{"type": "string", "maxLength": 2}, {"enum": ["abcd", "xyz"]}]})"),
      gbnf("root ::= [^\"\\\\\\x00-\\x1f]{1,4} root? \"!\""),
      gbnf("root ::= [^\"\\\\\\x00-\\x1f]{3} [a-c]{0,2}"),
  };
  for (const Grammar& grammar : kGrammars) expect_masks_are_right(grammar, 15, random);
}

// Loops count on the stack (grammar_automaton.h): at their begin, in their middle and at their end,
// within each other, and with what comes behind them.
TEST(GrammarState, MasksOfLoopsAreRight) {
  std::mt19937 random(11);
  const Grammar text = schema(R"({"type": "string", "minLength": 3, "maxLength": 600})");
  const Grammar list = schema(
      R"({"type": "array", "minItems": 2, "maxItems": 700,
          "items": {"type": "array", "items": {"enum": ["a", "ab", 12]}, "maxItems": 900}})");
  const Grammar run =
      gbnf("root ::= [a-z ]{4,2500} \"9\"? | \"[\" ([^\\]]{2,700} \",\"){1,2} \"]\"");
  for (const int left : {0, 1, 2, 5, 9, 30}) {
    expect_masks_are_right(text, 4, random, "\"" + std::string(600 - left, 'a'));
    expect_masks_are_right(run, 4, random, std::string(2500 - left, 'b'));
    std::string items = "[[]";
    for (int i = 1; i < 700 - left; ++i) items += ",[]";
    expect_masks_are_right(list, 4, random, items);
    items = "[[\"a\"";
    for (int i = 1; i < 900 - left; ++i) items += ", 12";
    expect_masks_are_right(list, 4, random, items);
  }
  for (const Grammar& grammar : {text, list, run}) expect_masks_are_right(grammar, 6, random);
}

// Five rules that call each other, of these literals.
std::string random_gbnf(std::span<const char* const> literals, std::mt19937& random) {
  std::string text;
  for (int rule = 0; rule < 5; ++rule) {
    text += rule == 0 ? "root ::= " : fmt::format("r{} ::= ", rule);
    const auto ways = 1 + random() % 3;
    for (uint32_t way = 0; way < ways; ++way) {
      if (way > 0) text += " | ";
      text += literals[random() % literals.size()];
      for (auto parts = random() % 4; parts > 0; --parts) {
        const char* const kCounts[] = {"", "", "?", "*"};
        text += random() % 2 ? fmt::format(" {}", literals[random() % literals.size()])
                             : fmt::format(" r{}{}", 1 + random() % 4, kCounts[random() % 4]);
      }
    }
    text += "\n";
  }
  return text;
}

void expect_masks_of_random_grammars_are_right(
    std::span<const char* const> literals,
    const std::shared_ptr<const GrammarVocabulary>& vocabulary, int grammars) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  int compiled = 0;
  for (int made = 0; made < grammars; ++made) {
    const std::string text = random_gbnf(literals, random);
    Result<Grammar> grammar = Grammar::compile({GrammarKind::Gbnf, text}, vocabulary);
    if (!grammar) continue;  // it matches no text at all
    ++compiled;
    SCOPED_TRACE(text);
    expect_masks_are_right(*grammar, 3, random);
    if (::testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GE(compiled, grammars / 4);
}

// Rules that call each other, also at their ends and where nothing need follow: what may
// come behind one is known from all its callers (follow_bytes.h).
TEST(GrammarState, MasksOfRulesThatCallEachOtherAreRight) {
  const char* const kLiterals[] = {"\"a\"", "\"b\"", "\"ab\"",    "\"[\"",
                                   "\"]\"", "\",\"", "[ab]{1,3}", "\" \""};
  expect_masks_of_random_grammars_are_right(kLiterals, small_vocabulary(), 40);
}

// Tokens that are runs of one set of bytes are not followed (byte_runs.h): words of all lengths,
// alone, behind a space and before other bytes, where the run has room, ends, and goes on.
TEST(GrammarState, MasksOfRunsAreRight) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.emplace_back("");  // the end
  std::mt19937 random(4);
  for (int i = 0; i < 250; ++i) {
    std::string word(1 + random() % 7, 'x');
    for (char& c : word) c = static_cast<char>('a' + random() % (i % 2 == 0 ? 4 : 26));
    const char* const kBefore[] = {"", "", " ", "A", "1"};
    const char* const kBehind[] = {"", "", "", "(", " b", "9", "\n", "é"};
    tokens.push_back(kBefore[random() % 5] + word + kBehind[random() % 8]);
  }
  for (const size_t length : {31, 32, 33, 40}) tokens.emplace_back(length, 'm');
  const auto vocabulary = GrammarVocabulary::create(std::move(tokens), {kEndToken});
  // Most end with a byte that their run does not have: what can be read in very many ways meets
  // limits, and then a mask may leave out what accept() takes.
  const char* const kLiterals[] = {"[a-z]{1,3} \"(\"",
                                   "[a-z]+ \" \"",
                                   "[a-zA-Z]{2,5} [0-9]?",
                                   "[a-z ]* \"9\"",
                                   "[^\\n]{1,4} \"\\n\"",
                                   "[a-p]{1,2} [a-d]{1,2}",
                                   "\"m\"",
                                   "\"(\"",
                                   "[a-z]{33} \"A\"",
                                   "[ -~]{0,40} \"\\n\""};
  expect_masks_of_random_grammars_are_right(kLiterals, vocabulary, 20);
}

TEST(GrammarState, TokensOfAnyLengthFitWhereThereIsRoom) {
  std::vector<std::string> tokens = {"\"",
                                     "a",
                                     "é",
                                     std::string(100, 'a'),
                                     std::string(254, 'b'),
                                     std::string(255, 'c'),
                                     std::string(300, 'd'),
                                     "ab\"",
                                     ""};
  const auto end = static_cast<int32_t>(tokens.size()) - 1;
  const auto vocabulary = GrammarVocabulary::create(tokens, {end});
  for (const int limit : {0, 1, 99, 100, 254, 255, 299, 300, -1}) {
    const std::string source =
        limit < 0 ? R"({"type": "string"})"
                  : R"({"type": "string", "maxLength": )" + std::to_string(limit) + "}";
    GrammarState state(Grammar::compile({GrammarKind::JsonSchema, source}, vocabulary).take());
    ASSERT_TRUE(state.accept("\""));
    std::vector<uint32_t> mask(vocabulary->mask_words());
    state.fill_mask(mask);
    const std::vector<std::optional<bool>> want = tried(state, tokens.size());
    for (size_t t = 0; t < tokens.size(); ++t) {
      EXPECT_EQ(mask[0] >> t & 1, want[t]) << "token " << t << ", limit " << limit;
    }
  }
}

TEST(GrammarState, ARefusedTokenChangesNothing) {
  GrammarState state(schema(kPerson));
  ASSERT_TRUE(state.accept(R"({"name": "To)"));
  std::vector<uint32_t> before(small_vocabulary()->mask_words()), after(before);
  state.fill_mask(before);
  EXPECT_FALSE(state.accept("\n"));
  EXPECT_FALSE(state.accept("m\", \"tags"));
  EXPECT_FALSE(state.accept(kEndToken));
  EXPECT_FALSE(state.accept(-1));
  EXPECT_FALSE(state.accept(1 << 30));
  state.fill_mask(after);
  EXPECT_EQ(before, after);
  EXPECT_TRUE(state.accept(R"(m", "age": 3})"));
}

TEST(GrammarState, EndsOnceTheTextIsComplete) {
  GrammarState state(schema(R"({"type": "integer"})"));
  EXPECT_FALSE(state.may_end());
  ASSERT_TRUE(state.accept("12"));
  EXPECT_TRUE(state.may_end());
  EXPECT_FALSE(state.must_end());
  ASSERT_TRUE(state.accept(kEndToken));
  EXPECT_TRUE(state.must_end());
  EXPECT_FALSE(state.accept("3"));
  std::vector<uint32_t> mask(small_vocabulary()->mask_words(), ~0u);
  EXPECT_FALSE(state.fill_mask(mask));
  EXPECT_THAT(mask, ::testing::Each(0u));
  GrammarState object(schema(R"({"type": "object", "additionalProperties": false})"));
  ASSERT_TRUE(object.accept("{}"));
  EXPECT_TRUE(object.must_end());
  EXPECT_TRUE(object.may_end());
}

TEST(GrammarState, CopiesGoTheirOwnWays) {
  GrammarState state(schema(kPerson));
  ASSERT_TRUE(state.accept(R"({"name": "a", "age": 1, "boss": )"));
  GrammarState other = state;
  EXPECT_TRUE(state.accept("null}"));
  EXPECT_TRUE(state.may_end());
  EXPECT_FALSE(other.may_end());
  EXPECT_TRUE(other.accept(R"({"name": "b", "age": 2})"));
  EXPECT_TRUE(other.accept("}"));
  EXPECT_TRUE(other.may_end());
}

TEST(Grammar, ManyThreadsShareOne) {
  const Grammar grammar = schema(kPerson);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&grammar, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 5; ++i) (void)sample(grammar, random, 60);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ktx::text
