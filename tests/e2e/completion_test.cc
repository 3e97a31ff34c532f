// --completion: what shells offer for a half-typed command line. The script of bash is run; those
// of zsh and fish are parsed by them, where they are installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

std::string completion(const std::string& program, const std::string& shell) {
  const Finished run = run_program({program, "--completion", shell});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  return run.out;
}

// What bash offers for the last of `words`, in an empty folder with the file m.ktxplan.
std::vector<std::string> offered(const std::string& program, const std::string& function,
                                 const std::string& words) {
  const TempDir dir, script_dir;
  dir.write("m.ktxplan", "");
  const std::string script = "cd " + dir.path() + "\nsource " +
                             script_dir.write("completion", completion(program, "bash")) +
                             "\nCOMP_WORDS=(" + words +
                             ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n" + function +
                             "\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
  const Finished run = run_program({"/bin/bash", "-c", script});
  EXPECT_EQ(run.status, 0) << run.err;
  std::vector<std::string> out;
  std::istringstream lines(run.out);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) out.push_back(line);
  }
  return out;
}

std::vector<std::string> run_offers(const std::string& words) {
  return offered(ktx_run(), "_ktx_run", "ktx-run " + words);
}
std::vector<std::string> compile_offers(const std::string& words) {
  return offered(ktx_compile(), "_ktx_compile", "ktx-compile " + words);
}

TEST(Completion, OfBashOffersCommandsFirst) {
  EXPECT_THAT(run_offers("''"), Contains("serve"));
  EXPECT_THAT(run_offers("insp"), ElementsAre("inspect"));
}

TEST(Completion, OfBashOffersTheOptionsOfTheCommand) {
  EXPECT_THAT(run_offers("chat m.ktxplan --on"), ElementsAre("--on-full"));
  EXPECT_THAT(run_offers("generate m.ktxplan --on"), IsEmpty());
  EXPECT_THAT(run_offers("bench -"), Not(Contains("--temp")));
  EXPECT_THAT(compile_offers("--coverag"), ElementsAre("--coverage"));
}

TEST(Completion, OfBashOffersChoicesAndFiles) {
  EXPECT_THAT(run_offers("chat m.ktxplan --pin ''"), UnorderedElementsAre("auto", "on", "off"));
  EXPECT_THAT(run_offers("chat m.ktxplan --pin = of"), ElementsAre("off"));
  EXPECT_THAT(run_offers("chat ''"), ElementsAre("m.ktxplan"));
  EXPECT_THAT(run_offers("chat m.ktxplan --seed ''"), IsEmpty());
  EXPECT_THAT(compile_offers("--inputs ''"), UnorderedElementsAre("int8", "bf16"));
  EXPECT_THAT(compile_offers("-o m"), ElementsAre("m.ktxplan"));
}

TEST(Completion, OfZshAndFishIsParsedByThem) {
  const TempDir dir;
  int shells = 0;
  for (const std::string shell : {"zsh", "fish"}) {
    for (const std::string& program : {ktx_run(), ktx_compile()}) {
      const std::string file = dir.write("script." + shell, completion(program, shell));
      if (run_program({"/bin/sh", "-c", "command -v " + shell}).status != 0) continue;
      const Finished run = run_program({"/usr/bin/env", shell, "-n", file});
      EXPECT_EQ(run.status, 0) << run.err;
      EXPECT_EQ(run.err, "");
      ++shells;
    }
  }
  if (shells == 0) GTEST_SKIP() << "neither zsh nor fish is installed";
}

// Every option stands in every script.
TEST(Completion, NamesEveryOption) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const std::string run = completion(ktx_run(), shell);
    const std::string dash = shell == "fish" ? "-l " : "--";
#define KTX_OPTION(name, value, commands, group, reader, field, help) \
  if (std::string(name).size() > 1) {                                 \
    EXPECT_NE(run.find(dash + name), run.npos) << shell;              \
  }
#include "tools/ktx-run/run_options.def"
  }
}

TEST(Completion, OfAnUnknownShellIsAnError) {
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"--completion", "tcsh"}, {"--completion"}}) {
    std::vector<std::string> command = {ktx_run()};
    command.insert(command.end(), args.begin(), args.end());
    const Finished run = run_program(command);
    EXPECT_EQ(run.status, 2);
    EXPECT_NE(run.err.find("bash, zsh, fish"), run.err.npos) << run.err;
  }
}

TEST(Version, SaysHowTheProgramWasBuilt) {
  for (const std::string& program : {ktx_run(), ktx_compile()}) {
    const Finished run = run_program({program, "--version"});
    EXPECT_EQ(run.status, 0);
    for (const char* fact :
         {"\ncommit ", "\ncompiler ", "\nkernels   scalar avx2", "GPUs: ", "glibc "}) {
      EXPECT_NE(run.out.find(fact), run.out.npos) << run.out;
    }
  }
}

TEST(ManPage, NamesEveryCommandAndIsTakenByMan) {
  const TempDir dir;
  const Finished page = run_program({ktx_run(), "--man-page"});
  EXPECT_EQ(page.out.rfind(".TH KTX-RUN 1", 0), 0u);
  EXPECT_NE(page.out.find(".SH KTX-RUN SERVE\n"), page.out.npos);
  if (run_program({"/bin/sh", "-c", "command -v groff"}).status != 0) {
    GTEST_SKIP() << "groff is not installed";
  }
  const Finished run =
      run_program({"/usr/bin/env", "groff", "-man", "-ww", "-Tutf8", dir.write("p.1", page.out)});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.err, "");
}

}  // namespace
}  // namespace ktx::testing
