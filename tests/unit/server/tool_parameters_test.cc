#include "lib/server/request/tool_parameters.h"

#include <gmock/gmock.h>

namespace ktx::server {
namespace {

using ::testing::ElementsAre;

TEST(OfferedTools, SaysWhichParametersAreTexts) {
  const Json tools = Json::parse(R"([{"function": {"name": "f", "parameters": {
    "$defs": {"Name": {"type": "string"}, "Maybe": {"anyOf": [{"$ref": "#/$defs/Name"}, {"type": "null"}]},
              "Loop": {"$ref": "#/$defs/Loop"}},
    "properties": {
      "text": {"type": "string"}, "number": {"type": "integer"}, "flag": {"type": "boolean"},
      "either": {"type": ["string", "integer"]}, "maybe": {"type": ["string", "null"]},
      "any_of": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "ref": {"$ref": "#/$defs/Name"},
      "ref_maybe": {"$ref": "#/$defs/Maybe"}, "loop": {"$ref": "#/$defs/Loop"},
      "word": {"enum": ["a", "b"]}, "word_or_null": {"enum": ["a", null]}, "mixed": {"enum": ["a", 1]},
      "fixed": {"const": "x"}, "nullable": {"type": "string", "nullable": true}, "free": {},
      "lost": {"$ref": "#/$defs/None"}, "no_schema": true}}}},
    {"function": {"name": "g", "parameters": {"type": "object"}}}])");
  const std::vector<text::OfferedTool> offered = offered_tools(tools);
  ASSERT_EQ(offered.size(), 2u);
  EXPECT_EQ(offered[0].name, "f");
  EXPECT_THAT(offered[0].text_parameters,
              ElementsAre("text", "either", "maybe", "any_of", "ref", "ref_maybe", "word",
                          "word_or_null", "fixed", "nullable"));
  EXPECT_THAT(offered[0].nullable_texts,
              ElementsAre("maybe", "any_of", "ref_maybe", "word_or_null", "nullable"));
  EXPECT_TRUE(offered[1].text_parameters.empty());
}

}  // namespace
}  // namespace ktx::server
