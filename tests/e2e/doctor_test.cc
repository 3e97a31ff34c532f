// ktx-run doctor on this machine.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

std::string compiled(const TempDir& dir) {
  const Finished made =
      run_program({ktx_compile(), "-q", model_gguf("qwen3moe"), "-o", dir.path("m.ktxplan")});
  EXPECT_EQ(made.status, 0) << made.err;
  return dir.path("m.ktxplan");
}

TEST(Doctor, SaysWhatRunsHere) {
  const Finished run = run_program({ktx_run(), "doctor"});
  EXPECT_EQ(run.err, "");
  for (const char* what : {"processor ", "\ninstructions ", "\nmemory ", "\nhuge pages ", "\nNUMA ",
                           "\nlimits ", "\nGPU driver ", "plans for the CPU"}) {
    EXPECT_NE(run.out.find(what), run.out.npos) << what << "\n" << run.out;
  }
}

TEST(Doctor, AsJsonHasTheSameFindings) {
  const TempDir dir;
  const Finished run = run_program({ktx_run(), "doctor", compiled(dir), "--json"});
  const nlohmann::json json = nlohmann::json::parse(run.out);
  EXPECT_TRUE(json.at("runs_on_cpu").get<bool>());
  const nlohmann::json& plan = json.at("findings").back();
  EXPECT_EQ(plan.at("what"), "plan");
  EXPECT_EQ(plan.at("health"), "ok");
  EXPECT_NE(plan.at("text").get<std::string>().find("m.ktxplan opens: "), std::string::npos);
}

TEST(Doctor, APlanThatDoesNotOpenIsAProblem) {
  const TempDir dir;
  const std::string path = compiled(dir);
  std::filesystem::resize_file(path, 4096);
  const Finished run = run_program({ktx_run(), "doctor", path});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.out.find("m.ktxplan does not open"), run.out.npos) << run.out;
  EXPECT_EQ(run_program({ktx_run(), "doctor", "none.ktxplan"}).status, 1);
}

// The address space is limited, as `ulimit -v` does it.
TEST(Doctor, ALimitOfTheAddressSpaceIsAProblem) {
  if (sanitized()) GTEST_SKIP() << "the sanitizer itself needs the address space";
  const Finished run =
      run_program({"/bin/bash", "-c", "ulimit -v 8000000; exec " + ktx_run() + " doctor"});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.out.find("ulimit -v unlimited"), run.out.npos) << run.out;
}

}  // namespace
}  // namespace ktx::testing
