#include "lib/server/request/content_parts.h"

#include <gmock/gmock.h>

#include "lib/server/http/base64.h"

namespace ktx::server {
namespace {

using ::testing::HasSubstr;

struct Read {
  std::string text, reasoning, error;
  Notes notes;
};
Read read(const Json& content, ContentPlace place) {
  Read out;
  ContentText said;
  place.where = "messages[3].content";
  const auto read = read_content(content, place, out.notes, said);
  if (!read) out.error = read.error().message;
  out.text = said.text;
  out.reasoning = said.reasoning;
  return out;
}
Json text(const std::string& said) {
  return {{"type", "text"}, {"text", said}};
}

TEST(ContentParts, TextsAreJoined) {
  EXPECT_EQ(read("plain", {}).text, "plain");
  EXPECT_EQ(read(nullptr, {}).text, "");
  EXPECT_EQ(read({text("a"), {{"text", "b"}}, {{"type", "refusal"}, {"refusal", "c"}}}, {}).text,
            "abc");
}

TEST(ContentParts, StringsArePartsAndNullIsNoText) {
  EXPECT_EQ(read(Json::array({"a", "b", text("c")}), {}).text, "abc");
  EXPECT_EQ(read(Json::array({text("a"), {{"type", "text"}, {"text", nullptr}}}), {}).text, "a");
}

TEST(ContentParts, DocumentsOfTextAreRead) {
  const ContentPlace user = {Protocol::Messages, "", true};
  const Json plain = {{"type", "document"},
                      {"source", {{"type", "text"}, {"media_type", "text/plain"}, {"data", "AB"}}},
                      {"title", "a \"b\""},
                      {"context", "of C"}};
  EXPECT_EQ(read({plain, text("q")}, user).text,
            "<document title=\"a \\\"b\\\"\">\nof C\nAB\n</document>\nq");
  const Json parts = {{"type", "document"},
                      {"source", {{"type", "content"}, {"content", {text("x"), text("y")}}}}};
  EXPECT_EQ(read(Json::array({parts}), user).text, "<document>\nxy\n</document>\n");
  const Json found = {
      {"type", "search_result"}, {"source", "https://s"}, {"title", "t"}, {"content", {text("z")}}};
  EXPECT_EQ(read(Json::array({found}), user).text,
            "<document title=\"t, https://s\">\nz\n</document>\n");
  const Json file = {{"type", "file"},
                     {"file",
                      {{"filename", "n.txt"},
                       {"file_data", "data:text/plain;base64," + to_base64("r\u00e9sum\u00e9")}}}};
  EXPECT_EQ(read(Json::array({file}), {Protocol::Chat, "", true}).text,
            "<document title=\"n.txt\">\nr\u00e9sum\u00e9\n</document>\n");
  const Json input_file = {{"type", "input_file"}, {"file_data", to_base64("w")}};
  EXPECT_EQ(read(Json::array({input_file}), {Protocol::Responses, "", true}).text,
            "<document>\nw\n</document>\n");
}

struct Unreadable {
  Protocol protocol;
  Json part;
  const char* name;
};

TEST(ContentParts, WhatIsNoTextIsAnErrorOnlyWhereTheUserSentIt) {
  const Unreadable kCases[] = {
      {Protocol::Chat, {{"type", "image_url"}, {"image_url", {{"url", "data:"}}}}, "image"},
      {Protocol::Chat, {{"type", "input_audio"}, {"input_audio", Json::object()}}, "audio"},
      {Protocol::Chat, {{"type", "file"}, {"file", {{"file_id", "f"}}}}, "file"},
      {Protocol::Responses, {{"type", "input_image"}, {"image_url", "https://x"}}, "image"},
      {Protocol::Responses, {{"type", "input_file"}, {"file_url", "https://x"}}, "file"},
      {Protocol::Messages, {{"type", "image"}, {"source", Json::object()}}, "image"},
      {Protocol::Messages,
       {{"type", "document"}, {"source", {{"type", "base64"}, {"data", to_base64("%PDF-1.7 ")}}}},
       "document"},
      {Protocol::Messages,
       {{"type", "document"}, {"source", {{"type", "base64"}, {"data", to_base64("\xFF\xD8")}}}},
       "document"},
      {Protocol::Messages, {{"type", "document"}, {"source", {{"type", "url"}}}}, "document"},
  };
  for (const auto& [protocol, part, name] : kCases) {
    const Read own = read({text("a"), part}, {protocol, "", true});
    EXPECT_THAT(own.error, HasSubstr("'messages[3].content[1]' is of type")) << part;
    EXPECT_THAT(own.error, HasSubstr(std::string(": ") + name + " input is not supported")) << part;
    const Read tool = read({text("a"), part}, {protocol, "", false});
    EXPECT_EQ(tool.error, "") << part;
    EXPECT_EQ(tool.text, std::string("a[") + name + " left out: this model reads text only]");
    if (std::string(name) == "image") continue;
    RequestImages images;
    const Read seeing = read({text("a"), part}, {protocol, "", false, false, &images});
    EXPECT_EQ(seeing.text,
              std::string("a[") + name + " left out: this model reads text and images only]");
  }
}

TEST(ContentParts, ReasoningIsNoText) {
  const Json mistral = {{"type", "thinking"}, {"thinking", {text("so"), text(" then")}}};
  const Read said = read({mistral, text("yes")}, {});
  EXPECT_EQ(said.text, "yes");
  EXPECT_EQ(said.reasoning, "so then");
  const Json told = {{"type", "reasoning"}, {"text", "well"}};
  EXPECT_EQ(read(Json::array({told}), {}).reasoning, "well");
  const Json own = {{"type", "thinking"}, {"thinking", "hm"}, {"signature", "x"}};
  EXPECT_EQ(read(Json::array({own}), {Protocol::Messages, ""}).reasoning, "hm");
  const Json hidden = {
      {"type", "thinking"}, {"thinking", ""}, {"signature", sign_reasoning("told\nlater")}};
  EXPECT_EQ(read(Json::array({hidden}), {Protocol::Messages, ""}).reasoning, "told\nlater");
  const Json foreign = {{"type", "thinking"}, {"thinking", ""}, {"signature", "ktx1.%%"}};
  EXPECT_EQ(read(Json::array({foreign}), {Protocol::Messages, ""}).reasoning, "");
  const Json redacted = {{"type", "redacted_thinking"}, {"data", "eHg="}};
  const Read skipped = read({redacted, text("y")}, {Protocol::Messages, ""});
  EXPECT_EQ(skipped.text, "y");
  EXPECT_EQ(skipped.notes, Notes{"messages[3].content[0]: hidden reasoning is left out"});
}

TEST(ContentParts, WhatOtherServersDidIsToldWithoutTheirSecrets) {
  const Json result = {
      {"type", "web_search_tool_result"},
      {"tool_use_id", "s1"},
      {"content",
       {{{"type", "web_search_result"}, {"url", "https://a"}, {"encrypted_content", "zzz"}}}}};
  EXPECT_EQ(read(Json::array({result}), {Protocol::Messages, ""}).text,
            "[web_search_tool_result {\"content\":[{\"type\":\"web_search_result\",\"url\":"
            "\"https://a\"}]}]\n");
  const Json picture = {{"type", "mcp_tool_result"},
                        {"content", {{{"type", "image"}, {"data", std::string(4000, 'A')}}}}};
  EXPECT_LT(read(Json::array({picture}), {Protocol::Messages, ""}).text.size(), 100u);
  EXPECT_EQ(read({{{"type", "tool_reference"}, {"tool_name", "f"}}}, {Protocol::Messages, ""}).text,
            "The tool 'f' can be called.\n");
  // Gateways pass blocks of Anthropic's on within Chat.
  EXPECT_EQ(read(Json::array({result}), {}).text,
            read(Json::array({result}), {Protocol::Messages, ""}).text);
}

TEST(ContentParts, MistakesAreNamedWithTheirPlace) {
  const std::pair<Json, const char*> kCases[] = {
      {3, "'messages[3].content' is 3, expected a string or a list of parts"},
      {{1}, "'messages[3].content[0]' is 1, expected an object"},
      {{text("a"), {{"type", "text"}}}, "'messages[3].content[1]' is a part without text"},
      {{{{"type", "hologram"}}}, "'messages[3].content[0]' is of type 'hologram', expected text"},
      {{{{"type", 7}}}, "'messages[3].content[0]' is of type ''"},
  };
  for (const auto& [content, message] : kCases) {
    EXPECT_THAT(read(content, {}).error, HasSubstr(message)) << content;
  }
  const Json nested = {{"type", "document"},
                       {"source", {{"type", "content"}, {"content", {{{"type", "x"}}}}}}};
  EXPECT_THAT(read(Json::array({nested}), {Protocol::Messages, ""}).error,
              HasSubstr("'messages[3].content[0].source.content[0]' is of type 'x'"));
  EXPECT_THAT(read({{{"type", "tool_use"}}}, {Protocol::Messages, ""}).error,
              HasSubstr("which cannot stand there"));
}

TEST(ContentParts, TheHeaderOfARequestIsNoPartOfTheSystemPrompt) {
  const ContentPlace begins = {Protocol::Messages, "", false, true};
  const Read said = read(
      {text("x-vendor-billing: a=1;"), text("You are brief."), text("x-other-header: 2")}, begins);
  EXPECT_EQ(said.text, "You are brief.x-other-header: 2");
  EXPECT_EQ(said.notes, Notes{"system prompt: line 'x-vendor-billing' is left out"});
  EXPECT_EQ(read(Json::array({text("x-vendor-billing: a")}), {}).text, "x-vendor-billing: a");
}

TEST(Base64, IsReadAsItIsWritten) {
  for (const std::string bytes : {"", "a", "ab", "abc", "abcd"}) {
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
  }
  EXPECT_EQ(to_base64("ab"), "YWI=");
  EXPECT_EQ(from_base64("YW\nI"), "ab") << "line breaks, no padding";
  EXPECT_EQ(from_base64("-_8"), "\xFB\xFF");
  for (const char* wrong : {"Y", "Y%==", "YQ==YQ"}) EXPECT_FALSE(from_base64(wrong)) << wrong;
}

}  // namespace
}  // namespace ktx::server
