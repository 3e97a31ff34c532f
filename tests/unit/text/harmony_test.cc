#include "lib/text/answers/harmony.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <random>

#include "tests/unit/text/stream_pieces.h"

namespace ktx::text {
namespace {

const std::vector<OfferedTool> kTools = {{"f", {}}, {"get_weather", {}}};

struct Token {
  bool control;
  std::string text;
};

// "<|…|>" is a control token, the rest is text; "\\<|" is the text "<|".
std::vector<Token> tokens_of(std::string_view said) {
  std::vector<Token> out;
  while (!said.empty()) {
    const size_t end = said.find("|>");
    if (said.starts_with("<|") && end != std::string_view::npos) {
      out.push_back({true, std::string(said.substr(0, end + 2))});
      said.remove_prefix(end + 2);
      continue;
    }
    const size_t escape = said.starts_with('\\') ? 1 : 0;
    const size_t next = std::min(said.find_first_of("<\\", escape + 1), said.size());
    out.push_back({false, std::string(said.substr(escape, next - escape))});
    said.remove_prefix(next);
  }
  return out;
}

// "reasoning / content|name arguments|…"
struct Said {
  std::string reasoning, content, calls;
  void take(const HarmonyDelta& delta) {
    reasoning += delta.reasoning;
    content += delta.content;
    for (const ToolCallPiece& piece : delta.calls) {
      if (piece.begins) calls += "|" + piece.name + " ";
      calls += piece.arguments;
    }
  }
  std::string all() const { return reasoning + " / " + content + calls; }
};

Said feed(const std::vector<Token>& tokens, bool tools = true) {
  HarmonyParser parser(tools ? kTools : std::vector<OfferedTool>());
  Said said;
  for (const Token& token : tokens) {
    said.take(token.control ? parser.marker(token.text) : parser.text(token.text));
  }
  said.take(parser.finish());
  return said;
}

const std::pair<const char*, const char*> kCases[] = {
    {"<|channel|>analysis<|message|>I greet.<|end|><|start|>assistant<|channel|>final<|message|>"
     "Hello!<|return|>",
     "I greet. / Hello!"},
    {"<|channel|>final<|message|>Hello!", " / Hello!"},
    {"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
     " / |f {\"a\": 1}"},
    // The recipient before the channel, as OpenAI's template writes it.
    {" to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}<|call|>", " / |f {\"a\": 1}"},
    {"<|channel|>analysis<|message|>r<|end|><|start|>assistant to=functions.f<|channel|>commentary "
     "<|constrain|>json<|message|>{}",
     "r / |f {}"},
    {"<|channel|>commentary to=functions.f<|message|><|call|>", " / |f {}"},
    {"<|channel|>commentary to=f<|message|>{}<|call|>", " / |f {}"},
    {"<|channel|>analysis to=functions.f code<|message|>{}<|call|>", " / |f {}"},
    // A preamble is content.
    {"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.f <|constrain|>json<|message|>{}<|call|>",
     " / I look.|f {}"},
    {"<|channel|>commentary<|message|>One.<|end|><|start|>assistant<|channel|>final<|message|>Two.",
     " / One.\n\nTwo."},
    {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b",
     "a\n\nb / "},
    // Two calls.
    {"<|channel|>commentary to=functions.f<|message|>{}<|call|><|start|>assistant<|channel|>"
     "commentary to=functions.get_weather<|message|>{\"b\": 2}<|call|>",
     " / |f {}|get_weather {\"b\": 2}"},
    // A tool of OpenAI's own.
    {"<|channel|>analysis to=python code<|message|>1+1<|call|>", "1+1 / "},
    {"<|channel|>commentary to=browser.search<|message|>{}<|call|>", "{} / "},
    // Text that spells a marker is text.
    {"<|channel|>final<|message|>It ends with \\<|end|> and \\<|channel|>analysis.<|return|>",
     " / It ends with <|end|> and <|channel|>analysis."},
    // Other order, missing and unknown markers.
    {"<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "a / b"},
    {"<|channel|>final<|message|>a<|message|>b<|reserved_200013|>c", " / abc"},
    {"<|channel|>final<|message|>a<|end|> <|end|>b", " / a\n\nb"},
    {"Plain words.", " / Plain words."},
    {"", " / "},
    // Lost between two messages: what is said there is content, white space in front of it is not.
    {"<|channel|>final<|message|>a<|end|>\n  b", " / a\n\nb"},
    // Cut off in a header.
    {"<|channel|>", " / "},
    {"<|channel|>ana", " / "},
    {" to=functions.f", " / "},
    {" to", " / "},
    {"<|channel|>analysis<|message|>a<|end|><|start|>assis", "a / "},
    {"<|channel|>analysis<|message|>a<|end|><|start|>assistant", "a / "},
    {"<|channel|>commentary to=functions.f <|constrain|>js", " / "},
    // Cut off in a body.
    {"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": \"Pa",
     " / |f {\"a\": \"Pa"},
    {"<|channel|>analysis<|message|>I gr", "I gr / "},
};

TEST(HarmonyParser, SplitsChannels) {
  for (const auto& [said, want] : kCases) EXPECT_EQ(feed(tokens_of(said)).all(), want) << said;
}

TEST(HarmonyParser, TheCutOfTheTextDoesNotMatter) {
  for (const auto& [said, want] : kCases) {
    std::vector<Token> bytes;
    for (const Token& token : tokens_of(said)) {
      if (token.control) {
        bytes.push_back(token);
        continue;
      }
      for (const char c : token.text) bytes.push_back({false, std::string(1, c)});
    }
    EXPECT_EQ(feed(bytes).all(), want) << said;
  }
}

// Each prefix says a prefix of the whole, and never anything of a header or a marker.
TEST(HarmonyParser, CutAnywhereNoHeaderIsShown) {
  const std::vector<Token> tokens = tokens_of(
      "<|channel|>analysis<|message|>REASON<|end|><|start|>assistant<|channel|>commentary<|message|>"
      "PREAMBLE<|end|><|start|>assistant to=functions.f<|channel|>commentary "
      "<|constrain|>json<|message|>{\"ARGS\": 1}<|call|>");
  const Said whole = feed(tokens);
  for (size_t n = 0; n <= tokens.size(); ++n) {
    const Said part = feed({tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)});
    EXPECT_TRUE(whole.reasoning.starts_with(part.reasoning)) << n;
    EXPECT_TRUE(whole.content.starts_with(part.content)) << n;
    EXPECT_TRUE(whole.calls.starts_with(part.calls) || part.calls == "|f {}") << n << part.calls;
  }
}

TEST(HarmonyParser, ACallWithoutOfferedToolsIsContent) {
  EXPECT_EQ(
      feed(tokens_of("<|channel|>commentary to=functions.f<|message|>{}<|call|>"), false).all(),
      " / {}");
}

TEST(HarmonyParser, KnowsWhereTheAnswerBegins) {
  HarmonyParser parser(kTools);
  parser.marker(kHarmonyChannel);
  parser.text("analysis");
  parser.marker(kHarmonyMessage);
  EXPECT_TRUE(parser.in_body());
  EXPECT_FALSE(parser.in_answer());
  parser.marker(kHarmonyEnd);
  parser.marker(kHarmonyStart);
  parser.text("assistant");
  parser.marker(kHarmonyChannel);
  parser.text("final");
  EXPECT_FALSE(parser.in_body());
  parser.marker(kHarmonyMessage);
  EXPECT_TRUE(parser.in_answer());
}

TEST(HarmonyParser, TakesAnyOrderOfMarkers) {
  const std::vector<Token> kPieces = {{true, "<|start|>"},
                                      {true, "<|channel|>"},
                                      {true, "<|message|>"},
                                      {true, "<|end|>"},
                                      {true, "<|call|>"},
                                      {true, "<|return|>"},
                                      {true, "<|constrain|>"},
                                      {false, "assistant"},
                                      {false, "analysis"},
                                      {false, "final"},
                                      {false, " to=functions.f"},
                                      {false, " to="},
                                      {false, "commentary"},
                                      {false, "{}"},
                                      {false, " "},
                                      {false, "\xff"}};
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::vector<Token> tokens;
    for (int n = static_cast<int>(random() % 12); n > 0; --n) {
      tokens.push_back(kPieces[random() % kPieces.size()]);
    }
    EXPECT_EQ(feed(tokens).all().find("<|"), std::string::npos);
  }
}

}  // namespace
}  // namespace ktx::text
