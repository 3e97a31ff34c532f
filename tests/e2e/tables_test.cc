// Printed tables: aligned, one unit per column, the quantisation named; and the defaults that
// inspect prints are options that ktx-run accepts.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/support/display_width.h"
#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

class Tables : public ::testing::Test {
 protected:
  void SetUp() override {
    const Finished run = run_program(
        {ktx_compile(), "-q", model_gguf("llama"), "-o", plan(), "--kv-budget", "64MiB"});
    ASSERT_EQ(run.status, 0) << run.err;
  }
  std::string plan() const { return dir_.path("p"); }
  TempDir dir_;
};

void expect_one_width(const std::string& table) {
  std::istringstream lines(table);
  size_t width = 0, rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != '|') continue;
    if (width == 0 || line.find("| -") == 0) width = display_width(line);
    EXPECT_EQ(display_width(line), width) << line;
    ++rows;
  }
  EXPECT_GE(rows, 3u) << table;
}

TEST_F(Tables, BenchIsAlignedAndNamesTheQuantisation) {
  const Finished run =
      run_program({ktx_run(), "bench", plan(), "-p", "8,300", "-n", "2", "-r", "1"});
  ASSERT_EQ(run.status, 0) << run.err;
  expect_one_width(run.out);
  EXPECT_NE(run.out.find("| Llama Q4_K_M | "), std::string::npos) << run.out;
  const Finished json =
      run_program({ktx_run(), "bench", plan(), "-p", "8", "-n", "0", "-r", "1", "-o", "json"});
  EXPECT_EQ(nlohmann::json::parse(json.out)[0]["quantization"], "Q4_K_M");
}

TEST_F(Tables, StepsAreAligned) {
  const Finished run =
      run_program({ktx_run(), "bench", plan(), "-p", "8", "-n", "0", "-r", "1", "--steps"});
  ASSERT_EQ(run.status, 0) << run.err;
  expect_one_width(run.err);
  EXPECT_NE(run.err.find("\nmatmul_panel16_q8, Q4_K: 1"), std::string::npos) << run.err;
}

// The line of defaults can be typed again.
TEST_F(Tables, InspectPrintsDefaultsThatAreOptions) {
  const Finished run = run_program({ktx_run(), "inspect", plan()});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("Q4_K_M: Q4_K, Q6_K, F32\n"), std::string::npos) << run.out;
  const size_t begin = run.out.find("--ctx");
  const std::string defaults = run.out.substr(begin, run.out.find('\n', begin) - begin);
  const Finished again = run_program(
      {"/bin/bash", "-c", ktx_run() + " generate " + plan() + " --prompt Once -n 1 " + defaults});
  EXPECT_EQ(again.status, 0) << defaults << "\n" << again.err;
  EXPECT_NE(defaults.find("--kv-budget 67108864"), std::string::npos) << defaults;
}

}  // namespace
}  // namespace ktx::testing
