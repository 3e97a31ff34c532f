// docs/serve.md names every option of the server and every path that it answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace ktx {
namespace {

using ::testing::HasSubstr;

std::string serve_docs() {
  std::ifstream in(KTX_SOURCE_DIR "/docs/serve.md");
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_FALSE(text.str().empty());
  return text.str();
}

TEST(ServeDocs, NameEveryOption) {
  const std::string docs = serve_docs();
#define KTX_SETTING(name)                                                                  \
  EXPECT_THAT(docs, ::testing::AnyOf(HasSubstr("`--" name "`"), HasSubstr("`--" name " "), \
                                     HasSubstr("`-" name " ")));
#include "tools/ktx-run/serve_settings.def"
}

TEST(ServeDocs, NameEveryPath) {
  const std::string docs = serve_docs();
  const std::string_view paths[] = {
#define KTX_ROUTE(method, path, endpoint, access, speed) path,
#include "lib/server/routes.def"
  };
  for (const std::string_view path : paths) {
    // The page's and health's second names go without saying.
    if (path == "/index.html" || path == "/v1/health") continue;
    EXPECT_THAT(docs, HasSubstr(std::string(path.substr(0, path.find("/*")))));
  }
}

}  // namespace
}  // namespace ktx
