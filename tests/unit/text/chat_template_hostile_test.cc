// Templates that try to crash, hang or exhaust the memory, and bytes that are not a template.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "lib/text/chat_template/chat_template.h"
#include "tests/support/cpu_time.h"
#include "tests/support/paths.h"

namespace ktx::text {
namespace {

std::string repeat(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

Result<std::string> render(std::string_view source, const RenderInput& input = {}) {
  const Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.error();
  return parsed->render(input);
}

// Ends with an error, and soon. A twentieth of the default limits: sanitizers are
// slow; RefusesWithTheDefaultLimits has a few cases with all of them.
void expect_refused(const std::string& source, bool all_limits = false) {
  const double start = testing::cpu_seconds();
  RenderInput input;
  if (!all_limits) {
    input.limits.steps /= 20;
    input.limits.live_bytes /= 20;
    input.limits.output_bytes /= 20;
  }
  const Result<std::string> text = render(source, input);
  const double took = testing::cpu_seconds() - start;
  EXPECT_FALSE(text.ok()) << source.substr(0, 200) << "\n  prints "
                          << (text.ok() ? text->size() : 0) << " bytes";
  EXPECT_LT(took, 60) << source.substr(0, 200);
}

TEST(ChatTemplateHostile, EndlessWorkIsRefused) {
  expect_refused(
      "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}"
      "{% endfor %}{% endfor %}{% endfor %}");
  expect_refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
  expect_refused(
      "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}");
  expect_refused("{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}");
  expect_refused("{% for x in [1] recursive %}{{ loop([x]) }}{% endfor %}");
  expect_refused("{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}");
  // A search that is quadratic when done naively.
  expect_refused(
      "{% set a = 'a' * 8000000 %}{% for i in range(100000) %}{{ (a ~ 'b') in (a ~ a) }}{% endfor "
      "%}");
  expect_refused("{% set a = 'é' * 10000000 %}{% for i in range(100000) %}{{ a[-1] }}{% endfor %}");
  expect_refused(
      "{% set a = 'ab' * 1000000 %}{% for i in range(100000) %}{% set b = a.split('b') %}{% endfor "
      "%}");
}

TEST(ChatTemplateHostile, BombsAreRefused) {
  expect_refused("{{ 'a' * 10 ** 9 }}");
  expect_refused("{{ 'a' * 9223372036854775807 }}");
  expect_refused("{{ [1] * 10 ** 9 }}");
  expect_refused("{{ range(10 ** 12) }}");
  expect_refused("{{ range(-9223372036854775807, 9223372036854775807) }}");
  expect_refused("{{ 10 ** 10 ** 10 }}");
  expect_refused("{{ 'a' | center(10 ** 10) }}");
  expect_refused("{{ 'a'.ljust(10 ** 10) }}");
  expect_refused("{{ 'a' | indent(10 ** 10) }}");
  expect_refused("{{ '%1000000000d' % 1 }}");
  expect_refused("{{ '{:1000000000}'.format(1) }}");
  expect_refused("{{ [[1]] | tojson(indent=10 ** 10) }}");
  expect_refused("{{ 'a\tb'.expandtabs(10 ** 10) }}");
  expect_refused("{{ [1] | batch(10 ** 10, 0) | list }}");
  expect_refused("{{ [1] | slice(10 ** 10) | list }}");
  expect_refused("{{ '1'.zfill(10 ** 10) }}");
  expect_refused("{{ ('a' * 10 ** 7).replace('a', 'a' * 10 ** 7) }}");
  expect_refused("{{ ('a' * 10 ** 7) | list | length }}");
  expect_refused("{% set x = 'a' * 10 ** 6 %}{% for i in range(100000) %}{{ x }}{% endfor %}");
  expect_refused("{% set x %}" + repeat("{{ 'a' * 10 ** 8 }}", 5) + "{% endset %}");
  const std::string doubled = "{% set ns = namespace(x='a') %}{% for i in range(64) %}";
  expect_refused(doubled + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}");
  expect_refused(
      "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}"
      "{% set ns.x = ns.x + ns.x %}{% endfor %}");
  // Small in memory, huge when printed, compared or written as JSON.
  const std::string shared =
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(90) %}"
      "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}";
  expect_refused(shared + "{{ ns.x }}");
  expect_refused(shared + "{{ ns.x | tojson }}");
  expect_refused(shared + "{{ ns.x == ns.y }}");
  expect_refused(
      "{% set ns = namespace(x=(1,), y=(1,)) %}{% for i in range(90) %}"
      "{% set ns.x = (ns.x, ns.x) %}{% set ns.y = (ns.y, ns.y) %}{% endfor %}"
      "{{ {ns.x: 1}[ns.y] }}");
  // A scope that a macro keeps, a hundred thousand times over.
  expect_refused(
      "{% for a in range(100000) %}{% for b in range(100) %}"
      "{% macro f() %}{% endmacro %}{% endfor %}{% endfor %}");
}

TEST(ChatTemplateHostile, RefusesWithTheDefaultLimits) {
  expect_refused(
      "{% for a in range(100000) %}{% for b in range(100000) %}{{ a * b }}{% endfor %}"
      "{% endfor %}",
      true);
  expect_refused(
      "{% set ns = namespace(x='a') %}{% for i in range(64) %}"
      "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
      true);
  expect_refused("{% macro f() %}{{ [f()] | map('upper') | list }}{% endmacro %}{{ f() }}", true);
}

TEST(ChatTemplateHostile, DeepNestingIsRefused) {
  expect_refused("{{ " + repeat("(", 100000) + "1" + repeat(")", 100000) + " }}");
  expect_refused("{{ " + repeat("[", 100000) + repeat("]", 100000) + " }}");
  expect_refused("{{ " + repeat("-", 100000) + "1 }}");
  expect_refused("{{ " + repeat("not ", 100000) + "1 }}");
  expect_refused("{{ 1" + repeat(" + 1", 100000) + " }}");
  expect_refused("{{ 1" + repeat(" if 1 else 1", 50000) + " }}");
  expect_refused("{{ x" + repeat(".x", 100000) + " }}");
  expect_refused("{{ x" + repeat("|list", 100000) + " }}");
  expect_refused("{{ x" + repeat("()", 100000) + " }}");
  expect_refused(repeat("{% if 1 %}", 50000) + repeat("{% endif %}", 50000));
  expect_refused(repeat("{% for x in [1] %}", 50000));
  expect_refused("{% set " + repeat("(", 100000) + "a");
  expect_refused(
      "{% set ns = namespace(x=[]) %}{% for i in range(100000) %}"
      "{% set ns.x = [ns.x] %}{% endfor %}");
  expect_refused(
      "{% set ns = namespace(x=1) %}{% for i in range(100000) %}"
      "{% set ns.x = {'a': ns.x} %}{% endfor %}");
  expect_refused(
      "{% set ns = namespace(x={}) %}{% for i in range(100000) %}"
      "{% set ns.x = {'a': ns.x.items} %}{% endfor %}");
  expect_refused("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}");
  expect_refused("{% macro f(n) %}" + repeat("{% if 1 %}", 90) + "{{ f(n) }}" +
                 repeat("{% endif %}", 90) + "{% endmacro %}{{ f(1) }}");
  expect_refused(repeat(" ", (1 << 20) + 1));
  // Wide is fine.
  EXPECT_TRUE(render("{{ [" + repeat("1,", 50000) + "] | length }}").ok());
  EXPECT_TRUE(render("{% if 0 %}" + repeat("{% elif 0 %}", 20000) + "{% endif %}").ok());
}

TEST(ChatTemplateHostile, CyclesDoNotLeak) {
  EXPECT_TRUE(render("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}"
                     "{% set a.l = [a, b] %}{% for x in [a, b] %}{% set a.loop = loop %}"
                     "{% set b.c = loop.cycle %}{% endfor %}")
                  .ok());
  EXPECT_TRUE(render("{% set ns = namespace() %}{% for i in [1, 2] %}{% macro f() %}{{ i }}"
                     "{% endmacro %}{% set ns.f = f %}{% endfor %}{{ ns.f() }}")
                  .ok());
  const auto after = render(
      "{% set ns = namespace() %}{% for i in [1] %}{% set ns.l = loop %}"
      "{% endfor %}{{ ns.l.index }}{{ ns.l.last }}{{ ns.l.nextitem }}");
  EXPECT_EQ(*after, "1True");
}

TEST(ChatTemplateHostile, DeepAndLargeInputIsBounded) {
  RenderInput input;
  nlohmann::ordered_json deep = 1;
  for (int i = 0; i < 5000; ++i) deep = nlohmann::ordered_json::array({std::move(deep)});
  input.messages = nlohmann::ordered_json::array({deep});
  EXPECT_FALSE(render("x", input).ok());
  input.messages = nlohmann::ordered_json::object();
  EXPECT_FALSE(render("x", input).ok());
}

// Mutations of the fixture's templates: any answer, but no crash (sanitizers).
TEST(ChatTemplateHostile, AnyBytesGiveAnAnswer) {
  std::ifstream file(source_dir() + "/tests/unit/text/chat_template_cases.json");
  const auto fixture = nlohmann::ordered_json::parse(file);
  RenderInput input;
  input.extra = fixture["variables"];
  input.limits.steps = 100'000;
  input.limits.live_bytes = 16 << 20;
  const unsigned seed = std::random_device()();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  const auto& cases = fixture["cases"];
  const auto pick = [&](size_t n) { return random() % n; };
  const auto source = [&] { return cases[pick(cases.size())][0].get<std::string>(); };
  for (int round = 0; round < 4000; ++round) {
    std::string text = source() + source();
    for (size_t k = pick(6); k > 0 && !text.empty(); --k) {
      const size_t at = pick(text.size());
      switch (pick(4)) {
        case 0:
          text[at] = static_cast<char>(pick(256));
          break;
        case 1:
          text.erase(at, pick(8));
          break;
        case 2: {
          const std::string other = source();
          if (!other.empty()) text.insert(at, other.substr(pick(other.size()), pick(12)));
          break;
        }
        default:
          text = text.substr(0, at);
      }
    }
    SCOPED_TRACE(text);
    (void)render(text, input).ok();
  }
  std::printf("seed %u\n", seed);
}

}  // namespace
}  // namespace ktx::text
