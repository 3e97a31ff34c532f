// The template language against Python's Jinja2: chat_template_cases.json holds
// some thousand small templates with what Jinja2 prints for them.
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/text/chat_template/chat_template.h"
#include "tests/support/paths.h"

namespace ktx::text {
namespace {

using Json = nlohmann::ordered_json;

// Templates that we take on purpose although Jinja2 does not, or the reverse.
const std::map<std::string, std::string>& deviations() {
  static const std::map<std::string, std::string> list = {
      {"{{ in }}", "a reserved word is no variable"},
      {"{{ nums[] }}", "an empty index is a mistake"},
      {"{{ 1.real }}", "numbers have no attributes"},
      {"{{ n.real }}", "numbers have no attributes"},
      {"{#", "an open comment at the very end is a mistake too"},
      {"{% raw %}", "and so is an open raw block"},
  };
  return list;
}

TEST(ChatTemplateLanguage, PrintsWhatJinja2Prints) {
  std::ifstream file(source_dir() + "/tests/unit/text/chat_template_cases.json");
  ASSERT_TRUE(file.is_open());
  const Json fixture = Json::parse(file);
  RenderInput input;
  input.extra = fixture["variables"];
  input.now = *parse_time("2026-01-02T03:04:05");
  int cases = 0;
  for (const Json& pair : fixture["cases"]) {
    const auto source = pair[0].get<std::string>();
    if (deviations().contains(source)) continue;
    ++cases;
    const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
    const Result<std::string> text =
        parsed.ok() ? parsed->render(input) : Result<std::string>(parsed.error());
    if (pair[1].is_null()) {
      EXPECT_FALSE(text.ok()) << source << "\n  is refused by Jinja2, we print: " << *text;
      continue;
    }
    if (!text.ok()) {
      ADD_FAILURE() << source << "\n  " << text.error().message
                    << "\n  Jinja2 prints: " << pair[1].get<std::string>();
      continue;
    }
    EXPECT_EQ(*text, pair[1].get<std::string>()) << source;
  }
  EXPECT_GT(cases, 900);
}

struct BadTemplate {
  const char* source;
  const char* error;
};

TEST(ChatTemplateLanguage, ErrorsNameLineAndColumn) {
  const BadTemplate kCases[] = {
      {"a\n  {{ x + 1 }}", "chat template:2:8: 'x' is undefined"},
      {"{% if a %}\n{% endfor %}",
       "chat template:2:4: unexpected 'endfor', expected 'endif' for 'if' of line 1"},
      {"{{ x | tojsn }}", "chat template:1:8: no filter named 'tojsn'; did you mean 'tojson'?"},
      {"{% forr x in y %}", "chat template:1:4: unknown tag 'forr'; did you mean 'for'?"},
      {"{{ raise_exception('roles must alternate') }}", "chat template:1:19: roles must alternate"},
      {"{% include 'x' %}",
       "chat template:1:4: 'include' is refused; a chat template may not read others"},
      {"é {{ 'a' + 1 }}", "chat template:1:10: can only concatenate str (not \"int\") to str"},
      {"{{ messages[5].role }}", "chat template:1:15: list object has no element 5"},
      {"{{ 99999999999999999999 }}",
       "chat template:1:4: integer 99999999999999999999 does not fit in 64 bits"},
      {"{{ 9223372036854775807 + 1 }}",
       "chat template:1:24: the integer result does not fit in 64 bits"},
      {"{{ messages.append(1) }}",
       "chat template:1:19: access to attribute 'append' of 'list' object is unsafe"},
      {"{{ 1 | random }}", "chat template:1:8: 'random' is not supported"},
      {"{{ (1 }}", "chat template:1:7: unexpected '}', expected ')'"},
      {"x {{ 1", "chat template:1:3: the tag is not closed; add `}}`"},
      {"{% if x %}",
       "chat template:1:11: the template ends where 'endif' is missing for 'if' of line 1"},
  };
  for (const BadTemplate& c : kCases) {
    const Result<ChatTemplate> parsed = ChatTemplate::parse(c.source);
    const Result<std::string> text =
        parsed.ok() ? parsed->render({}) : Result<std::string>(parsed.error());
    ASSERT_FALSE(text.ok()) << c.source << " prints " << *text;
    EXPECT_EQ(text.error().message, c.error) << c.source;
  }
}

// tojson takes a generator, which json.dumps refuses: a published template of
// DeepSeek R1 needs it, and nothing a user could do would help.
TEST(ChatTemplateLanguage, TojsonTakesWhatMapReturns) {
  const auto parsed =
      ChatTemplate::parse("{{ [{'a': 1}, {'a': 2}] | map(attribute='a') | tojson }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed->render({}), "[1, 2]");
}

// DeepSeek-V4's template reads arguments that stand as text.
TEST(ChatTemplateLanguage, FromJsonReadsText) {
  const auto parsed = ChatTemplate::parse(
      R"({% set args = '{"b": [1, null], "a": "x"}' | from_json %})"
      R"({% for key, value in args.items() %}{{ key }}={{ value | tojson }};{% endfor %})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(*parsed->render({}), "b=[1, null];a=\"x\";");

  for (const char* wrong : {"{{ '{' | from_json }}", "{{ 1 | from_json }}"}) {
    const auto refused = ChatTemplate::parse(wrong);
    ASSERT_TRUE(refused.ok());
    EXPECT_THAT(refused->render({}).error().message, ::testing::HasSubstr("from_json: ")) << wrong;
  }
}

}  // namespace
}  // namespace ktx::text
