// --profile of a server: every pass, one in N, and no more than a size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/support/http_client.h"

namespace ktx::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class ServeProfile : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string plan = dir_.path("m.ktxplan");
    ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", plan}).status, 0);
  }
  // The passes that have lines in the file, after an answer of 60 tokens.
  std::set<int64_t> passes(const std::vector<std::string>& more) const {
    std::vector<std::string> args = {dir_.path("m.ktxplan"), "-t", "2", "--profile",
                                     dir_.path("profile")};
    args.insert(args.end(), more.begin(), more.end());
    ServerProcess server(args);
    const HttpAnswer answer =
        server.post("/v1/completions", R"({"prompt": "Hi", "max_tokens": 60, "ignore_eos": true})");
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(server.stop(SIGTERM), 0);
    std::set<int64_t> steps;
    std::ifstream lines(dir_.path("profile"));
    for (std::string line; std::getline(lines, line);) {
      const json row = json::parse(line, nullptr, false);
      EXPECT_TRUE(row.is_object()) << line;
      EXPECT_GE(row["seconds"], 0) << line;
      steps.insert(row["step"].get<int64_t>());
    }
    return steps;
  }
  TempDir dir_;
};

TEST_F(ServeProfile, HasEveryPassOrOneInSoMany) {
  EXPECT_EQ(passes({}).size(), 60u);
  const std::set<int64_t> some = passes({"--profile-every", "20"});
  EXPECT_EQ(some, (std::set<int64_t>{1, 21, 41}));
}

TEST_F(ServeProfile, EndsAtItsSizeWithAWholePass) {
  const std::set<int64_t> all = passes({});
  const auto size = std::filesystem::file_size(dir_.path("profile"));
  const std::set<int64_t> some = passes({"--profile-size", std::to_string(size / 4) + "B"});
  EXPECT_LT(some.size(), all.size() / 3);
  EXPECT_GT(some.size(), 5u);
  EXPECT_LT(std::filesystem::file_size(dir_.path("profile")), size / 3);
}

TEST_F(ServeProfile, LimitsNeedAFile) {
  const auto run =
      run_program({ktx_run(), "serve", dir_.path("m.ktxplan"), "--profile-every", "2"});
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, HasSubstr("go with --profile FILE"));
}

}  // namespace
}  // namespace ktx::testing
