#include "lib/text/answers/generic_answer.h"

#include <gtest/gtest.h>

#include "lib/text/answers/tools_as_text.h"
#include "tests/unit/text/stream_pieces.h"

namespace ktx::text {
namespace {

using Json = nlohmann::ordered_json;

std::string read(const std::string& text) {
  std::string want;
  for (const auto& pieces : ktx::testing::cuts(text, 20)) {
    GenericAnswer answer;
    GenericDelta all;
    const auto take = [&](const GenericDelta& delta) {
      all.text += delta.text;
      all.calls += delta.calls;
    };
    for (const std::string& piece : pieces) take(answer.add(piece));
    take(answer.finish());
    const std::string got = all.text + "|" + all.calls;
    if (want.empty()) want = got;
    EXPECT_EQ(got, want) << text;
  }
  return want;
}

TEST(GenericAnswer, IsATextOrCalls) {
  EXPECT_EQ(read(R"({"response": "Hi \"you\"\n\u00e9 \ud83d\ude00 \/"})"), "Hi \"you\"\né 😀 /|");
  EXPECT_EQ(read(R"( {"tool_call": {"name": "f", "arguments": {"a": "}\""}}})"),
            R"(|{"name": "f", "arguments": {"a": "}\""}})");
  EXPECT_EQ(read(R"({"tool_calls": [{"name": "f"}, {"name": "g", "arguments": {"x": [1, {}]}}]})"),
            R"(|{"name": "f"}{"name": "g", "arguments": {"x": [1, {}]}})");
  EXPECT_EQ(read(R"({"response": {"a": ["}"]}})"), R"({"a": ["}"]}|)");
}

// Where a format is asked for.
TEST(GenericAnswer, AResponseMayStayJson) {
  GenericAnswer answer(true);
  EXPECT_EQ(answer.add(R"({"response": "a\n\"}"})").text, R"("a\n\"}")");
  GenericAnswer object(true);
  EXPECT_EQ(object.add(R"({"response": {"a": ["}"]}})").text, R"({"a": ["}"]})");
}

TEST(GenericAnswer, ACutOneShowsNothingOfItsForm) {
  EXPECT_EQ(read(R"({"resp)"), "|");
  EXPECT_EQ(read(R"({"response": "Hel)"), "Hel|");
  EXPECT_EQ(read(R"({"response": "Hel\u00)"), "Hel|");
  EXPECT_EQ(read(R"({"tool_call": {"name": "f", "arg)"), R"(|{"name": "f", "arg)");
}

TEST(GenericAnswer, AnyOtherTextIsText) {
  EXPECT_EQ(read("Hello, {you}!"), "Hello, {you}!|");
  EXPECT_EQ(read(R"({"city": "Rom"} and so on)"), R"({"city": "Rom"} and so on|)");
  EXPECT_EQ(read("{oh no"), "{oh no|");
  EXPECT_EQ(read("  "), "  |");
}

const Json kTools = Json::parse(R"([{"type": "function", "function": {"name": "f", "parameters":
    {"type": "object", "properties": {"a": {"type": "integer"}}}}}])");

TEST(ToolsAsText, SayWhatCanBeCalledAndHow) {
  const std::string generic = tools_text(kTools, ToolCallFormat::Generic, true, false);
  EXPECT_NE(generic.find("{\"name\":\"f\""), std::string::npos) << generic;
  EXPECT_NE(generic.find("\"tool_call\""), std::string::npos);
  EXPECT_NE(generic.find("\"response\""), std::string::npos);
  const std::string hermes = tools_text(kTools, ToolCallFormat::Hermes, true, false);
  EXPECT_NE(hermes.find("<tool_call>\n{\"name\": \"NAME\", \"arguments\": {"), std::string::npos);
  EXPECT_EQ(tools_text(kTools, ToolCallFormat::Hermes, false, false).find("\"f\""),
            std::string::npos);
  for (const std::string& name : text_form_names()) {
    EXPECT_TRUE(has_text_form(*format_from_name(name))) << name;
  }
  EXPECT_FALSE(has_text_form(ToolCallFormat::Harmony));
}

// What a model is shown as its own call is read as that call.
TEST(ToolsAsText, AWrittenCallIsReadAgain) {
  const Json arguments = {{"a", 1}, {"s", "x < y \"z\"\n"}};
  for (const std::string& name : text_form_names()) {
    const ToolCallFormat format = *format_from_name(name);
    std::string said = written_call(format, "f", arguments);
    ToolCallFormat reads = format;
    if (format == ToolCallFormat::Generic) {
      said = GenericAnswer().add(said).calls;
      reads = ToolCallFormat::Llama3;
    }
    ToolCallParser parser(reads, {{"f", {"s"}}});
    ToolCallDelta delta = parser.add(said), rest = parser.finish();
    delta.calls.insert(delta.calls.end(), rest.calls.begin(), rest.calls.end());
    ASSERT_EQ(delta.calls.size(), 1u) << name << ": " << said;
    EXPECT_EQ(delta.calls[0].name, "f");
    EXPECT_EQ(Json::parse(delta.calls[0].arguments), arguments) << name;
  }
}

TEST(ToolsAsText, CallsAndResultsBecomePlainMessages) {
  Json messages = Json::parse(R"([
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": "I look.", "tool_calls": [
      {"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}},
      {"id": "c2", "function": {"name": "g", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "7"},
    {"role": "tool", "tool_call_id": "c2", "content": "8"},
    {"role": "user", "content": "And now?"},
    {"role": "user", "content": "Well?"}])");
  write_out_calls(messages, ToolCallFormat::Hermes);
  ASSERT_EQ(messages.size(), 4u) << messages;
  EXPECT_EQ(messages[1]["content"],
            "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n</tool_call>\n"
            "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>");
  EXPECT_FALSE(messages[1].contains("tool_calls"));
  EXPECT_EQ(messages[2]["role"], "user");
  EXPECT_EQ(messages[2]["content"], "The result of f:\n7\n\nThe result of g:\n8\n\nAnd now?");
  add_system_text(messages, "Tools.");
  EXPECT_EQ(messages[0], (Json{{"role", "system"}, {"content", "Tools."}}));
  add_system_text(messages, "More.");
  EXPECT_EQ(messages[0]["content"], "Tools.\n\nMore.");
}

}  // namespace
}  // namespace ktx::text
