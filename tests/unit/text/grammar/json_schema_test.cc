#include "lib/text/grammar/json_schema.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "lib/text/grammar/schema_extent.h"
#include "tests/support/cpu_time.h"
#include "tests/support/paths.h"
#include "tests/unit/text/grammar/grammar_tools.h"
#include "tests/unit/text/grammar/schema_check.h"

namespace ktx::text {
namespace {

// Processor time that a hostile schema may take. It is 0.2 s at most, most of it in the allocator,
// of which the sanitizer's is some ten times as slow.
const double kSchemaSeconds = sanitized() ? 20 : 2;

using nlohmann::ordered_json;
using ::testing::HasSubstr;

struct Case {
  const char* schema;
  std::vector<std::string> yes;
  std::vector<std::string> no;
};

const Case kCases[] = {
    {R"({"type": "string"})",
     {R"("")", R"("a\n\u00e9é\ud83d\ude00")", R"( "x")"},
     {"x", R"("a)", R"("\ud83d")", R"("\x")", "\"\n\"", R"("a" )"}},
    {R"({"type": "string", "minLength": 2, "maxLength": 3})",
     {R"("ab")", R"("你好吗")", R"("\n\n")"},
     {R"("a")", R"("abcd")"}},
    {R"({"type": "integer"})",
     {"0", "-12", "9007199254740993"},
     {"01", "1.0", "1e3", "+1", "-", "12345678901234567890123456789012345678901"}},
    {R"({"type": "number"})", {"0", "-1.50", "1e10", "2.5E-3"}, {"1.", ".5", "1e", "1e999"}},
    {R"({"type": ["boolean", "null"]})", {"true", "false", "null"}, {"nul", "True"}},
    {R"({"enum": ["a", 1, null, {"b": [1]}]})", {R"("a")", "1", "null", R"({"b":[1]})"}, {"2"}},
    {R"({"enum": ["a", 1], "type": "string"})", {R"("a")"}, {"1"}},
    {R"({"const": "é\""})", {R"("é\"")"}, {R"("é")"}},
    {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}},
         "required": ["a"]})",
     {R"({"a": 1})", R"({"a":1,"b":null})", "{\n  \"a\": 1,\n  \"b\": null\n}"},
     {"{}", R"({"b": null})", R"({"b": null, "a": 1})", R"({"a": 1,})", R"({"a": 1, "c": 2})"}},
    {R"({"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}})",
     {"{}", R"({"a": 1})", R"({"b": 2})", R"({"c": 3})", R"({"a": 1, "c": 3})",
      R"({"b": 2, "c": 3})"},
     {R"({"c": 3, "a": 1})", R"({, "c": 3})", R"({"a": 1 "c": 3})"}},
    {R"({"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": {"type": "boolean"}})",
     {"{}", R"({"a": 1})", R"({"a": 1, "x": true})", R"({"b": true, "ab": false, "": true})"},
     {R"({"a": true})", R"({"b": 1})", R"({"b": true, "a": 1})"}},
    {R"({"type": "object"})", {"{}", R"({"x": [1, {"y": null}]})"}, {"[]", R"({"x"})"}},
    {R"({"type": "object", "additionalProperties": false})", {"{}", "{ }"}, {R"({"a": 1})"}},
    {R"({"type": "object", "required": ["x"]})", {R"({"x": 5})", R"({"x": [], "y": 1})"}, {"{}"}},
    {R"({"type": "object", "additionalProperties": {"const": 1}, "minProperties": 1, "maxProperties": 2})",
     {R"({"a": 1})", R"({"a": 1, "b": 1})"},
     {"{}", R"({"a": 1, "b": 1, "c": 1})"}},
    {R"({"type": "array", "items": {"type": "integer"}})",
     {"[]", "[1]", "[1, 2,3]", "[\n 1\n]"},
     {"[1,]", "[,]", "[a]", "[1 2]"}},
    {R"({"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 3})",
     {"[1,1]", "[1,1,1]"},
     {"[1]", "[]", "[1,1,1,1]"}},
    {R"({"type": "array", "items": {"const": 1}, "minItems": 2})", {"[1,1]", "[1,1,1,1]"}, {"[1]"}},
    {R"({"type": "array", "items": {"const": 1}, "maxItems": 0})", {"[]"}, {"[1]"}},
    {R"({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}, "minItems": 1})",
     {"[1]", "[1,2]", "[1,2,3,3]"},
     {"[]", "[2]", "[1,3]"}},
    {R"({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": false})",
     {"[]", "[1]", "[1, 2]"},
     {"[1,2,3]"}},
    {R"({"anyOf": [{"type": "string"}, {"type": "integer"}]})", {R"("a")", "1"}, {"1.5", "null"}},
    {R"({"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"],
         "oneOf": [{"properties": {"k": {"const": "x"}}}, {"properties": {"k": {"enum": ["y", "z"]}}}]})",
     {R"({"k": "x"})", R"({"k": "z"})"},
     {R"({"k": "w"})", "{}"}},
    {R"({"allOf": [{"type": "number", "minimum": 1}, {"type": "integer"}, {"maximum": 3}]})",
     {"1", "3"},
     {"0", "4", "1.5"}},
    {R"({"allOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]},
                   {"properties": {"b": {"const": 2}}, "required": ["b"]}]})",
     {R"({"a": 1, "b": 2})"},
     {R"({"a": 1})"}},
    {R"({"$defs": {"n": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/n"}})",
     {"[1, 2]"},
     {"[true]"}},
    {R"({"$ref": "#/definitions/a~1b", "definitions": {"a/b": {"const": 7}}})", {"7"}, {"8"}},
    {R"({"$defs": {"s": {"type": "string"}}, "$ref": "#/$defs/s", "minLength": 2})",
     {R"("ab")"},
     {R"("a")"}},
    // recursion
    {R"({"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
         "required": ["v", "next"]})",
     {R"({"v": 1, "next": null})", R"({"v": 1, "next": {"v": 2, "next": {"v": 3, "next": null}}})"},
     {R"({"v": 1, "next": {}})", R"({"v": 1})"}},
    {R"({"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"})",
     {"[]", "[[], [[]]]"},
     {"[1]", "[["}},
    {"true", {"1", R"({"a": [null, "x"]})"}, {"", "[}"}},
    {"{}", {"1", "[]"}, {"x"}},
    {R"({"type": "string", "nullable": true})", {R"("")", "null"}, {"1"}},
    {R"({"type": "string", "pattern": "^[A-Z]{2}\\d+(-x|\\.y)?$"})",
     {R"("AB1")", R"("AB12-x")", R"("ZZ0.y")"},
     {R"("A1")", R"("AB")", R"("AB1y")", R"("xAB1")"}},
    {R"({"type": "string", "pattern": "b+"})", {R"("abbc")", R"("b")"}, {R"("ac")"}},
    {R"({"type": "string", "pattern": "^a|b$"})", {R"("ax")", R"("xb")"}, {R"("xax")"}},
    {R"({"type": "string", "pattern": "^[\"\\\\\\n\\t]é.$"})",
     {R"("\"é你")", R"("\\éx")", R"("\té!")"},
     {"\"\"éx\"", R"("aéx")"}},
    {R"({"type": "string", "format": "date"})",
     {R"("2024-02-28")", R"("2024-12-31")"},
     {R"("2024-13-01")", R"("2024-02-30")", R"("2024-04-31")", R"("x")"}},
    {R"({"type": "string", "format": "uuid"})",
     {R"("123e4567-e89b-12d3-a456-426614174000")"},
     {R"("1")"}},
    {R"({"type": "string", "format": "binary"})", {R"("anything")"}, {"1"}},
    {R"({"type": "string", "format": "email"})",
     {R"("a.b+c@ex-ample.co.uk")"},
     {R"("anything")", R"("a@b")", R"("a@-b.de")", R"("a@b..de")"}},
    {R"({"type": "string", "format": "hostname"})",
     {R"("localhost")", R"("a-1.example.org")"},
     {R"("")", R"("-a.de")", R"("a..b")", R"("a b")"}},
    {R"({"type": "string", "format": "ipv6"})",
     {R"("::1")", R"("::")", R"("2001:db8::1")", R"("1:2:3:4:5:6:7:8")"},
     {R"("1:2:3")", R"("1::2::3")", R"("1:2:3:4:5:6:7:8:9")", R"("g::1")"}},
    {R"({"type": "string", "format": "uri"})",
     {R"("https://example.org/a?b=c#d")", R"("mailto:a@b.de")", R"("http://h:80")"},
     {R"("example.org")", R"("http://a b")", R"("http://a/%zz")", R"("http://")"}},
    {R"({"type": "string", "format": "duration"})",
     {R"("P1D")", R"("PT1H30M")", R"("P2W")", R"("P1Y2M3D")", R"("P1DT2H")"},
     {R"("P")", R"("PT")", R"("1D")", R"("PT1H30S")", R"("P1H")"}},
    // lengths of what has a pattern
    {R"({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3})",
     {R"("a")", R"("abc")"},
     {R"("abcd")", R"("")"}},
    {R"({"type": "string", "pattern": "^[A-Z]{3}$", "minLength": 3, "maxLength": 3})",
     {R"("ABC")"},
     {R"("AB")"}},
    {R"({"type": "string", "pattern": "^x[\"\\\\]*$", "minLength": 3})",
     {R"("x\"\\")"},
     {R"("x\"")", R"("x")"}},
    {R"({"type": "string", "pattern": "^[a-z]+@[a-z]+$", "minLength": 5, "maxLength": 9})",
     {R"("abc@d")", R"("abcd@efgh")"},
     {R"("a@b")", R"("abcdefgh@b")"}},
    {R"({"type": "string", "pattern": "b", "maxLength": 3})", {R"("b")"}, {R"("abba")", R"("a")"}},
    {R"({"type": "string", "format": "date", "maxLength": 10})", {R"("2024-01-01")"}, {R"("x")"}},
    {R"({"type": "string", "format": "uri", "minLength": 1, "maxLength": 9})",
     {R"("a://b")", R"("tel:12")"},
     {R"("")", R"("x")", R"("http://abcdef")"}},
    // multiples
    {R"({"type": "integer", "multipleOf": 5})", {"0", "5", "-10", "125"}, {"3", "12", "-0", "05"}},
    {R"({"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 30})",
     {"0", "7", "28"},
     {"30", "35", "-7"}},
    {R"({"multipleOf": 100, "exclusiveMinimum": 250.5})", {"300", "123400"}, {"200", "250", "350"}},
    {R"({"type": "integer", "multipleOf": 4, "maximum": -5})",
     {"-8", "-160000", "-100"},
     {"16", "0", "-4", "-22"}},
    {R"({"type": "integer", "minimum": 1, "maximum": 100000, "multipleOf": 25})",
     {"25", "1000", "99975", "100000"},
     {"0", "30", "100025"}},
    {R"({"type": "number", "multipleOf": 3, "exclusiveMinimum": -6, "exclusiveMaximum": 6})",
     {"-3", "0", "3"},
     {"-6", "6", "1"}},
    // nothing twice
    {R"({"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": true})",
     {"[]", R"(["a"])", R"(["a", "c"])", R"(["a","b","c"])"},
     {R"(["a","a"])", R"(["d"])"}},
    {R"({"$defs": {"K": {"enum": ["a", "b", "c"], "type": "string"}}, "type": "array",
         "items": {"$ref": "#/$defs/K"}, "uniqueItems": true, "minItems": 1, "maxItems": 2})",
     {R"(["b"])", R"(["a","c"])"},
     {"[]", R"(["b","b"])", R"(["a","b","c"])"}},
    {R"({"type": "array", "items": {"enum": [1, 1.0, 2]}, "uniqueItems": true, "minItems": 2})",
     {"[1,2]"},
     {"[1,1.0]", "[1]"}},
    {R"({"type": "array", "items": {"type": "boolean"}, "uniqueItems": true})",
     {"[false,true]"},
     {"[true,true]"}},
    {R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true})",
     {"[]", R"(["a"])", R"(["a", "b","ab"])", R"(["\u0061b", "b", "a"])"},
     {R"(["a","a"])", R"(["a", "b", "a"])", R"(["a","\u0061"])", R"(["", "x", ""])"}},
    {R"({"type": "array", "items": {"type": "number"}, "uniqueItems": true, "minItems": 2})",
     {"[1,2]", "[1, 12, 123]", "[0.5,5]"},
     {"[1,1]", "[1,1.0]", "[1,10e-1]", "[0,-0]", "[1]"}},
    {R"({"type": "array", "uniqueItems": true})",
     {R"([[1],[2]])", R"([{"a":1},{"a":2}])", R"([1,"1",null,[1]])"},
     {R"([{"a":1,"b":2},{"b":2,"a":1}])", "[[1, 2],[1,2]]", "[null,null]"}},
    {R"({"type": "array", "uniqueItems": true, "prefixItems": [{"type": "string"}, {}]})",
     {R"(["a",1,"b"])"},
     {R"(["a","a"])", R"(["a",1,"a"])"}},
    // where the schema says so alone: one level, one property, behind references
    {R"({"type": "array", "items": {"$ref": "#/$defs/S"}, "minItems": 2,
         "$defs": {"S": {"type": "array", "uniqueItems": true, "items": {"type": "integer"}}}})",
     {"[[1],[1]]", "[[1,2],[2, 1],[1,2]]"},
     {"[[1,2],[3,3]]", "[[4,4],[1]]"}},
    {R"({"properties": {"tags": {"type": "array", "uniqueItems": true, "items": {"type": "string"}},
                        "all": {"type": "array", "items": {"type": "string"}}}})",
     {R"({"tags":["a","b"],"all":["a","a"]})"},
     {R"({"tags":["a","a"],"all":[]})"}},
    {R"({"anyOf": [{"type": "object", "required": ["a"], "properties": {"a": {"type": "array",
         "uniqueItems": true, "items": {"type": "array", "uniqueItems": true,
         "items": {"type": "integer"}}}}}, {"type": "null"}]})",
     {R"({"a":[[1],[2],[]]})", "null"},
     {R"({"a":[[1],[1]]})", R"({"a":[[1,1]]})"}},
    {R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true, "maxItems": 1})",
     {R"(["x"])", "[]"},
     {R"(["x","y"])"}},
    {R"({"type": "integer", "minimum": -3, "maximum": 12})",
     {"-3", "0", "9", "10", "12"},
     {"-4", "13", "100"}},
    {R"({"type": "integer", "exclusiveMinimum": 5, "exclusiveMaximum": 8})",
     {"6", "7"},
     {"5", "8"}},
    {R"({"type": "integer", "minimum": 995, "maximum": 1005})",
     {"995", "999", "1000", "1005"},
     {"994", "1006", "99", "10000"}},
    {R"({"type": "integer", "maximum": -10})", {"-10", "-99"}, {"-9", "0", "10"}},
    {R"({"type": "integer", "minimum": 1.5})", {"2"}, {"1"}},
    {R"({"type": "number", "minimum": 0.25, "maximum": 1})",
     {"0.25", "0.3", "1", "1.0", "0.999"},
     {"0.2", "0.24", "1.01", "0"}},
    {R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})",
     {"0.001", "0.99"},
     {"0", "0.0", "1", "1.0"}},
    // what no value may have, and schemas that are true or false
    {R"({"properties": {"a": false, "b": true}, "additionalProperties": false})",
     {"{}", R"({"b": [1]})"},
     {R"({"a": 1})"}},
    {R"({"type": "array", "items": false})", {"[]", "[ ]"}, {"[1]"}},
    {R"({"type": "array", "items": true, "maxItems": 1})", {"[]", "[{}]"}, {"[1,2]"}},
    {R"({"type": "object", "propertyNames": false})", {"{}"}, {R"({"a": 1})"}},
    {R"({"propertyNames": {"enum": ["x", "y"]}, "additionalProperties": {"const": 1}})",
     {"{}", R"({"x": 1, "y": 1})"},
     {R"({"z": 1})", R"({"x": 2})"}},
    {R"({"$defs": {"k": {"pattern": "^[a-c]$"}}, "type": "object",
         "propertyNames": {"$ref": "#/$defs/k"}})",
     {R"({"a": null, "c": []})"},
     {R"({"d": 1})", R"({"aa": 1})"}},
    {R"({"properties": {}, "title": "Empty", "type": "object"})", {"{}"}, {R"({"a": 1})"}},
    {R"({"properties": {"a": {"const": 1}}, "unevaluatedProperties": false})",
     {"{}", R"({"a": 1})"},
     {R"({"b": 1})"}},
    {R"({"allOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"b": {"const": 2}}}],
         "unevaluatedProperties": false})",
     {R"({"a": 1, "b": 2})"},
     {R"({"c": 1})"}},
    {R"({"type": "object", "unevaluatedProperties": {"type": "null"}})",
     {"{}", R"({"a": null})"},
     {R"({"a": 1})"}},
    {R"({"anyOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]},
                   {"properties": {"b": {"const": 2}}, "required": ["b"]}],
         "unevaluatedProperties": false})",
     {R"({"a": 1})", R"({"b": 2})"},
     {R"({"a": 1, "c": 1})", "{}"}},
    {R"({"type": "array", "prefixItems": [{"const": 1}], "unevaluatedItems": false})",
     {"[]", "[1]"},
     {"[1,1]"}},
    {R"({"type": "array", "items": [{"const": 1}, {"const": 2}], "additionalItems": false})",
     {"[]", "[1,2]"},
     {"[1,2,3]", "[2]"}},
    {R"({"type": "array", "items": [{"const": 1}], "additionalItems": {"const": 3}})",
     {"[1,3,3]"},
     {"[1,1]"}},
    {R"({"type": "array", "items": {"const": 1}, "additionalItems": false})", {"[1,1]"}, {"[2]"}},
    {R"({"type": "integer", "minimum": 3, "exclusiveMinimum": true, "maximum": 9,
         "exclusiveMaximum": false})",
     {"4", "9"},
     {"3", "10"}},
    {R"({"not": false, "type": "null"})", {"null"}, {"1"}},
    {R"({"not": {"type": ["string", "number", "array", "object"]}})",
     {"null", "true"},
     {"1", R"("a")", "[]", "{}"}},
    {R"({"type": ["string", "null"], "not": {"type": "null"}})", {R"("a")"}, {"null"}},
    {R"({"enum": [1, 2, 3], "not": {"enum": [1, 3]}})", {"2"}, {"1", "3"}},
    {R"({"$defs": {"n": {"enum": ["a", "b"]}}, "$ref": "#/$defs/n", "not": {"type": "null"}})",
     {R"("a")"},
     {"null", R"("c")"}},
    {R"({"type": "array", "uniqueItems": false, "items": {"const": 1}})", {"[1,1]"}, {"[2]"}},
    {R"({"type": "array", "minContains": 1, "items": {"const": 1}})", {"[]"}, {"[2]"}},
    // both of two schemas
    {R"({"allOf": [{"properties": {"a": {"const": 1}}, "additionalProperties": {"type": "string"}},
                   {"properties": {"b": {"maxLength": 2}}}]})",
     {R"({"a": 1, "b": "x"})"},
     {R"({"b": "xyz"})", R"({"b": 1})"}},
    {R"({"type": "array", "allOf": [{"prefixItems": [{"type": "integer"}]}, {"items": {"enum": [1, "a"]}}]})",
     {R"([1, "a", 1])"},
     {R"(["a"])", "[2]"}},
    {R"({"allOf": [{"type": "string", "nullable": true}, {"type": ["string", "null"]}]})",
     {R"("a")"},
     {"1"}},
    // conditions
    {R"({"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "n": {"type": "integer"},
         "s": {"type": "string"}}, "required": ["kind"],
         "if": {"properties": {"kind": {"const": "a"}}, "required": ["kind"]},
         "then": {"required": ["n"]}, "else": {"required": ["s"]}})",
     {R"({"kind": "a", "n": 1})", R"({"kind": "b", "s": ""})", R"({"kind": "a", "n": 1, "s": ""})"},
     {R"({"kind": "a", "s": ""})", R"({"kind": "b", "n": 1})", R"({"kind": "b"})"}},
    {R"({"type": "object", "properties": {"k": {"enum": [1, 2, 3]}, "x": {"type": "integer"}},
         "required": ["k", "x"],
         "allOf": [{"if": {"properties": {"k": {"const": 1}}}, "then": {"properties": {"x": {"maximum": 9}}}},
                   {"if": {"properties": {"k": {"const": 2}}}, "then": {"properties": {"x": {"minimum": 50}}}}]})",
     {R"({"k": 1, "x": 9})", R"({"k": 2, "x": 50})", R"({"k": 3, "x": 20})"},
     {R"({"k": 1, "x": 10})", R"({"k": 2, "x": 49})"}},
    {R"({"type": "integer", "if": {"minimum": 10}, "then": {"multipleOf": 10}})",
     {"9", "-3", "10", "120"},
     {"11", "105"}},
    {R"({"type": "string", "not": {"enum": ["a", "ab"]}})",
     {R"("b")", R"("abc")", R"("")"},
     {R"("a")", R"("ab")", R"("\u0061")"}},
    {R"({"type": "string", "not": {"pattern": "^x"}, "maxLength": 3})",
     {R"("ax")", R"("")"},
     {R"("x")", R"("xab")", R"("abcd")"}},
    {R"({"type": "integer", "not": {"const": 5}})", {"4", "55", "-5", "0"}, {"5"}},
    {R"({"type": "number", "not": {"enum": [0, 2.5]}})",
     {"2.51", "1", "0.1"},
     {"0", "-0", "0.0", "2.5", "2.500"}},
    {R"({"type": "number", "not": {"type": "integer"}})", {"1.5", "0.10"}, {"1", "1.0", "0"}},
    {R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}},
         "not": {"required": ["a", "b"]}})",
     {"{}", R"({"a": 1})", R"({"b": 2})"},
     {R"({"a": 1, "b": 2})"}},
    {R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}},
         "dependentRequired": {"a": ["b"], "c": ["a"]}})",
     {"{}", R"({"b": 2})", R"({"a": 1, "b": 2})", R"({"a": 1, "b": 2, "c": 3})"},
     {R"({"a": 1})", R"({"c": 3})", R"({"b": 2, "c": 3})"}},
    {R"({"type": "object", "properties": {"a": {"const": 1}, "n": {"type": "integer"}},
         "dependentSchemas": {"a": {"properties": {"n": {"minimum": 5}}}}})",
     {R"({"n": 1})", R"({"a": 1, "n": 5})", R"({"a": 1})"},
     {R"({"a": 1, "n": 4})"}},
    {R"({"type": "object", "properties": {"a": {}, "b": {}}, "dependencies": {"a": ["b"]}})",
     {R"({"b": 1})", R"({"a": 1, "b": 1})"},
     {R"({"a": 1})"}},
    {R"({"oneOf": [{"type": "integer"}, {"minimum": 2}]})", {"1", "2.5"}, {"3", "1.5"}},
    {R"({"oneOf": [{"type": "string", "maxLength": 4}, {"type": "string", "minLength": 2}]})",
     {R"("a")", R"("abcde")"},
     {R"("abc")"}},
    {R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}},
         "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})",
     {R"({"a": 1})", R"({"b": 2})"},
     {"{}", R"({"a": 1, "b": 2})"}},
    // what is contained
    {R"({"type": "array", "items": {"type": "integer"}, "contains": {"minimum": 5}})",
     {"[5]", "[1, 7, 2]", "[9, 9]"},
     {"[]", "[1]", "[1, 2]", R"([7, "a"])"}},
    {R"({"type": "array", "items": {"enum": [1, 2]}, "contains": {"const": 1}, "minContains": 2})",
     {"[1,1]", "[2,1,2,1,2]"},
     {"[1]", "[2,1,2]"}},
    {R"({"type": "array", "items": {"enum": [1, 2]}, "contains": {"const": 1}, "maxContains": 2})",
     {"[1]", "[1,1,2,2]"},
     {"[]", "[2]", "[1,1,1]"}},
    {R"({"type": "array", "items": {"enum": [1, 2]}, "contains": {"const": 1}, "minItems": 2, "maxItems": 3})",
     {"[1,2]", "[1,1,2]"},
     {"[1]", "[2,2]", "[1,1,1,1]"}},
    {R"({"type": "array", "prefixItems": [{"const": 0}], "contains": {"const": 1}, "items": {"enum": [1, 2]}})",
     {"[0,1]", "[0,2,1]"},
     {"[0]", "[1]", "[0,2]"}},
    {R"({"type": "array", "items": {"enum": [1, 2]}, "contains": {"const": 1}, "minContains": 0})",
     {"[]", "[2]"},
     {"[3]"}},
    {R"({"type": "array", "items": {"const": 1}, "contains": true, "allOf": [{"minContains": 0}]})",
     {"[1]"},
     {"[]"}},
    {R"({"type": "object", "properties": {"a": {"const": 1}, "d": {"const": 4}}, "required": ["b", "c", "d", "e", "f"]})",
     {R"({"a": 1, "d": 4, "b": 0, "c": 0, "e": 0, "f": 0})"},
     {R"({"d": 4, "b": 0, "c": 0, "e": 0, "f": 0, "d": 5})"}},
    // names of properties
    {R"({"type": "object", "patternProperties": {"^n_": {"type": "integer"}, "_s$": {"maximum": 3}}})",
     {"{}", R"({"n_a": 9, "x_s": 2, "n_s": 3})"},
     {R"({"n_a": "x"})", R"({"n_s": 4})", R"({"other": 1})"}},
    {R"({"type": "object", "properties": {"n_1": {"minimum": 5}, "a": {"const": 1}}, "required": ["a"],
         "patternProperties": {"^n_": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}})",
     {R"({"a": 1})", R"({"n_1": 5, "a": 1, "n_2": 1, "x": true})"},
     {R"({"n_1": 4, "a": 1})", R"({"a": 1, "n_2": true})", R"({"a": 1, "x": 1})"}},
    {R"({"type": "object", "properties": {"ab": {"const": 1}, "c": {"const": 2}},
         "propertyNames": {"maxLength": 1}, "additionalProperties": {"const": 3}})",
     {R"({"c": 2, "d": 3})", "{}"},
     {R"({"ab": 1})", R"({"de": 3})", R"({"c": 3})"}},
    {R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}},
         "minProperties": 1, "maxProperties": 2, "required": ["b"]})",
     {R"({"b": 2})", R"({"a": 1, "b": 2})", R"({"b": 2, "c": 3})"},
     {"{}", R"({"a": 1})", R"({"a": 1, "b": 2, "c": 3})"}},
    {R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}, "minProperties": 2})",
     {R"({"a": 1, "b": 2})"},
     {"{}", R"({"a": 1})"}},
    {R"({"type": "object", "properties": {"a": {"const": 1}}, "maxProperties": 2, "additionalProperties": {"const": 3}})",
     {"{}", R"({"a": 1, "x": 3})", R"({"x": 3, "y": 3})"},
     {R"({"a": 1, "x": 3, "y": 3})"}},
    // sets of texts and numbers
    {R"({"type": "string", "pattern": "^(ab|c)*$", "maxLength": 3})",
     {R"("")", R"("abc")", R"("cab")", R"("ccc")"},
     {R"("abab")", R"("b")"}},
    {R"({"allOf": [{"type": "string", "pattern": "a"}, {"pattern": "b"}, {"maxLength": 3}]})",
     {R"("ab")", R"("bxa")"},
     {R"("a")", R"("b")", R"("abcd")"}},
    {R"({"type": "string", "format": "date", "pattern": "^2024"})",
     {R"("2024-02-28")"},
     {R"("2023-02-28")", R"("2024")"}},
    {R"({"type": "string", "format": "json-pointer"})", {R"("")", R"("/a~1b/0")"}, {R"("a")"}},
    {R"({"type": "string", "format": "regex"})",
     {R"("^[a-z_]+\\d{2,}(x|y)?$")"},
     {R"("(")", R"("[")", R"("*")", R"x("(?P<n>a)")x"}},
    {R"({"type": "string", "format": "uri-reference"})",
     {R"("a/b?c#d")", R"("https://example.org/")", R"("")", R"("/x")"},
     {R"("a b")", R"("1:b")"}},
    {R"({"type": "number", "multipleOf": 0.01})", {"1", "1.5", "-0.25", "3.140"}, {"0.001", "1e3"}},
    {R"({"type": "number", "multipleOf": 0.25, "minimum": 1, "maximum": 2})",
     {"1", "1.25", "1.50", "2.0"},
     {"1.1", "0.75", "2.25"}},
    {R"({"type": "integer", "multipleOf": 7})", {"0", "7", "-14", "7000000"}, {"1", "8", "7.0"}},
    {R"({"allOf": [{"type": "integer", "multipleOf": 4}, {"multipleOf": 6}]})",
     {"12", "-24", "0"},
     {"4", "6", "18"}},
    {R"({"enum": [1, 2, "abc", null], "minimum": 2, "maxLength": 2})",
     {"2", "null"},
     {"1", R"("abc")"}},
    // references
    {R"({"$defs": {"a b": {"const": 5}}, "$ref": "#/$defs/a%20b"})", {"5"}, {"6"}},
    {R"({"definitions": {"x%y": {"const": 5}}, "$ref": "#/definitions/x%y"})", {"5"}, {"6"}},
    {R"({"$id": "https://example.com/t", "type": "array", "items": {"$ref": "#"}})",
     {"[]", "[[],[[]]]"},
     {"[1]"}},
};

TEST(JsonSchema, MatchesWhatItSays) {
  for (const Case& c : kCases) {
    const Grammar grammar = schema(c.schema);
    const ordered_json json = ordered_json::parse(c.schema);
    for (const std::string& text : c.yes) {
      EXPECT_TRUE(matches(grammar, text)) << c.schema << "\n" << text;
      EXPECT_EQ(schema_violation(json, json, ordered_json::parse(text)), "") << c.schema << "\n"
                                                                             << text;
    }
    for (const std::string& text : c.no)
      EXPECT_FALSE(matches(grammar, text)) << c.schema << "\n" << text;
  }
}

// The property that matters: whatever is sampled parses and is valid.
TEST(JsonSchema, RandomAnswersParseAndAreValid) {
  std::mt19937 random(6);
  int ended = 0;
  for (const Case& c : kCases) {
    const Grammar grammar = schema(c.schema);
    const ordered_json json = ordered_json::parse(c.schema);
    for (int round = 0; round < 20; ++round) {
      const Sample answer = sample(grammar, random, 60);
      if (!answer.ended) continue;
      ++ended;
      const ordered_json value = ordered_json::parse(answer.text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << c.schema << "\n" << answer.text;
      ASSERT_EQ(schema_violation(json, json, value), "") << c.schema << "\n" << answer.text;
    }
  }
  EXPECT_GT(ended, 300);
}

TEST(JsonSchema, RandomBoundsHoldForRandomNumbers) {
  std::mt19937 random(9);
  const auto bound = [&] {
    const double whole = static_cast<double>(static_cast<int>(random() % 4001) - 2000);
    return random() % 2 ? whole : whole / (random() % 2 ? 8 : 100);
  };
  for (int round = 0; round < 300; ++round) {
    double low = bound(), high = bound();
    if (low > high) std::swap(low, high);
    ordered_json json = {{"type", random() % 2 ? "integer" : "number"}};
    if (random() % 4) json[random() % 2 ? "minimum" : "exclusiveMinimum"] = low;
    if (random() % 4) json[random() % 2 ? "maximum" : "exclusiveMaximum"] = high;
    const auto compiled = Grammar::compile_schema(json, small_vocabulary());
    for (int i = 0; i < 40; ++i) {
      // Each number is allowed just when it is valid.
      ordered_json value = static_cast<int>(low) - 3 + static_cast<int>(random() % 9);
      if (random() % 2) value = static_cast<int>(high) - 3 + static_cast<int>(random() % 9);
      if (random() % 2) value = (low + high) / 2;
      std::string text = value.dump();
      if (text.find('e') != std::string::npos || text.size() > 17 || text == "-0.0") continue;
      if (json["type"] == "integer" && text.find('.') != std::string::npos) continue;
      const bool valid = schema_violation(json, json, value).empty();
      if (!compiled) {
        EXPECT_FALSE(valid) << json << " " << compiled.error().message;
      } else {
        EXPECT_EQ(matches(*compiled, text), valid) << json << " " << text;
      }
    }
  }
}

TEST(JsonSchema, NamesTheKeywordAndItsPlace) {
  const std::pair<const char*, const char*> kErrors[] = {
      {"{", "the schema is not JSON"},
      {"3", "schema at #: expected an object or a boolean"},
      {R"({"properties": {"a": {"not": {"uniqueItems": true}}}})",
       "schema at #/properties/a/not/uniqueItems: 'uniqueItems' cannot be negated"},
      {R"({"not": {"format": "email"}})", "'format' cannot be negated"},
      {R"({"not": {"const": [1]}})", "'not' of an array as a whole is not supported"},
      {R"({"not": {}})", "matches no text at all"},
      {R"({"not": true, "type": "object"})", "matches no text at all"},
      {R"({"not": 3})", "schema at #/not: expected an object or a boolean"},
      {R"({"contains": {}, "uniqueItems": true})", "'uniqueItems' beside 'contains'"},
      {R"({"contains": {}, "maxContains": 2, "prefixItems": [{}]})",
       "'maxContains' beside 'prefixItems'"},
      {R"({"allOf": [{"contains": {"const": 1}}, {"contains": {"const": 2}}]})",
       "two different 'contains'"},
      {R"({"if": {"propertyNames": {"const": "a"}}, "then": false})",
       "schema at #/if/propertyNames: 'propertyNames' cannot be negated"},
      {R"x({"patternProperties": {"b(?<=a)": true}})x",
       "schema at #/patternProperties: pattern 'b(?<=a)'"},
      {R"({"patternProperties": {"a": 1}})", "schema at #/patternProperties: expected an object"},
      {R"({"patternProperties": []})", "'patternProperties' is array, expected an object"},
      {R"({"dependentSchemas": []})", "'dependentSchemas' is array, expected an object"},
      {R"({"dependentRequired": {"a": [1]}})", "'required' is number, expected an array of"},
      {R"({"allOf": [{"patternProperties": {"a": {}}}, {"additionalProperties": {"const": 1}}]})",
       "'additionalProperties' of one part with 'patternProperties' of another"},
      {R"({"oneOf": [{"format": "email"}, {"format": "uri"}]})",
       "schema at #/oneOf: a value may fit both branch 0 and 1"},
      {R"({"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["a"]},
           "unevaluatedProperties": false})",
       "'unevaluatedProperties' beside 'not', 'if' or 'oneOf'"},
      {"{\"\\u0001also\": [true]}", "a name that begins with the character U+0001"},
      {R"({"contains": {}, "minContains": "x"})", "'minContains' is string, expected a whole"},
      {R"({"enum": [[1]], "contains": {}, "minContains": "x"})", "'minContains' is string"},
      {R"({"allOf": [{"multipleOf": 2}, {"multipleOf": "x"}]})", "two different 'multipleOf'"},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": 1}]})", "two different 'pattern'"},
      {R"({"multipleOf": false})", "'multipleOf' is boolean, expected a number above 0"},
      {R"({"multipleOf": 0})", "'multipleOf' is number, expected a number above 0"},
      {R"({"multipleOf": 100000000000000000000})", "'multipleOf' is number, expected"},
      {R"({"multipleOf": 0.12345})", "more than 1000 units of its last digit"},
      {R"({"multipleOf": 12345})", "'multipleOf' of 12345 is not supported"},
      {R"({"multipleOf": 10, "minimum": 1, "maximum": 9})", "matches no text at all"},
      {R"({"properties": {"a": {}}, "propertyNames": {"anyOf": [{"const": "a"}]},
           "additionalProperties": true})",
       "schema at #/propertyNames: choices beside other properties"},
      {R"({"properties": {"a": false}, "required": ["a"]})", "matches no text at all"},
      {R"({"allOf": [{"properties": {"a": {}}, "unevaluatedProperties": false},
                     {"properties": {"b": {}}}]})",
       "forbids property 'b' of another"},
      {R"({"allOf": [{"anyOf": [{"properties": {"a": {}}}], "unevaluatedProperties": false}]})",
       "'unevaluatedProperties' with anyOf, oneOf, not or if, both within another schema"},
      {R"({"type": "object", "minProperties": 2})", "'minProperties' above 1 is not supported"},
      {R"({"items": [{}], "prefixItems": [{}]})", "'prefixItems' beside a list of 'items'"},
      {R"({"$ref": "#name", "$defs": {"a": {"$anchor": "name"}, "b": {"$anchor": "name"}}})",
       "'$ref' to '#name' is not supported; only '#/…' is"},
      {R"({"properties": {"a": {"$id": "x", "items": {"$ref": "#/$defs/y"}}}, "$defs": {"y": {}}})",
       "schema at #/properties/a: '$id' with '$ref' in it is supported at the root only"},
      {R"({"$ref": "#/$defs/a/items", "$defs": {"a": {"$id": "x", "items": {}}}})",
       "goes into a part with an '$id'"},
      {R"({"anyOf": [{}, {"$dynamicRef": "#a"}]})",
       "schema at #/anyOf/1: keyword '$dynamicRef' is not supported"},
      {R"({"type": "array", "uniqueItems": true, "minItems": 257})",
       "schema at #: 'uniqueItems' with more than 256 items"},
      {R"({"requird": "string"})",
       "schema at #: unknown keyword 'requird'; did you mean 'required'?"},
      {R"({"type": "strin"})", "unknown type 'strin'; did you mean 'string'?"},
      {R"({"type": 3})", "'type' is number, expected a string or an array of them"},
      {R"({"properties": []})", "'properties' is array, expected an object"},
      {R"({"type": "string", "maxLength": -1})", "'maxLength' is number, expected a whole number"},
      {R"({"type": "string", "maxLength": 1.5})", "'maxLength' is number, expected"},
      {R"({"type": "string", "minLength": 1000000000})", "at most 20000 is supported"},
      {R"({"min_length": 3})", "unknown keyword 'min_length'; did you mean 'minLength'?"},
      {R"({"minimumLength": 3})", "unknown keyword 'minimumLength'; did you mean 'minLength'?"},
      {R"({"$ref": "http://x/y"})", "'$ref' to 'http://x/y' is not supported; only '#/…' is"},
      {R"({"$ref": "#/$defs/x"})", "'$ref' to '#/$defs/x': there is no '$defs'"},
      {R"x({"type": "string", "pattern": "(b(?=a))+"})x",
       "of look-around only look-aheads outside"},
      {R"x({"type": "string", "pattern": "(?<!a)b"})x", "of look-around only look-aheads outside"},
      {R"x({"type": "string", "pattern": "(?s)b"})x", "of flags only (?i) and (?i:...)"},
      {R"x({"type": "string", "pattern": "(?=a"})x", "'(' without ')'"},
      {R"x({"type": "string", "pattern": "^(?=a)b$"})x", "matches no text at all"},
      {R"({"type": "string", "pattern": "a^b"})", "'^' and '$' are supported at the ends only"},
      {R"({"type": "string", "pattern": "a\\b"})", "this escape is not supported"},
      {R"({"type": "string", "pattern": "^abc$", "maxLength": 2})", "matches no text at all"},
      {R"({"type": "string", "pattern": "^a?$", "minLength": 2})", "matches no text at all"},
      {R"({"type": "array", "uniqueItems": 1})", "'uniqueItems' is number, expected true or false"},
      {R"({"type": "array", "items": {"enum": [1]}, "uniqueItems": true, "minItems": 2})",
       "matches no text at all"},
      {R"({"enum": [1], "minimum": 2})", "matches no text at all"},
      {R"({"type": "number", "minimum": 1e300})",
       "'minimum' has 301 digits; numbers are written with up to 80"},
      {R"({"allOf": [{"pattern": "^a$"}, {"pattern": "b"}]})", "matches no text at all"},
      {R"({"type": "integer", "minimum": 5, "maximum": 4})", "matches no text at all"},
      {R"({"enum": []})", "matches no text at all"},
      {"false", "matches no text at all"},
  };
  for (const auto& [text, error] : kErrors) {
    EXPECT_THAT(error_of(GrammarKind::JsonSchema, text), HasSubstr(error)) << text;
  }
}

TEST(JsonSchema, HostileSchemasMeetLimits) {
  const auto error = [](const std::string& text) {
    return error_of(GrammarKind::JsonSchema, text);
  };
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += R"({"items":)";
  EXPECT_NE(error(deep + "{}" + std::string(100000, '}')), "no error");
  EXPECT_NE(error(std::string(100000, '[')), "no error");
  EXPECT_THAT(error(R"({"$ref": "#"})"), HasSubstr("matches no text at all"));
  EXPECT_THAT(error(R"({"$ref": "#", "minLength": 1})"), HasSubstr("too many schemas"));
  EXPECT_THAT(error(R"({"allOf": [{"$ref": "#"}]})"), HasSubstr("too many schemas"));
  EXPECT_THAT(error(R"({"propertyNames": {"$ref": "#"}})"), ::testing::Not(HasSubstr("internal")));
  EXPECT_THAT(error(R"({"not": {"not": {"not": {}}}})"), HasSubstr("matches no text at all"));
  EXPECT_THAT(error(R"({"not": {"$ref": "#"}})"), HasSubstr("schema at #"));
  EXPECT_THAT(error(R"({"if": {"$ref": "#"}, "then": {"$ref": "#"}})"),
              HasSubstr("schema at #/if"));
  EXPECT_THAT(
      error(R"({"unevaluatedItems": {"$ref": "#"}, "unevaluatedProperties": {"$ref": "#"}})"),
      ::testing::Eq("no error"));
  // Doubling through references, and through combinations.
  std::string doubling = R"({"$defs": {)", combined = R"({"$defs": {)";
  for (int i = 0; i < 60; ++i) {
    const std::string name = "\"d" + std::to_string(i) + "\": ";
    const std::string next = R"({"$ref": "#/$defs/d)" + std::to_string(i + 1) + "\"}";
    doubling += name + R"({"type": "array", "prefixItems": [)" + next + "," + next + "]},";
    combined += name + R"({"allOf": [)" + next + "," + next + "]},";
  }
  const std::string tail = R"("d60": {"type": "string"}}, "$ref": "#/$defs/d0"})";
  EXPECT_EQ(error(doubling + tail), "no error");
  EXPECT_THAT(error(combined + tail), HasSubstr("too many schemas"));
  std::string nested = R"({"type": "integer"})";
  for (int i = 0; i < 20; ++i) {
    nested = R"({"properties": {"a": )" + nested +
             R"(}, "anyOf": [{}, {"title": "x"}, {"required": ["a"]}]})";
  }
  EXPECT_NE(error(nested), "no error");
  std::string arrays = R"({"type": "integer"})";
  for (int i = 0; i < 10; ++i) {
    arrays = R"({"type": "array", "minItems": 20000, "maxItems": 20000, "items": )" + arrays + "}";
  }
  EXPECT_EQ(error(arrays), "no error");  // ten loops
  EXPECT_THAT(error(R"({"type": "string", "pattern": "^[ab]*a[ab]{30}$"})"),
              HasSubstr("too large"));
  const std::string counts =
      R"({"type": "string", "pattern": "^(((a{1000}){1000}){1000}){1000}$"})";
  EXPECT_EQ(error(counts), "no error");  // by calls
  EXPECT_THAT(error(R"({"type": "string", "pattern": ")" + std::string(3000, '(') + "\"}"),
              HasSubstr("nested too deep"));
}

std::string looks_like(std::string_view pattern) {
  return R"({"type": "string", "pattern": )" + ordered_json(pattern).dump() + "}";
}

// What everyday libraries write: ^(?!…) and (?=…) say what a text must (not) begin with.
TEST(JsonSchema, LookAheadsAtTheBeginHold) {
  const std::tuple<const char*, std::vector<std::string>, std::vector<std::string>> kPatterns[] = {
      {R"(^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$)",
       {"x.y@z.org", "a@b.co"},
       {".x@z.org", "x..y@z.org", "x@z"}},
      {R"(^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$)", {"7.25", "-3", ".5"}, {"", "-", "+."}},
      {R"(^(?=.*[A-Z])(?=.*\d)[A-Za-z\d]{4,6}$)", {"aB3d", "9ZZZ"}, {"ab3d", "ABCD", "A1"}},
      {R"((?!foo)^bar|^(?!b)baz$|^qux$)", {"bar", "barn", "qux"}, {"baz", "quxx"}},
      {R"((?i)^[a-c]9x$)", {"b9X", "B9x"}, {"d9x", "b9"}},
      {R"(^(?i)[^k]y$)", {"aY"}, {"Ky", "ky"}},
      {R"(^a(?i:bc|d)e$)", {"aBce", "aDe"}, {"Abce", "abcE"}},
      {R"(^(?=a|bc$)[abc]+$)", {"aab", "bc"}, {"bca", "cb"}},
      {R"(x(?:y)(?<tail>z)$)", {"xyz", "axyz"}, {"xy"}},
      {R"(^(?P<year>\d{4})$)", {"2026"}, {"26"}},
      {R"((?!a)b$)", {"b", "ab"}, {"a"}},
      {R"(b(?=a)[ac]$)", {"ba", "xba"}, {"bc", "b"}},
      {R"(\A[ab]+\z)", {"ab"}, {"abc", ""}},
      {R"(^a(?:b|(?!c)[cd])?e$)", {"abe", "ade", "ae"}, {"ace", "abd"}},
      {R"(^[a-z]+(?!-)$)", {"ab"}, {"ab-", ""}},
      // of zod 4: z.iso.duration(), z.hostname(); of pydantic 2.12: condecimal()
      {R"(^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$)",
       {"P2W", "P1Y2M", "PT5M", "P1DT2H3.5S"},
       {"P", "PT", "P1YT", "P1D2W", "P2WT1H"}},
      {R"(^(?=.{1,253}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$)",
       {"a.b-c.org", "localhost", std::string(63, 'a') + ".x.", "a.b.c.d.e.f.g"},
       {"-a", "a..b", std::string(64, 'a'), ""}},
      {R"(^(?!^[-+.]*$)[+-]?0*(?:\d{0,8}|(?=[\d.]{1,11}0*$)\d{0,8}\.\d{0,2}0*$))",
       {"12345678", "-1.25", "0001.50"},
       {"", "-"}},
  };
  for (const auto& [pattern, yes, no] : kPatterns) {
    const Grammar grammar = schema(looks_like(pattern));
    for (const std::string& text : yes)
      EXPECT_TRUE(matches(grammar, '"' + text + '"')) << pattern << text;
    for (const std::string& text : no)
      EXPECT_FALSE(matches(grammar, '"' + text + '"')) << pattern << text;
  }
  EXPECT_TRUE(matches(
      schema(R"x({"pattern": "^(?!no)[a-z]+$", "maxLength": 4, "type": "string"})x"), R"("yes")"));
  EXPECT_FALSE(
      matches(schema(R"x({"pattern": "^(?!no)[a-z]+$", "maxLength": 4, "type": "string"})x"),
              R"("longer")"));
}

// As libraries of typed languages write what is not set.
TEST(JsonSchema, NullKeywordsAreAbsent) {
  const Grammar grammar = schema(R"({"type": "object", "required": null, "description": null,
      "allOf": null, "additionalProperties": null,
      "properties": {"a": {"type": "string", "enum": null, "pattern": null, "maxLength": null},
                     "b": {"const": null}, "enum": {"type": "integer", "properties": null}}})");
  EXPECT_TRUE(matches(grammar, R"({"a":"x","b":null,"enum":3})"));
  EXPECT_TRUE(matches(grammar, "{}"));
  EXPECT_FALSE(matches(grammar, R"({"b":1})"));
  EXPECT_TRUE(matches(schema(R"({"type": "object", "properties": null})"), R"({"x":1})"));
  EXPECT_FALSE(matches(schema(R"({"enum": [null, 1]})"), "2"));
}

TEST(JsonSchema, ReferencesByNameOrThroughTheDocumentsOwnAddress) {
  const char* const kSchemas[] = {
      R"({"$ref": "#foo", "$defs": {"a/b": {"$anchor": "foo", "type": "integer"}}})",
      R"({"$id": "https://x.org/s#", "$ref": "https://x.org/s#/$defs/y", "$defs": {"y": {"type": "integer"}}})",
      R"({"$id": "https://x.org/s", "$ref": "https://x.org/s#foo", "$defs": {"y": {"$anchor": "foo", "type": "integer"}}})",
      R"({"$ref": "/schemas/y", "$defs": {"y": {"$id": "/schemas/y", "type": "integer"}}})",
  };
  for (const char* text : kSchemas) {
    const Grammar grammar = schema(text);
    EXPECT_TRUE(matches(grammar, "12")) << text;
    EXPECT_FALSE(matches(grammar, R"("a")")) << text;
  }
  const Grammar whole = schema(
      R"({"$id": "https://x.org/t", "type": "array", "items": {"$ref": "https://x.org/t"}})");
  EXPECT_TRUE(matches(whole, "[[],[[]]]"));
  const Grammar distinct = schema(R"({"type": "array", "items": {"$ref": "#list"}, "$defs":
      {"l": {"$anchor": "list", "type": "array", "items": {"type": "integer"}, "uniqueItems": true}}})");
  EXPECT_TRUE(matches(distinct, "[[1,2],[1]]"));
  EXPECT_FALSE(matches(distinct, "[[1,1]]"));
}

TEST(JsonSchema, APatternWinsOverTheFormatThatContradictsIt) {
  const Grammar grammar =
      schema(R"({"type": "string", "format": "time", "pattern": "^(?:[01]\\d|2[0-3]):[0-5]\\d$"})");
  EXPECT_TRUE(matches(grammar, R"("23:59")"));
  EXPECT_FALSE(matches(grammar, R"("24:00")"));
}

// The specification makes annotations of what it does not know.
TEST(JsonSchema, UnknownKeywordsAreNotesOfTheGrammar) {
  const Grammar grammar = schema(
      R"({"type": "object", "required": ["a"], "multiple": true,
          "properties": {"a": {"type": "integer", "hint": "h", "ui:order": [1], "$vocabulary": {}}}})");
  EXPECT_TRUE(matches(grammar, R"({"a":1})"));
  EXPECT_FALSE(matches(grammar, R"({"a":"x"})"));
  EXPECT_THAT(grammar.notes(),
              ::testing::UnorderedElementsAre(
                  "schema at #: unknown keyword 'multiple' is passed over",
                  "schema at #/properties/a: unknown keyword 'hint' is passed over",
                  "schema at #/properties/a: unknown keyword 'ui:order' is passed over",
                  "schema at #/properties/a: unknown keyword '$vocabulary' is passed over"));
  EXPECT_THAT(schema(R"({"title": "t", "x-order": 1})").notes(), ::testing::IsEmpty());
}

TEST(JsonSchema, IntegersAreExactAsFarAsTheyAreWritten) {
  struct Bounds {
    const char* schema;
    std::vector<std::string> yes, no;
  };
  const Bounds kBounds[] = {
      {R"({"type": "integer"})", {"1234567890123456789", "-18446744073709551616"}, {"1.0", "01"}},
      {R"({"type": "integer", "minimum": 0, "maximum": 18446744073709551615})",
       {"18446744073709551615", "0"},
       {"18446744073709551616", "-1"}},
      {R"({"type": "integer", "exclusiveMinimum": 9007199254740992, "maximum": 9007199254740994})",
       {"9007199254740993", "9007199254740994"},
       {"9007199254740992", "9007199254740995"}},
      {R"({"type": "integer", "minimum": -170141183460469231731687303715884105728,
           "exclusiveMaximum": 170141183460469231731687303715884105728})",
       {"170141183460469231731687303715884105727", "-170141183460469231731687303715884105728"},
       {"170141183460469231731687303715884105728", "-170141183460469231731687303715884105729"}},
      {R"({"type": "integer", "minimum": 115792089237316195423570985008687907853269984665640564039457584007913129639935})",
       {"115792089237316195423570985008687907853269984665640564039457584007913129639935"},
       {"115792089237316195423570985008687907853269984665640564039457584007913129639934"}},
      {R"({"enum": [18446744073709551615, 340282366920938463463374607431768211456, 9007199254740993]})",
       {"18446744073709551615", "340282366920938463463374607431768211456", "9007199254740993"},
       {"18446744073709551616", "9007199254740992"}},
      {R"({"enum": [9223372036854775807, 9223372036854775808], "maximum": 9223372036854775807})",
       {"9223372036854775807"},
       {"9223372036854775808"}},
      {R"({"type": "integer", "multipleOf": 5})",
       {"1234567890123456785", "-9223372036854775805"},
       {"1234567890123456789", "05"}},
      {R"({"type": "integer", "multipleOf": 4, "minimum": 9007199254740993, "maximum": 9007199254741000})",
       {"9007199254740996", "9007199254741000"},
       {"9007199254740994", "9007199254740992"}},
      {R"({"allOf": [{"maximum": 18446744073709551615}, {"maximum": 18446744073709551614}],
           "type": "integer", "minimum": 18446744073709551613})",
       {"18446744073709551614"},
       {"18446744073709551615"}},
      {R"({"type": "number", "minimum": -1.7976931348623157e308, "maximum": 1.7976931348623157e308})",
       {"-0.5", "123456789012345678901234"},
       {"1e400"}},
      {R"({"type": "number", "minimum": -1e400, "maximum": 1e99999999999, "default": 1e400})",
       {"-0.5", "123456789012345678901234"},
       {"1e400"}},
      {R"({"type": "integer", "minimum": 3, "exclusiveMaximum": 1e400, "examples": [-1e400]})",
       {"3", "123456789012345678901234"},
       {"2"}},
      {R"({"enum": [1e400, 5], "maxLength": 1e400})", {"1e400", "5"}, {"1"}},
      {R"({"enum": [1e400, 5], "maximum": 1e300})", {"5"}, {"1e400"}},
      {R"({"type": "number", "minimum": 1e400})", {}, {}},
      {R"({"type": "string", "maxLength": 1e400})", {"\"a\""}, {}},
      {R"({"type": "string", "minLength": 1e400})", {}, {}},
      {R"({"type": "integer", "multipleOf": 1e400})", {}, {}},
      {R"({"type": "number", "exclusiveMinimum": 0.30000000000000004, "maximum": 0.30000000000000007})",
       {},
       {"0.3", "0.4"}},
      {R"({"type": "array", "items": {"enum": [9007199254740992, 9007199254740993]},
           "uniqueItems": true, "minItems": 2})",
       {"[9007199254740992,9007199254740993]"},
       {"[9007199254740992,9007199254740992]"}},
      {R"({"not": {"const": 12345678901234567890}, "type": "integer"})",
       {"12345678901234567891", "1"},
       {"12345678901234567890"}},
  };
  for (const Bounds& b : kBounds) {
    if (b.yes.empty()) {
      EXPECT_NE(error_of(GrammarKind::JsonSchema, b.schema), "no error");
      continue;
    }
    const Grammar grammar = schema(b.schema);
    for (const std::string& text : b.yes) EXPECT_TRUE(matches(grammar, text)) << b.schema << text;
    for (const std::string& text : b.no) EXPECT_FALSE(matches(grammar, text)) << b.schema << text;
  }
}

std::string repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// A repetition with a large limit costs no state for each item, and its limits hold.
TEST(JsonSchema, LargeLimitsAreCounted) {
  for (const int limit : {300, 5000, 70000}) {
    const Grammar text = schema(fmt::format(R"({{"type": "string", "maxLength": {}}})", limit));
    EXPECT_LT(text.memory_bytes(), size_t{1} << 20) << limit;
    EXPECT_TRUE(matches(text, '"' + repeated("é", limit) + '"')) << limit;
    EXPECT_TRUE(matches(text, R"("")")) << limit;
    EXPECT_FALSE(matches(text, '"' + repeated("é", limit + 1) + '"')) << limit;
  }
  const Grammar exact = schema(R"({"type": "string", "minLength": 400, "maxLength": 401})");
  for (int length : {399, 400, 401, 402}) {
    EXPECT_EQ(matches(exact, '"' + repeated("\\n", length) + '"'), length == 400 || length == 401);
  }
  const Grammar open = schema(R"({"type": "string", "minLength": 15000})");
  EXPECT_FALSE(matches(open, '"' + std::string(14999, 'a') + '"'));
  EXPECT_TRUE(matches(open, '"' + std::string(15001, 'a') + '"'));
  const Grammar list = schema(
      R"({"type": "array", "items": {"type": "string", "maxLength": 3}, "minItems": 2, "maxItems": 9000})");
  EXPECT_FALSE(matches(list, R"(["a"])"));
  EXPECT_TRUE(matches(list, R"(["a", "b"])"));
  EXPECT_FALSE(matches(list, R"(["a", "bcde"])"));
  EXPECT_TRUE(matches(list, "[\"\"" + repeated(",\"x\"", 8999) + "]"));
  EXPECT_FALSE(matches(list, "[\"\"" + repeated(",\"x\"", 9000) + "]"));
  const Grammar word =
      schema(R"({"type": "string", "pattern": "^[a-z]{2,900}$", "maxLength": 800})");
  EXPECT_TRUE(matches(word, '"' + std::string(800, 'q') + '"'));
  EXPECT_FALSE(matches(word, '"' + std::string(801, 'q') + '"'));
}

// What cannot be counted from the left stays as copies.
TEST(JsonSchema, AmbiguousRepetitionsAreCopied) {
  const Grammar two = gbnf("root ::= [a-z]{0,700} [a-z]{0,700} \"!\"");
  EXPECT_TRUE(matches(two, std::string(1400, 'x') + "!"));
  EXPECT_FALSE(matches(two, std::string(1401, 'x') + "!"));
  const Grammar near = gbnf(
      "root ::= ([a-z] | \"#0123456789012345678901234567890123456789012345678901234567890123\"){3,100} "
      "[a-z]{3}");
  EXPECT_FALSE(matches(near, "abcde"));
  EXPECT_TRUE(matches(near, std::string(103, 'x')));
  EXPECT_FALSE(matches(near, std::string(104, 'x')));
  const Grammar recursive = schema(
      R"({"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}, "maxItems": 100000}}})");
  EXPECT_TRUE(matches(recursive, R"({"kids":[{"kids":[]},{},{"kids":[{}]}]})"));
}

// Many fields, none of them large by itself.
TEST(JsonSchema, SumsOfLimitsAreNoLimit) {
  const auto fields = [](int count, const std::string& field) {
    std::string properties, required;
    for (int i = 0; i < count; ++i) {
      properties += fmt::format(R"({}"p{}": {})", i > 0 ? "," : "", i, field);
      required += fmt::format(R"({}"p{}")", i > 0 ? "," : "", i);
    }
    return fmt::format(R"({{"type": "object", "properties": {{{}}}, "required": [{}]}})",
                       properties, required);
  };
  for (
      const auto& [count, field] : std::vector<std::pair<int, std::string>>{
          {12, R"({"type": "string", "maxLength": 640})"},
          {60, R"({"type": "string", "maxLength": 90})"},
          {4, R"({"type": "string", "maxLength": 2147483647})"},
          {20,
           R"({"type": "array", "items": {"type": "string", "maxLength": 4096}, "maxItems": 5000})"},
          {12, R"({"type": "string", "format": "email", "maxLength": 254})"},
          {12,
           R"({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2147483647})"},
          {30, R"({"type": "integer", "minimum": 0, "maximum": 18446744073709551615})"}}) {
    EXPECT_EQ(error_of(GrammarKind::JsonSchema, fields(count, field)), "no error") << field;
  }
  EXPECT_THAT(error_of(GrammarKind::JsonSchema, R"({"type": "array", "minItems": 1000000000})"),
              HasSubstr("'minItems' is 1000000000; at most 20000"));
}

// Whatever compares lists, or keys, each with each.
// Conditions, choices and sets multiply; none may take long, whatever the answer.
TEST(JsonSchema, ConditionsMeetLimits) {
  std::vector<std::string> schemas;
  // Twenty conditions on one property, on twenty properties, and within each other.
  for (const bool same : {true, false}) {
    std::string conditions, properties;
    for (int i = 0; i < 20; ++i) {
      const std::string name = same ? "k" : "k" + std::to_string(i);
      conditions += fmt::format(
          R"({}{{"if": {{"properties": {{"{}": {{"const": {}}}}}, "required": ["{}"]}}, "then": {{"required": ["r{}"]}}}})",
          i > 0 ? "," : "", name, i, name, i);
      properties += fmt::format(R"(, "r{}": {{}}, "{}": {{"type": "integer"}})", i, name);
    }
    schemas.push_back(R"({"type": "object", "properties": {"x": {})" + properties +
                      R"(}, "allOf": [)" + conditions + "]}");
  }
  std::string nested = R"({"const": 1})";
  for (int i = 0; i < 20; ++i) {
    nested =
        R"({"if": {"not": )" + nested + R"(}, "then": {"minimum": 2}, "else": {"maximum": 9}})";
  }
  schemas.push_back(nested);
  std::string dependents, ones;
  for (int i = 0; i < 30; ++i) {
    dependents += fmt::format(R"({}"a{}": ["a{}"])", i > 0 ? "," : "", i, i + 1);
    ones += fmt::format(R"({}{{"required": ["a{}"]}})", i > 0 ? "," : "", i);
  }
  schemas.push_back(R"({"type": "object", "dependentRequired": {)" + dependents + "}}");
  schemas.push_back(R"({"type": "object", "oneOf": [)" + ones + "]}");
  std::string patterns;
  for (int i = 0; i < 6; ++i) {
    patterns +=
        fmt::format(R"({}"^[ab]*{}[ab]{{{}}}c": {{}})", i > 0 ? "," : "", i % 2 ? "a" : "b", 8 + i);
  }
  schemas.push_back(R"({"patternProperties": {)" + patterns + "}}");
  schemas.push_back(
      R"({"pattern": "^[ab]*a[ab]{30}$", "maxLength": 300, "not": {"pattern": "x"}})");
  schemas.push_back(R"({"pattern": "^(a{900}){900}$", "maxLength": 300})");
  schemas.push_back(R"({"not": {"pattern": "^((a{900}){900}){900}$"}})");
  schemas.push_back(R"({"contains": {}, "minContains": 20000})");
  schemas.push_back(
      R"({"multipleOf": 0.997, "allOf": [{"multipleOf": 991}, {"multipleOf": 9.83}]})");
  for (const std::string& schema : schemas) {
    const double before = testing::cpu_seconds();
    const std::string error = error_of(GrammarKind::JsonSchema, schema);
    EXPECT_LT(testing::cpu_seconds() - before, kSchemaSeconds) << schema.substr(0, 200) << "\n"
                                                               << error;
  }
}

TEST(JsonSchema, LongListsMeetLimits) {
  const auto list = [](int begin, int end, const char* format) {
    std::string out;
    for (int i = begin; i < end; ++i) {
      if (i > begin) out += ",";
      out += fmt::format(fmt::runtime(format), i);
    }
    return out;
  };
  const auto error = [](const std::string& text) {
    return error_of(GrammarKind::JsonSchema, text);
  };
  for (const char* keyword : {"enum", "required"}) {
    const auto part = [&](int begin, int end) {
      return fmt::format(R"({{"{}": [{}]}})", keyword, list(begin, end, "\"{}\""));
    };
    EXPECT_THAT(error(fmt::format(R"({{"allOf": [{}, {}]}})", part(0, 40000), part(40000, 80000))),
                HasSubstr("shorter lists"));
  }
  const std::string property = "\"p{}\": {{}}";
  EXPECT_THAT(error(R"({"properties": {)" + list(0, 60000, property.c_str()) + "}}"),
              HasSubstr("at most 10000"));
  EXPECT_THAT(error(R"({"properties": {)" + list(0, 5000, property.c_str()) +
                    R"(}, "required": [)" + list(0, 90000, "\"p{}\"") + "]}"),
              HasSubstr("too large"));
  // 149 KB of properties that may all be absent.
  const double begin = testing::cpu_seconds();
  EXPECT_THAT(
      error(R"({"properties": {)" + list(0, 9900, property.c_str()) + "}}"),
      HasSubstr("the grammar is too large: it needs more than 60000 states; use smaller counts, or "
                "fewer rules or properties"));
  EXPECT_LT(testing::cpu_seconds() - begin, kSchemaSeconds);
  EXPECT_EQ(error(R"({"properties": {)" + list(0, 1500, property.c_str()) + "}}"), "no error");
  // More than are listed in their order: any order, each once.
  EXPECT_EQ(error(R"({"type": "array", "uniqueItems": true, "items": {"enum": [)" +
                  list(0, 5000, "{}") + "]}}"),
            "no error");
  const Grammar hundred =
      schema(R"({"type": "array", "uniqueItems": true, "maxItems": 3, "items": {"enum": [)" +
             list(0, 100, "{}") + "]}}");
  EXPECT_TRUE(matches(hundred, "[99, 3,5]"));
  EXPECT_FALSE(matches(hundred, "[99, 3,99]"));
  EXPECT_FALSE(matches(hundred, "[1,2,3,4]"));
  // Copied for each branch.
  EXPECT_THAT(error(R"({"minLength": 1, "default": [)" + list(0, 100000, "{}") +
                    R"(], "anyOf": [)" + list(0, 900, R"({{"minLength": {}}})") + "]}"),
              HasSubstr("too many schemas"));
  nlohmann::ordered_json long_key;
  long_key["properties"][std::string(grammar::kMaxSchemaBytes, 'a')] = true;
  const Result<Grammar> compiled = Grammar::compile_schema(long_key, small_vocabulary());
  ASSERT_FALSE(compiled.ok());
  EXPECT_THAT(compiled.error().message, HasSubstr("bytes; at most"));
}

TEST(AnyJsonObject, IsAnObjectOfAnything) {
  const Result<Grammar> g = Grammar::compile({GrammarKind::JsonObject, ""}, small_vocabulary());
  ASSERT_TRUE(g.ok());
  EXPECT_TRUE(matches(*g, R"({"name": "Tom", "kind": "cat", "age": 3, "x": [1.5, {}, []]})"));
  EXPECT_TRUE(matches(*g, "\n{\n\t\"a\": null\n}"));
  for (const char* text : {"[]", "1", "{", "{\"a\"}", "{}x", "{\"a\": 01}"}) {
    EXPECT_FALSE(matches(*g, text)) << text;
  }
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    const Sample answer = sample(*g, random, 200);
    if (answer.ended) {
      EXPECT_TRUE(ordered_json::accept(answer.text)) << answer.text;
    }
  }
}

}  // namespace
}  // namespace ktx::text
