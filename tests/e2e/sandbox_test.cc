// --sandbox: the programs do their work inside, and nothing else. What is forbidden is tested call
// by call in tests/unit/support/sandbox_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/http_client.h"
#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// False where this kernel, or this build, has no sandbox; the message says so then.
bool has_sandbox() {
  const Finished run = run_program({ktx_compile(), "--sandbox", "--explain-code", "S001"});
  if (run.status == 0) return true;
  EXPECT_THAT(run.err, HasSubstr("--sandbox: this "));
  return false;
}

class Sandboxed : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_sandbox()) GTEST_SKIP() << "no Landlock or no libseccomp here";
  }
  std::string compile(const std::string& name, std::vector<std::string> options) {
    const std::string plan = dir_.path(name);
    std::vector<std::string> command = {ktx_compile(), "-q", model_gguf("llama"), "-o", plan};
    command.insert(command.end(), options.begin(), options.end());
    const Finished run = run_program(command);
    EXPECT_EQ(run.status, 0) << run.err;
    return plan;
  }
  TempDir dir_;
};

TEST_F(Sandboxed, CompilerWritesTheSamePlan) {
  const std::vector<std::string> rules = {source_dir() + "/rules/moe-experts-on-cpu.yaml",
                                          "--target=h200"};
  EXPECT_EQ(read_file(compile("a.ktxplan", {})), read_file(compile("b.ktxplan", {"--sandbox"})));
  std::vector<std::string> inside = rules;
  inside.push_back("--sandbox");
  EXPECT_EQ(read_file(compile("c.ktxplan", rules)), read_file(compile("d.ktxplan", inside)));
}

TEST_F(Sandboxed, CompilerMovesTheModelIntoThePlan) {
  const std::string plan = compile("a.ktxplan", {}), model = dir_.path("m.gguf");
  fs::copy_file(model_gguf("llama"), model);
  const Finished run = run_program(
      {ktx_compile(), "-q", "--sandbox", "--consume", model, "-o", dir_.path("m.ktxplan")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_FALSE(fs::exists(model));
  EXPECT_EQ(read_file(plan), read_file(dir_.path("m.ktxplan")));
}

TEST_F(Sandboxed, ServerAnswersAndSaves) {
  const std::string plan = compile("m.ktxplan", {});
  fs::create_directory(dir_.path("slots"));
  ServerProcess server(
      {plan, "--sandbox", "--slot-dir", dir_.path("slots"), "--access-log", dir_.path("log")});
  const std::string request = R"({"prompt": "a b c", "n_predict": 4, "id_slot": 0})";
  EXPECT_EQ(server.post("/completion", request).status, 200);
  EXPECT_EQ(server.post("/slots/0?action=save", R"({"filename": "s"})").status, 200)
      << server.log();
  EXPECT_TRUE(fs::exists(dir_.path("slots/s")));
  // The log is renamed and made anew.
  fs::rename(dir_.path("log"), dir_.path("log.1"));
  kill(server.pid(), SIGHUP);
  while (!fs::exists(dir_.path("log"))) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(server.post("/completion", request).status, 200);
  // Every thread is inside: a filter of system calls, and no new privileges.
  int threads = 0;
  for (const fs::directory_entry& task :
       fs::directory_iterator("/proc/" + std::to_string(server.pid()) + "/task")) {
    const std::string status = read_file((task.path() / "status").string());
    EXPECT_THAT(status, HasSubstr("\nSeccomp:\t2\n"));
    EXPECT_THAT(status, HasSubstr("\nNoNewPrivs:\t1\n"));
    ++threads;
  }
  EXPECT_GE(threads, 2);
  EXPECT_EQ(server.stop(SIGTERM), 0) << server.log();
}

TEST_F(Sandboxed, ServerLoadsModelsOfItsFolder) {
  compile("m.ktxplan", {});
  compile("n.ktxplan", {});
  ServerProcess server({dir_.path(), "--sandbox"});
  for (const char* model : {"m", "n"}) {
    const std::string request =
        std::string(R"({"prompt": "a", "max_tokens": 1, "model": ")") + model + "\"}";
    EXPECT_EQ(server.post("/v1/completions", request).status, 200) << server.log();
  }
}

}  // namespace
}  // namespace ktx::testing
