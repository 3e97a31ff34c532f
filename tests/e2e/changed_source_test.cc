// A GGUF that somebody writes to while it is compiled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

using ::testing::HasSubstr;

// Compiles m.gguf and, once it has been opened, does something to it: the compiler waits meanwhile
// for a reader of what it prints of its passes.
Finished compile_while(const TempDir& dir, const std::string& change) {
  return run_program(
      {"/bin/bash", "-c",
       "cd '" + dir.path() + "' && cp '" + model_gguf("qwen3moe") +
           "' m.gguf && touch -d @1 m.gguf && mkfifo err && { '" + ktx_compile() +
           "' m.gguf -o m.ktxplan --print-after=all 2> err & p=$!; } && exec 3< err && "
           "read -r -u 3 _ && sleep 0.1 && { " +
           change + "; } && cat <&3 | tail -n 3; wait $p"});
}

TEST(ChangedSource, IsNoticedAlsoWithTheSameSizeAndTime) {
  const TempDir dir;
  const Finished run = compile_while(
      dir,
      "printf x | dd of=m.gguf bs=1 seek=1000000 conv=notrunc status=none; touch -d @1 m.gguf");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.out, HasSubstr("m.gguf: the file was changed or replaced while it was read"));
  for (const char* file : {"m.ktxplan", "m.ktxplan.work"}) {
    EXPECT_FALSE(std::filesystem::exists(dir.path(file))) << file;
  }
}

TEST(ChangedSource, MayBeRemovedOnceItIsOpen) {
  const TempDir dir;
  const Finished run = compile_while(dir, "rm m.gguf");
  EXPECT_EQ(run.status, 0) << run.out;
  EXPECT_EQ(run_program({ktx_run(), "inspect", dir.path("m.ktxplan"), "--verify"}).status, 0);
}

}  // namespace
}  // namespace ktx::testing
