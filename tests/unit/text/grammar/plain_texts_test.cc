#include "lib/text/grammar/plain_texts.h"

#include <gmock/gmock.h>

#include "tests/unit/text/grammar/grammar_tools.h"

namespace ktx::text {
namespace {

using ::testing::HasSubstr;

Result<Grammar> choice(const std::vector<std::string>& texts) {
  return Grammar::compile_choice(texts, small_vocabulary());
}

TEST(PlainTexts, AChoiceIsOneOfItsTexts) {
  const Result<Grammar> grammar = choice({"yes", "yes sir", "no", "né\"\n", ""});
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  for (const char* text : {"yes", "yes sir", "no", "né\"\n", ""}) {
    EXPECT_TRUE(matches(*grammar, text)) << text;
  }
  for (const char* text : {"ye", "yes ", "yesno", "\"yes\""}) {
    EXPECT_FALSE(matches(*grammar, text)) << text;
  }
  EXPECT_EQ(choice({}).error().message, "there is no text to choose");
  EXPECT_THAT(choice(std::vector<std::string>(10'001, "a")).error().message,
              HasSubstr("10001 texts to choose from; at most 10000"));
  EXPECT_FALSE(choice({std::string(2'000'000, 'a')}).ok()) << "too large";
}

TEST(PlainTexts, ARegexMatchesTheWholeText) {
  const auto regex = [](const char* pattern) {
    return Grammar::compile({GrammarKind::Regex, pattern}, small_vocabulary());
  };
  for (const char* pattern : {R"(\d{3}-[a-c]+)", R"(^\d{3}-[a-c]+$)"}) {
    const Result<Grammar> grammar = regex(pattern);
    ASSERT_TRUE(grammar.ok()) << grammar.error().message;
    EXPECT_TRUE(matches(*grammar, "123-ab"));
    for (const char* text : {"123-", "123-abx", "x123-a", "\"123-a\""}) {
      EXPECT_FALSE(matches(*grammar, text)) << pattern << text;
    }
  }
  // Nothing is escaped as in JSON; punctuation may be.
  const Result<Grammar> grammar = regex(R"([^x]"\n\#\ \-(a|b)?)");
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_TRUE(matches(*grammar, "\n\"\n# -"));
  EXPECT_TRUE(matches(*grammar, "你\"\n# -b"));
  EXPECT_FALSE(matches(*grammar, "x\"\n# -"));
  EXPECT_THAT(regex(R"((?=a)b)").error().message, HasSubstr("matches no text"));
  EXPECT_THAT(regex(R"(a(?<=b)b)").error().message, HasSubstr("look-around"));
  EXPECT_THAT(regex("(a").error().message, HasSubstr("'(' without ')'"));
  EXPECT_THAT(regex("[ab]*a[ab]{30}").error().message, HasSubstr("too large"));
}

}  // namespace
}  // namespace ktx::text
