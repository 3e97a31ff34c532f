#include "lib/server/answer/answer_reader.h"

#include <gtest/gtest.h>

#include <fstream>

#include "lib/text/tokenizer/hf_tokenizer.h"
#include "tests/support/paths.h"

namespace ktx::server {
namespace {

const text::OfferedTool kWeather = {"get_weather", {"city"}};

// The answers of a small model that was taught the harmony form, token by token.
class HarmonyAnswers : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string folder = shared_dir() + "/models/gpt_oss";
    std::ifstream file(folder + "/reference-q4_k_m.json");
    if (!file) GTEST_SKIP() << "no ../shared/models/gpt_oss";
    cases_ = Json::parse(file)["cases"];
    auto loaded = text::load_hf_tokenizer(folder + "/tokenizer.json");
    ASSERT_TRUE(loaded.ok());
    auto tokenizer = text::Tokenizer::create(std::move(loaded->data));
    ASSERT_TRUE(tokenizer.ok());
    model_.tokenizer.emplace(tokenizer.take());
    model_.tool_format = text::ToolCallFormat::Harmony;
  }

  AnswerSpec spec_of(const Json& item) const {
    AnswerSpec spec;
    spec.prompt = item["prompt_ids"].get<std::vector<int32_t>>();
    spec.split_reasoning = true;
    spec.parse_tools = !item["tools"].is_null();
    if (spec.parse_tools) spec.tools = {kWeather};
    return spec;
  }
  AnswerReader reader_of(const AnswerSpec& spec, std::vector<std::string> stop = {}) const {
    return {model_, spec, text::StopStrings::create(std::move(stop)).take()};
  }
  // Without the end token, which the scheduler keeps.
  static std::vector<int32_t> said(const Json& item) {
    auto ids = item["greedy_ids"].get<std::vector<int32_t>>();
    ids.pop_back();
    return ids;
  }
  // One token at a time, until `most` or a stop string.
  static Piece read(AnswerReader reader, const std::vector<int32_t>& ids, size_t most = 1000) {
    Piece all;
    const auto take = [&](Piece piece) {
      all.reasoning += piece.reasoning;
      all.text += piece.text;
      for (text::ToolCall& call : piece.calls) all.calls.push_back(std::move(call));
      for (auto& call : piece.call_pieces) all.call_pieces.push_back(std::move(call));
    };
    for (size_t i = 0; i < std::min(most, ids.size()) && !reader.stopped(); ++i) {
      take(reader.add({&ids[i], 1}));
    }
    take(reader.finish());
    return all;
  }
  const Json& tool_case() const {
    for (const Json& item : cases_) {
      if (!item["tools"].is_null()) return item;
    }
    return cases_[0];
  }

  Json cases_;
  ServedModel model_;
};

// "…<|message|>R<|end|>…<|message|>C<|return|>" of the reference's text.
std::string between(const std::string& text, size_t nth) {
  size_t at = 0;
  for (size_t i = 0; i < nth; ++i) at = text.find("<|message|>", at) + 11;
  return text.substr(at, text.find("<|", at) - at);
}

TEST_F(HarmonyAnswers, AreSplit) {
  for (const Json& item : cases_) {
    const std::string text = item["greedy_text"];
    const AnswerSpec spec = spec_of(item);
    const Piece piece = read(reader_of(spec), said(item));
    EXPECT_EQ(piece.reasoning, between(text, 1));
    EXPECT_EQ(piece.text, spec.parse_tools ? "" : between(text, 2));
  }
}

TEST_F(HarmonyAnswers, ACallComesWholeOrInPieces) {
  AnswerSpec spec = spec_of(tool_case());
  const std::vector<int32_t> ids = said(tool_case());
  const Piece whole = read(reader_of(spec), ids);
  ASSERT_EQ(whole.calls.size(), 1u);
  EXPECT_EQ(whole.calls[0].name, "get_weather");
  EXPECT_EQ(whole.calls[0].arguments, "{\"city\": \"Paris\"}");
  spec.stream_calls = true;
  const Piece streamed = read(reader_of(spec), ids);
  EXPECT_TRUE(streamed.calls.empty());
  ASSERT_GT(streamed.call_pieces.size(), 2u);
  EXPECT_TRUE(streamed.call_pieces[0].begins);
  std::string arguments;
  for (const auto& piece : streamed.call_pieces) arguments += piece.arguments;
  EXPECT_EQ(arguments, whole.calls[0].arguments);
}

TEST_F(HarmonyAnswers, CutAnywhereNothingLeaks) {
  for (const Json& item : cases_) {
    const AnswerSpec spec = spec_of(item);
    const std::vector<int32_t> ids = said(item);
    const Piece whole = read(reader_of(spec), ids);
    for (size_t most = 0; most < ids.size(); ++most) {
      const Piece cut = read(reader_of(spec), ids, most);
      // A character that was cut is U+FFFD.
      const auto begins = [](const std::string& whole, std::string part) {
        if (part.ends_with("\uFFFD")) part.resize(part.size() - 3);
        return whole.starts_with(part);
      };
      EXPECT_TRUE(begins(whole.reasoning, cut.reasoning)) << cut.reasoning;
      EXPECT_TRUE(begins(whole.text, cut.text)) << cut.text;
      for (const auto& call : cut.calls) EXPECT_EQ(call.name, "get_weather");
    }
  }
}

TEST_F(HarmonyAnswers, StopStringsSeeBodiesOnly) {
  const Json& item = cases_[1];  // "7 + 12 = 18."
  const AnswerSpec spec = spec_of(item);
  // Words of headers and markers do not stop an answer, nor what spans two messages.
  const Piece whole = read(reader_of(spec), said(item));
  for (const char* stop : {"final", "assistant", "<|", "|>", "now.7"}) {
    const Piece piece = read(reader_of(spec, {stop}), said(item));
    EXPECT_EQ(piece.text, whole.text) << stop;
    EXPECT_EQ(piece.reasoning, whole.reasoning) << stop;
  }
  const Piece piece = read(reader_of(spec, {" = "}), said(item));
  EXPECT_EQ(piece.text, "7 + 12");
  EXPECT_EQ(read(reader_of(spec, {"now.!"}), said(item)).reasoning, whole.reasoning);
  EXPECT_EQ(read(reader_of(spec, {" now"}), said(item)).text, "");
}

// What the prompt has opened the answer goes on with.
TEST_F(HarmonyAnswers, APromptMayOpenTheContent) {
  AnswerSpec spec = spec_of(cases_[1]);
  const auto opened = model_.tokenizer->encode_prompt("<|channel|>final<|message|>The sum");
  spec.prompt.insert(spec.prompt.end(), opened.begin(), opened.end());
  const auto ids = model_.tokenizer->encode_prompt(" is 19.");
  EXPECT_EQ(read(reader_of(spec), ids).text, " is 19.");
}

// Resumed answers: the tokens that were said belong to the answer, not to the prompt.
TEST_F(HarmonyAnswers, AResumedAnswerIsReadFromItsBegin) {
  AnswerSpec spec = spec_of(cases_[1]);
  const std::vector<int32_t> ids = said(cases_[1]);
  spec.prompt.insert(spec.prompt.end(), ids.begin(), ids.begin() + 8);
  spec.answered_tokens = 8;
  const Piece whole = read(reader_of(spec_of(cases_[1])), ids);
  const Piece resumed = read(reader_of(spec), ids);
  EXPECT_EQ(resumed.reasoning, whole.reasoning);
  EXPECT_EQ(resumed.text, whole.text);
}

TEST_F(HarmonyAnswers, TextThatSpellsAMarkerIsText) {
  const AnswerSpec spec = spec_of(cases_[1]);
  std::vector<int32_t> ids = model_.tokenizer->encode_prompt("<|channel|>final<|message|>");
  for (const int32_t id : model_.tokenizer->encode("a <|end|> b")) ids.push_back(id);
  EXPECT_EQ(read(reader_of(spec), ids).text, "a <|end|> b");
}

}  // namespace
}  // namespace ktx::server
