// tools/dev/setup on machines that are not here: other distributions, and no root.
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

const std::string kSetup = source_dir() + "/tools/dev/setup";

Finished print_for(const TempDir& dir, const std::string& os_release,
                   const std::vector<std::string>& more = {}) {
  std::vector<std::string> command = {kSetup, "--print"};
  command.insert(command.end(), more.begin(), more.end());
  return run_program(
      command, "", {"PATH=/usr/bin:/bin", "KTX_OS_RELEASE=" + dir.write("os-release", os_release)});
}

TEST(Setup, NamesThePackagesOfEachDistribution) {
  const TempDir dir;
  const Finished debian = print_for(dir, "ID=debian\nVERSION_ID=\"13\"\n");
  EXPECT_EQ(debian.out.rfind("apt-get install -y --no-install-recommends g++ cmake ", 0), 0u)
      << debian.out << debian.err;
  EXPECT_EQ(debian.out.find("libgtest-dev"), debian.out.npos);
  EXPECT_NE(debian.out.find(" libjs-marked node-dompurify "), debian.out.npos) << debian.out;
  EXPECT_EQ(print_for(dir, "ID=ubuntu\nID_LIKE=debian\n").out, debian.out);
  EXPECT_EQ(print_for(dir, "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n").out, debian.out);
  const Finished fedora = print_for(dir, "ID=fedora\nVERSION_ID=40\n");
  EXPECT_EQ(fedora.out.find(" -"), fedora.out.find(" -y"))
      << "none that Fedora lacks" << fedora.out;
  EXPECT_EQ(fedora.out.rfind("dnf install -y gcc-c++ cmake ninja-build ", 0), 0u) << fedora.out;
  EXPECT_NE(print_for(dir, "ID=fedora\n", {"--tests"}).out.find("gmock-devel"), std::string::npos);
  const Finished other = print_for(dir, "ID=nixos\nPRETTY_NAME=\"NixOS 24\"\n");
  EXPECT_EQ(other.status, 1);
  EXPECT_NE(other.err.find("neither apt nor dnf: NixOS 24"), other.err.npos) << other.err;
}

// Setup goes on without what only the page needs: here apt-get fails.
TEST(Setup, GoesOnWithoutThePackagesOfThePage) {
  const TempDir dir;
  dir.write("os-release", "ID=debian\n");
  const std::string script = "mkdir -p tools/dev bin && cp " + source_dir() +
                             "/tools/dev/setup tools/dev/ && "
                             "grep -v '^build' " +
                             source_dir() +
                             "/tools/dev/packages | "
                             "sed 's,file:/usr,file:/nowhere,' > tools/dev/packages && "
                             "printf '#!/bin/sh\nexit 100\n' > bin/apt-get && "
                             "printf '#!/bin/sh\necho 0\n' > bin/id && chmod +x bin/* && "
                             "PATH=$PWD/bin:$PATH KTX_OS_RELEASE=$PWD/os-release tools/dev/setup";
  const Finished run = run_program({"/bin/bash", "-c", "cd " + dir.path() + " && " + script}, "",
                                   {"PATH=/usr/bin:/bin"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find("the page of the server will show plain text"), run.err.npos) << run.err;
}

// Programs are looked for on a PATH that has no compiler, no package manager and no sudo.
TEST(Setup, WithoutRootSaysWhatToAskFor) {
  const TempDir dir;
  dir.write("os-release", "ID=debian\n");
  const std::string script =
      "mkdir bin; for p in bash env sed grep awk id dirname xargs cat; do "
      "ln -s $(command -v $p) bin/$p; done; "
      "printf '#!/bin/sh\\necho 1000\\n' > bin/id.new; chmod +x bin/id.new; mv bin/id.new bin/id; "
      "PATH=$PWD/bin KTX_OS_RELEASE=$PWD/os-release " +
      kSetup;
  const Finished run = run_program({"/bin/bash", "-c", "cd " + dir.path() + " && " + script}, "",
                                   {"PATH=/usr/bin:/bin"});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("ask an administrator to run: apt-get install -y --no-install-recommends "
                         "g++ cmake ninja-build "),
            run.err.npos)
      << run.err;
}

TEST(Setup, RefusesWhatItDoesNotKnow) {
  const Finished run = run_program({kSetup, "--bogus"});
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("tools/dev/setup --print"), run.err.npos) << run.err;
}

}  // namespace
}  // namespace ktx::testing
