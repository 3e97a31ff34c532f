// docs/serve.md names every option of the server and every path that it answers, docs/cli.md
// every other option of the two programs and every environment variable.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "lib/support/env.h"
#include "tests/support/paths.h"

namespace ktx {
namespace {

using ::testing::HasSubstr;

std::string text_of(const std::string& path) {
  std::ifstream in(source_dir() + "/" + path);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_FALSE(text.str().empty());
  return text.str();
}

// Rows of the tables of options, reduced to name and commands.
constexpr unsigned kGenerate = 1, kChat = 2, kServe = 4, kInspect = 8, kBench = 16,
                   kPerplexity = 32, kScore = 64, kCompare = 128, kDoctor = 256, kProbe = 512,
                   kSelftest = 1024, kPlans = 2048, kPull = 4096;
constexpr unsigned kInteractive = kGenerate | kChat, kSamples = kInteractive | kServe,
                   kRuns = kSamples | kBench, kContexts = kPerplexity | kCompare,
                   kScores = kContexts | kScore, kOpens = kRuns | kScores | kSelftest,
                   kTakesModel = kOpens | kInspect | kDoctor;

void expect_option(const std::string& docs, const std::string& name) {
  const std::string shown = (name.size() > 1 ? "--" : "-") + name;
  EXPECT_THAT(docs, ::testing::AnyOf(HasSubstr("`" + shown + "`"), HasSubstr("`" + shown + " "),
                                     HasSubstr("`" + shown + "="), HasSubstr("`" + shown + "[")));
}

TEST(ServeDocs, NameEveryOption) {
  const std::string docs = text_of("docs/serve.md");
#define KTX_OPTION(name, value, commands, group, reader, field, help) \
  if (((commands)&kServe) != 0) expect_option(docs, name);
#include "tools/ktx-run/run_options.def"
}

TEST(CliDocs, NameEveryOption) {
  const std::string docs = text_of("docs/cli.md");
#define KTX_OPTION(name, value, commands, group, reader, field, help) \
  if (((commands) & ~kServe) != 0) expect_option(docs, name);
#include "tools/ktx-run/run_options.def"
#define KTX_OPTION(name, value, group, reader, field, help) \
  if (std::string(name) != "W") expect_option(docs, name);
#include "tools/ktx-compile/compile_options.def"
#define KTX_OPTION(name, value, group, reader, field, help) expect_option(docs, name);
#include "tools/ktx-pull/pull_options.def"
  EXPECT_THAT(docs, HasSubstr("`-Werror[=CODE]`"));  // the option W and what follows it
}

TEST(CliDocs, NameEveryEnvironmentVariable) {
  const std::string docs = text_of("docs/cli.md");
  for (const EnvVariable& variable : env_variables()) {
    EXPECT_THAT(docs, HasSubstr("| `" + std::string(variable.name) + "` | "));
  }
}

TEST(ServeDocs, NameEveryPath) {
  const std::string docs = text_of("docs/serve.md");
  const std::string_view paths[] = {
#define KTX_ROUTE(method, path, endpoint, access, speed, model) path,
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
