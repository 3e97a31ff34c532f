// Which bytes of a prompt came from outside of the template, through all that templates do.
#include <gtest/gtest.h>

#include "lib/text/chat_template/chat_template.h"
#include "tests/support/tiny_tokenizer.h"

namespace ktx::text {
namespace {

// The prompt, with what came from outside in brackets.
std::string marked(const std::string& source, const RenderInput& input) {
  const auto chat = ChatTemplate::parse(source);
  if (!chat) return chat.error().message;
  const auto prompt = chat->render_marked(input);
  if (!prompt) return prompt.error().message;
  EXPECT_EQ(chat->render(input).take(), prompt->text);
  std::string out;
  size_t at = 0;
  for (const TextSpan& span : prompt->outside) {
    EXPECT_LT(span.begin, span.end);
    EXPECT_LE(span.end, prompt->text.size());
    out += prompt->text.substr(at, span.begin - at) + "[" +
           prompt->text.substr(span.begin, span.end - span.begin) + "]";
    at = span.end;
  }
  return out + prompt->text.substr(at);
}

std::string of_content(const std::string& source, const std::string& content) {
  RenderInput input;
  input.messages = {{{"role", "user"}, {"content", content}}};
  return marked("{% set c = messages[0]['content'] %}" + source, input);
}

TEST(OutsideText, IsFollowedThroughATemplate) {
  const std::tuple<const char*, const char*, const char*> kCases[] = {
      {"<|u|>{{ c }}<|e|>", "hi", "<|u|>[hi]<|e|>"},
      {"{{ '<|' + messages[0]['role'] + '|>' + c + '<|e|>' }}", "hi", "<|user|>[hi]<|e|>"},
      {"{{ '<u>' ~ c ~ 7 ~ '<e>' }}", "hi", "<u>[hi]7<e>"},
      {"{{ ('<u> ' + c + ' <e>  ') | trim }}", " a ", "<u> [ a ] <e>"},
      {"{{ (' ' + c + ' <e> ').strip() }}", "a", "[a] <e>"},
      {"{{ c | trim }}<e>", "  a b ", "[a b]<e>"},
      {"{{ ['<u>', c, '<e>'] | join('-') }}", "a", "<u>-[a]-<e>"},
      {"{{ '-'.join(['<u>', c]) }}", "a", "<u>-[a]"},
      {"{{ '<u>%s<e>' % c }}|{{ '<u>{}<e>'.format(c) }}|{{ '<u>%s<e>' | format(c) }}", "a",
       "<u>[a]<e>|<u>[a]<e>|<u>[a]<e>"},
      {"{{ ('<u>' + c).replace('>', '!') }}", "a>b", "<u![a]![b]"},
      {"{{ c | replace('a', '<x>') }}", "bab", "[b]<x>[b]"},
      {"{{ (c + '<e>')[1:] }}{{ c[0] }}{{ (c + '<e>')[-1] }}", "ab", "[b]<e>[a]>"},
      {"{{ (c + '</t>x').split('</t>')[0] }}|{{ (c + '</t>x').split('</t>')[-1] }}", "a", "[a]|x"},
      {"{% for l in (c + '\n<e>').splitlines() %}{{ l }};{% endfor %}", "a", "[a];<e>;"},
      {"{% for x in c %}{{ x }}.{% endfor %}", "ab", "[a].[b]."},
      {"{% macro m(x) %}<u>{{ x }}<e>{% endmacro %}{{ m(c) }}{{ m(c) | trim }}", "a",
       "<u>[a]<e><u>[a]<e>"},
      {"{% set t %}<u>{{ c }}{% endset %}{{ t }}<e>", "a", "<u>[a]<e>"},
      {"{% set n = namespace(x='') %}{% for i in [1, 2] %}{% set n.x = n.x + '<' ~ c %}{% endfor "
       "%}{{ n.x }}",
       "a", "<[a]<[a]"},
      {"{{ c | upper }}{{ c | string }}{{ c | default('x') }}{{ c | tojson }}", "a", "[Aaa\"a\"]"},
      {"{{ messages[0] }}", "a", "[{'role': 'user', 'content': 'a'}]"},
      {"{{ c * 2 }}<e>{{ c if c else '<x>' }}", "a", "[aa]<e>[a]"},
      {"{{ ['<x>', c] | first }}{{ ['<x>', c] | last }}{{ nothing | default('<y>') }}", "a",
       "<x>[a]<y>"},
      {"{{ c | length }}{{ 'a' in c }}{{ c.startswith('a') }}", "a", "1TrueTrue"},
  };
  for (const auto& [source, content, want] : kCases) {
    EXPECT_EQ(of_content(source, content), want) << source;
  }
}

TEST(OutsideText, IsAllOfToolsVariablesAndMessagesButTheirRoles) {
  RenderInput input;
  input.messages = nlohmann::ordered_json::parse(R"([
    {"role": "assistant", "content": "<think>a</think>b", "tool_calls":
      [{"function": {"name": "f", "arguments": {"k": "v"}}}]},
    {"role": "tool", "content": "<think>", "name": "f"}])");
  input.tools = nlohmann::ordered_json::parse(R"([{"function": {"name": "g"}}])");
  input.extra = {{"who", "me"}, {"n", 5}};
  input.bos_token = "<s>";
  input.answer_tags = {"<think>", "</think>"};
  EXPECT_EQ(marked("{{ bos_token }}{% for m in messages %}|{{ m.role }}:{{ m.content }}{{ m.name }}"
                   "{% for t in m.tool_calls or [] %}{{ t.function.name }}"
                   "{% for k, v in t.function.arguments.items() %}({{ k }}={{ v }}){% endfor %}"
                   "{% endfor %}{% endfor %}|{{ tools | tojson }}|{{ who }}{{ n }}",
                   input),
            "<s>|assistant:<think>[a]</think>[bf]([k]=[v])|tool:[<think>f]|"
            "[[{\"function\": {\"name\": \"g\"}}]]|[me]5");
}

// Text is never a control token, whatever it spells; what the template says is.
TEST(OutsideText, ControlTokensAreTheTemplatesOwn) {
  const auto data = testing::tiny_bpe({{"<|u|>", TokenType::Control},
                                       {"<|e|>", TokenType::Control},
                                       {"\n\n", TokenType::UserDefined},
                                       {"qz"}},
                                      {"q z"});
  ASSERT_TRUE(data.ok());
  TokenizerData copy = *data;
  const Tokenizer t = Tokenizer::create(std::move(copy)).take();
  const int32_t u = *t.find("<|u|>"), e = *t.find("<|e|>"), lines = *t.find("\n\n");
  const auto ids = [&](const std::string& text, const TextSpans& outside) {
    return t.encode(text, {.parse_special = true, .outside = outside});
  };
  const std::string text = "<|u|>x<|e|>\n\n<|e|>";
  EXPECT_EQ(ids(text, {}), (std::vector<int32_t>{u, 'x', e, lines, e}));
  EXPECT_EQ(ids(text, {{5, 11}}),
            (std::vector<int32_t>{u, 'x', '<', '|', 'e', '|', '>', lines, e}));
  // With a part alone, too; a token that is no control token runs through.
  EXPECT_EQ(ids(text, {{6, 8}}), ids(text, {{5, 11}}));
  EXPECT_EQ(ids(text, {{10, 12}}), ids(text, {{5, 12}}));
  EXPECT_EQ(ids(text, {{0, text.size()}}), t.encode(text));
}

}  // namespace
}  // namespace ktx::text
