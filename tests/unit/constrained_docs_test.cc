// docs/constrained-output.md documents every keyword and every field.
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

#include "tests/support/paths.h"

namespace ktx {
namespace {

using ::testing::HasSubstr;

std::string docs() {
  std::ifstream in(source_dir() + "/docs/constrained-output.md");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(ConstrainedDocs, NameEveryKeyword) {
  const std::string text = docs();
#define KTX_KEYWORD(name, use, type, neutral) EXPECT_THAT(text, HasSubstr("`" name "`"));
#include "lib/text/grammar/schema_keywords.def"
}

TEST(ConstrainedDocs, NameEveryField) {
  const std::string text = docs();
#define KTX_CONSTRAINT_FIELD(object, name, form) EXPECT_THAT(text, HasSubstr(name "`"));
#include "lib/server/request/constraint_fields.def"
}

}  // namespace
}  // namespace ktx
