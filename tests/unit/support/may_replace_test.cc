#include "lib/support/may_replace.h"

#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"

namespace ktx {
namespace {

using testing::TempDir;

TEST(MayReplace, NothingAnEmptyFileOneOfTheSameKindAndADevice) {
  const TempDir dir;
  EXPECT_TRUE(may_replace("/dev/null", "MAGIC").ok());
  EXPECT_TRUE(may_replace(dir.path("none"), "MAGIC").ok());
  EXPECT_TRUE(may_replace(dir.write("empty", ""), "MAGIC").ok());
  EXPECT_TRUE(may_replace(dir.write("own", "MAGIC of old"), "MAGIC").ok());
}

TEST(MayReplace, NoFileOfAnotherKind) {
  const TempDir dir;
  for (const char* text : {"GGUF\x03 weights", "MAGI", "x"}) {
    const std::string path = dir.write("other", text);
    const Status status = may_replace(path, "MAGIC");
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_TRUE(status.error().message.starts_with(path + ": there is a file of this name"));
    EXPECT_NE(status.error().message.find("not with 'MAGIC'; name another file"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace ktx
