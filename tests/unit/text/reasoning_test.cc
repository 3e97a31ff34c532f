#include "lib/text/answers/reasoning.h"

#include <gtest/gtest.h>

#include "tests/unit/text/stream_pieces.h"

namespace ktx::text {
namespace {

struct Case {
  const char* text;
  bool already_open;
  const char* reasoning;
  const char* answer;
};

constexpr Case kCases[] = {
    {"<think>\nThe user greets.\n</think>\n\nHello!", false, "The user greets.", "Hello!"},
    {"The user greets.\n</think>\n\nHello!", true, "The user greets.", "Hello!"},
    {"\n <think>a</think>b", false, "a", "b"},
    {"<think>\n\n</think>\n\nHello!", false, "", "Hello!"},
    {"Hello!", false, "", "Hello!"},
    {"  Hello!\n", false, "", "  Hello!\n"},
    {"<thin", false, "", "<thin"},
    {"<thinker>", false, "", "<thinker>"},
    {"Say <think>x</think>", false, "", "Say <think>x</think>"},
    {"<think>cut off \n ", false, "cut off", ""},
    {"<think>cut </thi", false, "cut </thi", ""},
    {"<think>a </x> < b </think> c\n", false, "a </x> < b", "c\n"},
    {"<think>a</think>b</think>c", false, "a", "b</think>c"},
    {"你好</think>好", true, "你好", "好"},
    {"", false, "", ""},
    {" \n", true, "", ""},
};

TEST(ReasoningSplitter, SplitsHoweverTheTextIsCut) {
  for (const Case& c : kCases) {
    for (const auto& pieces : ktx::testing::cuts(c.text)) {
      ReasoningSplitter splitter({}, c.already_open);
      std::string reasoning, answer;
      for (const std::string& piece : pieces) {
        const ReasoningDelta delta = splitter.add(piece);
        reasoning += delta.reasoning;
        answer += delta.answer;
      }
      const ReasoningDelta last = splitter.finish();
      EXPECT_EQ(reasoning + last.reasoning, c.reasoning) << c.text;
      EXPECT_EQ(answer + last.answer, c.answer) << c.text;
    }
  }
}

TEST(ReasoningSplitter, TakesTheTagsOfEachTemplate) {
  const struct {
    const char* marker;
    const char* text;
  } kTexts[] = {
      {"<|channel>thought", "<|channel>thought\nIt rains.\n<channel|>Take <b> a coat."},
      {"[THINK]", "[THINK]It rains.[/THINK]Take <b> a coat."},
      {"'<|open|>' + tag",
       "<|open|>think<|sep|>It rains.<|close|>think<|sep|><|open|>response<|sep|>Take <b> a "
       "coat.<|close|>response<|sep|><|close|>message<|sep|>"},
      {"'<|open|>' + tag",
       "<|open|>think<|sep|>It rains.<|open|>response<|sep|>Take <b> a "
       "coat.<|close|>respon"},
      {"◁think▷", "◁think▷It rains.◁/think▷\n\nTake <b> a coat."}};
  for (const auto& [marker, text] : kTexts) {
    const auto tags = detect_reasoning(marker);
    ASSERT_TRUE(tags) << marker;
    EXPECT_TRUE(tags->open.starts_with(tags->open_token));
    for (const auto& pieces : ktx::testing::cuts(text)) {
      ReasoningSplitter splitter(*tags, false);
      std::string reasoning, answer;
      for (const std::string& piece : pieces) {
        const ReasoningDelta delta = splitter.add(piece);
        reasoning += delta.reasoning;
        answer += delta.answer;
      }
      const ReasoningDelta last = splitter.finish();
      EXPECT_EQ(reasoning + last.reasoning, "It rains.") << text;
      EXPECT_EQ(answer + last.answer, "Take <b> a coat.") << text;
    }
  }
}

// Kimi-K3: within a call, and within what a grammar has made, a mark is a part of it.
TEST(ReasoningSplitter, MarksWithinCallsAndBehindABeginOfAGrammarStay) {
  const struct {
    const char* text;
    bool grammar;
    const char* answer;
  } kTexts[] = {
      {"hm<|close|>think<|sep|><|open|>response<|sep|>a<|close|>response<|sep|><|open|>tools<|sep|>"
       "<|close|>response<|sep|>b<|close|>message<|sep|>",
       false, "a<|open|>tools<|sep|><|close|>response<|sep|>b<|close|>message<|sep|>"},
      {"hm<|close|>think<|sep|><|open|>response<|sep|>{\"a\": \"<|open|>response<|sep|>\"}", true,
       "{\"a\": \"<|open|>response<|sep|>\"}"},
      {"hm<|open|>response<|sep|><|close|>response<|sep|><|open|>tools<|sep|><|close|>response<|sep|>",
       true, "<|open|>tools<|sep|><|close|>response<|sep|>"},
  };
  for (const auto& [text, grammar, answer] : kTexts) {
    for (const auto& pieces : ktx::testing::cuts(text)) {
      ReasoningSplitter splitter(*detect_reasoning("<|open|>"), true, grammar);
      std::string got;
      for (const std::string& piece : pieces) got += splitter.add(piece).answer;
      EXPECT_TRUE(splitter.in_answer());
      EXPECT_EQ(got + splitter.finish().answer, answer) << text;
    }
  }
}

TEST(ReasoningSplitter, ShowsNoHalfTag) {
  ReasoningSplitter splitter({}, true);
  EXPECT_EQ(splitter.add("so it is. </th").reasoning, "so it is.");
  EXPECT_EQ(splitter.add("is>").reasoning, " </this>");
  EXPECT_FALSE(splitter.in_answer());
  EXPECT_EQ(splitter.add("</think>").reasoning, "");
  EXPECT_TRUE(splitter.in_answer());
}

TEST(DetectReasoning, KnowsTheTagsOfTemplates) {
  EXPECT_FALSE(detect_reasoning("{{ messages[0].content }}"));
  EXPECT_EQ(detect_reasoning("{{ '<think>\n' }}")->close, "</think>");
  EXPECT_EQ(detect_reasoning("{{ m.split('</think>')[-1] }}")->open, "<think>");
  EXPECT_EQ(detect_reasoning("{{ '◁think▷' }}")->close, "◁/think▷");
  EXPECT_EQ(detect_reasoning("{%- set begin = '<seed:think>' %}")->close, "</seed:think>");
  EXPECT_EQ(detect_reasoning("{{ '<thought>\n' }}")->close, "</thought>");
}

TEST(PromptOpensReasoning, LooksAtTheEndOfThePrompt) {
  EXPECT_TRUE(prompt_opens_reasoning("<|Assistant|><think>\n", {}));
  EXPECT_FALSE(prompt_opens_reasoning("<|Assistant|><think>\n\n</think>\n\n", {}));
  EXPECT_FALSE(prompt_opens_reasoning("<|Assistant|>", {}));
}

}  // namespace
}  // namespace ktx::text
