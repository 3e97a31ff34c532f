#include "lib/text/exact_json.h"

#include <gmock/gmock.h>

#include <cmath>

#include "lib/text/chat_template/chat_template.h"

namespace ktx::text {
namespace {

using nlohmann::ordered_json;

TEST(ExactJson, KeepsAllDigitsOfIntegers) {
  for (const char* text :
       {"18446744073709551615", "18446744073709551616", "-9223372036854775808",
        "-9223372036854775809", "9007199254740993",
        R"({"a":[340282366920938463463374607431768211455,{"b":-1e2,"c":"x"}],"a2":null})",
        R"([1.5,true,"\u00e9",123456789012345678901234567890])"}) {
    const ordered_json json = parse_json(text);
    ASSERT_FALSE(json.is_discarded()) << text;
    EXPECT_EQ(parse_json(json_text(json)), json) << text;
    if (std::string_view(text).find_first_of("e\\") == std::string_view::npos) {
      EXPECT_EQ(json_text(json), text);
    }
  }
  EXPECT_TRUE(is_wide(parse_json("18446744073709551616")));
  EXPECT_FALSE(is_wide(parse_json("18446744073709551615")));
  EXPECT_TRUE(is_numeric(parse_json("18446744073709551616")));
  EXPECT_DOUBLE_EQ(number_value(parse_json("36893488147419103232")), 0x1p65);
}

TEST(ExactJson, IsElseAsTheLibraryHasIt) {
  for (const char* text : {"", "{", "[1,]", "{\"a\":1}x", "\"\xff\"", "nul", "-"}) {
    EXPECT_TRUE(parse_json(text).is_discarded()) << text;
  }
  for (const char* text : {"{}", "[]", R"({"b":1,"a":2,"b":3})", "-0", "1.0", "1e3", "[[],{}]"}) {
    EXPECT_EQ(parse_json(text), ordered_json::parse(text)) << text;
  }
}

// The library stops at these, and with them the whole text.
TEST(ExactJson, KeepsNumbersBeyondAllDoubles) {
  const std::string digits = "1" + std::string(400, '0');
  for (const std::string& number : {std::string("1e400"), std::string("-1.5E+999999999999"), digits,
                                    "-" + digits, "0.1" + digits + "e400"}) {
    const ordered_json json =
        parse_json(R"([1, "1e400 \" 2", {"-": )" + number + " }, 3e2, " + number + ",0]");
    ASSERT_TRUE(json.is_array()) << number;
    EXPECT_EQ(json_text(json), R"([1,"1e400 \" 2",{"-":)" + number + "},300.0," + number + ",0]");
    EXPECT_TRUE(is_wide(json[4]));
    EXPECT_EQ(number_value(json[4]), number[0] == '-' ? -INFINITY : INFINITY) << number;
  }
  for (const char* text :
       {"01e400", "1e400.5", "1e400e1", "1.e400", ".1e400", "+1e400", "1e400 1", "-", "[-,1e400]",
        "[1e400,]", "{\"a\":1e400", "1e+", "x1e400", "-01e400"}) {
    EXPECT_TRUE(parse_json(text).is_discarded()) << text;
  }
  JsonFault fault;
  EXPECT_TRUE(parse_json("[1e400, 2, x]", &fault).is_discarded());
  EXPECT_EQ(fault.at, 12u);
}

TEST(ExactJson, TemplatesPrintWideIntegersWithAllDigits) {
  const auto render = [](const std::string& source, const std::string& value) {
    Result<ChatTemplate> made = ChatTemplate::parse(source);
    EXPECT_TRUE(made) << source;
    RenderInput input;
    input.extra = {{"x", parse_json(value)}};
    Result<std::string> text = made->render(input);
    return text ? *text : text.error().message;
  };
  const std::string big = "115792089237316195423570985008687907853";
  EXPECT_EQ(render("{{ x | tojson }} {{ x.a }}", "{\"a\":" + big + "}"),
            "{\"a\": " + big + "} " + big);
  EXPECT_EQ(render("{{ x }} {{ x | int }} {{ x | string }} {{ '%d' % x }}", "18446744073709551615"),
            "18446744073709551615 18446744073709551615 18446744073709551615 18446744073709551615");
  EXPECT_EQ(render("{{ x is integer }} {{ x is number }} {{ x is float }} {{ x > 5 }} {{ x == x }}",
                   "-" + big),
            "True True False False True");
  EXPECT_EQ(render("{{ x[0] == x[1] }} {{ x[0] < x[1] }}",
                   "[18446744073709551616, 18446744073709551617]"),
            "False True");
  // As the reference does, whose numbers they are not either.
  EXPECT_EQ(render("{{ x }} {{ x | tojson }}", "[1e400, -1e400]"),
            "[inf, -inf] [Infinity, -Infinity]");
}

}  // namespace
}  // namespace ktx::text
