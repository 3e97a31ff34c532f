// Runs tools/dev/bench-peers with scripts in place of the programs: the commands that it runs,
// and the figures that it derives from their output.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/temp_dir.h"

namespace ktx::testing {
namespace {

// 200 prompt tokens and 30 generated ones a second at 40 GB/s, 2 TOP/s; a token is
// 1 GB and 5 GOP.
constexpr const char* kKtxRun = R"(#!/bin/sh
echo ktx >> "$(dirname "$0")/calls"
[ "$1" = --version ] && echo "ktx-run 9.9" && exit
rates='"read_bandwidth": 40e9, "int8_rate": 2e12, "token_ops": 5e9'
case "$*" in
*"-p 0 -n 0"*) echo "[{\"test\": \"probe\", \"tokens_per_second\": 0, $rates}]" ;;
*) echo "[{\"test\": \"pp8\", \"tokens_per_second\": 200, \"bytes_per_second\": 1e9, $rates},"
   echo " {\"test\": \"tg2\", \"tokens_per_second\": 30, \"bytes_per_second\": 30e9, $rates}]" ;;
esac
)";

// Answers as llama-bench does: 100 prompt tokens and 10 generated ones a second.
constexpr const char* kPeer = R"(#!/bin/sh
echo "peer $*" >> "$(dirname "$0")/calls"
echo "a note before the list"
echo '[{"n_prompt": 8, "n_gen": 0, "samples_ns": [80000000]},'
echo ' {"n_prompt": 0, "n_gen": 2, "samples_ns": [200000000]}]'
)";

Finished bench_peers(const TempDir& dir, std::vector<std::string> arguments) {
  std::vector<std::string> command = {"/usr/bin/env", "python3",
                                      source_dir() + "/tools/dev/bench-peers"};
  for (const char* name : {"ktx-run", "llama-bench"}) {
    dir.write(name, name == std::string("ktx-run") ? kKtxRun : kPeer);
    std::filesystem::permissions(dir.path(name), std::filesystem::perms::owner_all);
  }
  dir.write("m.gguf", "GGUF");
  dir.write("m.ktxplan", "KTX");
  for (std::string& argument : arguments) command.push_back(std::move(argument));
  return run_program(command);
}

TEST(BenchPeers, RunsTheProgramsInTurnAndPrintsRatiosAndSharesOfTheFloor) {
  const TempDir dir;
  const Finished run =
      bench_peers(dir, {"--gguf", dir.path("m.gguf"), "--plan", dir.path("m.ktxplan"), "--ktx-run",
                        dir.path("ktx-run"), "--llama", dir.path("llama-bench"), "--ik",
                        dir.path("llama-bench"), "-p", "8", "-n", "2", "-t", "1", "--rounds", "2"});
  if (run.status == 127) GTEST_SKIP() << "no python3 here";
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("| test | threads | ktx t/s | llama.cpp t/s | ik_llama.cpp t/s | "
                         "ktx / llama.cpp | ktx / ik_llama.cpp | floor: ktx |"),
            std::string::npos)
      << run.out;
  EXPECT_NE(run.out.find("| pp8 | 1 | 200.0 | 100.0 | 100.0 | 2.00 (2.00-2.00) | "
                         "2.00 (2.00-2.00) | 0.50 | 0.25 | 0.25 | 40.0 | 2.00 |"),
            std::string::npos)
      << run.out;
  EXPECT_NE(run.out.find("| tg2 | 1 | 30.0 | 10.0 | 10.0 | 3.00 (3.00-3.00) | "
                         "3.00 (3.00-3.00) | 0.75 | 0.25 | 0.25 | 40.0 | 2.00 |"),
            std::string::npos)
      << run.out;
  std::ifstream file(dir.path("calls"));
  std::string line, order;
  while (std::getline(file, line)) order += line[0];
  // In each round: probe and ktx, probe and llama.cpp, probe and ik; last the version.
  EXPECT_EQ(order, "kkkpkpkkkpkpk");
}

TEST(BenchPeers, SaysWhichFileIsNotThere) {
  const TempDir dir;
  const Finished run =
      bench_peers(dir, {"--gguf", dir.path("none.gguf"), "--plan", dir.path("m.ktxplan"),
                        "--ktx-run", dir.path("ktx-run"), "--llama", dir.path("llama-bench")});
  if (run.status == 127) GTEST_SKIP() << "no python3 here";
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("none.gguf' is not there"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace ktx::testing
