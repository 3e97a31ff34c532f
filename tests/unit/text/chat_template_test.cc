// The public interface: input, cases as JSON, times, probes.
#include "lib/text/chat_template/chat_template.h"

#include <gtest/gtest.h>

#include <thread>

#include "lib/text/chat_template/chat_case.h"
#include "lib/text/chat_template/template_probe.h"

namespace ktx::text {
namespace {

using Json = nlohmann::ordered_json;

ChatTemplate parsed(std::string_view source) {
  Result<ChatTemplate> result = ChatTemplate::parse(source);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.take();
}

TEST(ChatTemplate, GivesTheVariablesOfHuggingFace) {
  RenderInput input;
  input.messages = Json::array({{{"role", "user"}, {"content", "Hi"}}});
  const ChatTemplate chat = parsed(
      "{{ bos_token is defined }} {{ eos_token is defined }} {{ tools is none }} "
      "{{ documents is none }} {{ add_generation_prompt }} {{ messages }}");
  EXPECT_EQ(*chat.render(input), "False False True True True [{'role': 'user', 'content': 'Hi'}]");
  input.bos_token = "<s>";
  input.tools = Json::array();
  input.add_generation_prompt = false;
  input.extra = {{"documents", 1}, {"eos_token", "over"}};
  EXPECT_EQ(*chat.render(input), "True True False False False [{'role': 'user', 'content': 'Hi'}]");
}

TEST(ChatTemplate, KeepsTheOrderOfKeys) {
  const ChatTemplate chat = parsed("{{ messages[0] | tojson }}");
  RenderInput input;
  input.messages = Json::parse(R"([{"z": 1, "a": {"y": 1.0, "b": [true, null, "é"]}, "m": -2}])");
  EXPECT_EQ(*chat.render(input), R"({"z": 1, "a": {"y": 1.0, "b": [true, null, "é"]}, "m": -2})");
}

TEST(ChatTemplate, RendersOnManyThreads) {
  const ChatTemplate chat = parsed(
      "{% macro f(x) %}{{ x ~ 'é' }}{% endmacro %}{% for i in range(200) %}{{ f('äöü'[1:]) }}"
      "{% endfor %}");
  const std::string want = *chat.render({});
  std::vector<std::thread> threads;
  std::vector<std::string> got(4);
  for (std::string& text : got) {
    threads.emplace_back([&] { text = *chat.render({}); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : got) EXPECT_EQ(text, want);
}

TEST(ChatTemplate, TellsTheTimeItIsGiven) {
  const ChatTemplate chat = parsed("{{ strftime_now('%d %b %Y, %A %H:%M') }}");
  RenderInput input;
  input.now = *parse_time("2024-07-26");
  EXPECT_EQ(*chat.render(input), "26 Jul 2024, Friday 00:00");
  input.now = *parse_time("2024-02-29T23:59:58");
  EXPECT_EQ(*chat.render(input), "29 Feb 2024, Thursday 23:59");
  input.now = *parse_time("1721995200");
  EXPECT_EQ(*chat.render(input), "26 Jul 2024, Friday 12:00");
  for (const char* bad : {"", "yesterday", "2024-13-01", "2024-02-30", "2024-07-26Z", "1e9",
                          "99999999999999999999"}) {
    EXPECT_FALSE(parse_time(bad).ok()) << bad;
  }
  input.now = std::nullopt;
  EXPECT_TRUE(chat.render(input).ok());
}

TEST(ChatCase, TakesTheFourKeys) {
  const ChatTemplate chat =
      parsed("{{ messages | length }}{{ tools }}{{ add_generation_prompt }}{{ x }}{{ bos_token }}");
  RenderInput base;
  base.bos_token = "<s>";
  EXPECT_EQ(*render_chat_case(chat, R"({"messages": []})", base), "0NoneTrue<s>");
  EXPECT_EQ(*render_chat_case(
                chat, R"({"messages": [1], "tools": [2], "gen": false, "extra": {"x": 3}})", base),
            "1[2]False3<s>");
}

TEST(ChatCase, RefusesWhatItDoesNotKnow) {
  const ChatTemplate chat = parsed("x");
  const auto error = [&](const char* text) {
    return render_chat_case(chat, text, {}).error().message;
  };
  EXPECT_EQ(error("{}"), "chat case: no 'messages'");
  EXPECT_EQ(error("[]"), "chat case: 'the case' is array, expected an object");
  EXPECT_EQ(error(R"({"messages": 1})"), "chat case: 'messages' is number, expected an array");
  EXPECT_EQ(error(R"({"mesages": []})"),
            "chat case: unknown key 'mesages'; did you mean 'messages'?");
  EXPECT_TRUE(error("{").starts_with("chat case: not JSON")) << error("{");
}

TEST(TemplateProbe, FindsWhatATemplateCanDo) {
  const ChatTemplate simple = parsed(
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
      "{% endif %}<{{ m.role }}>{{ m.content + '' }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  const TemplateProbe probe = probe_template(simple, std::nullopt, std::nullopt);
  EXPECT_TRUE(probe.user && probe.string_content && probe.assistant && probe.generation_prompt);
  EXPECT_FALSE(probe.system || probe.tools || probe.tool_calls || probe.list_content ||
               probe.alternation || probe.reasoning_content || probe.opens_thinking);
  EXPECT_EQ(probe.thinking_switch, "");
  ASSERT_EQ(probe.failures.size(), 2u);
  EXPECT_EQ(probe.failures[0].probe, "list content");
  EXPECT_EQ(probe.failures[1].probe, "system");
  EXPECT_EQ(probe.failures[1].message, "chat template:1:69: no system");
}

TEST(TemplateProbe, SaysWhyATemplateIsUseless) {
  const TemplateProbe probe =
      probe_template(parsed("{{ messages[0].text.upper() }}"), std::nullopt, std::nullopt);
  EXPECT_FALSE(probe.user);
  ASSERT_FALSE(probe.failures.empty());
  EXPECT_EQ(probe.failures[0].message, "chat template:1:20: 'dict object' has no attribute 'text'");
}

}  // namespace
}  // namespace ktx::text
