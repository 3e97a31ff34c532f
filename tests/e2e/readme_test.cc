// README.md's commands, each typed as it stands there (tests/e2e/readme/run.sh).
#include <gtest/gtest.h>

#include <iostream>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

TEST(Readme, EveryLineOfItWorksInItsOrder) {
  if (run_program({"/bin/bash", "-c", "git -C " + source_dir() + " rev-parse"}).status != 0) {
    GTEST_SKIP() << "the sources are no clone of git";
  }
  const Finished run = run_program({source_dir() + "/tests/e2e/readme/run.sh", binary_dir()});
  EXPECT_EQ(run.status, 0) << run.out << run.err;
  for (size_t at = 0; (at = run.out.find("skipped: ", at)) != run.out.npos; ++at) {
    std::cout << run.out.substr(at, run.out.find('\n', at) - at) << "\n";
  }
}

}  // namespace
}  // namespace ktx::testing
