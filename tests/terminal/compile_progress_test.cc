// The progress bar of ktx-compile.
#include "tests/terminal/terminal_fixture.h"

namespace ktx::testing {
namespace {

class CompileProgress : public ::testing::Test {
 protected:
  // What is drawn, each time over the line before.
  std::vector<std::string> drawn(int columns, const std::string& term = "xterm-256color") {
    PtyProgram program(
        {ktx_compile(), model_gguf("deepseek3"), "-o", dir_.path("p" + std::to_string(columns))},
        {"TERM=" + term}, columns);
    EXPECT_EQ(program.status(), 0) << program.output();
    EXPECT_NE(program.output().find("run it with"), std::string::npos) << program.output();
    std::vector<std::string> lines;
    const std::string& output = program.output();
    for (size_t end = output.find("\x1b[K"); end != output.npos;
         end = output.find("\x1b[K", end + 1)) {
      const size_t begin = output.rfind('\r', end) + 1;
      if (end > begin) lines.push_back(output.substr(begin, end - begin));
    }
    return lines;
  }
  TempDir dir_;
};

// A line that wraps stays, and the screen filled with bars.
TEST_F(CompileProgress, IsNeverAsWideAsTheTerminal) {
  for (const int columns : {10, 24, 40, 50, 60, 66, 80, 100, 200}) {
    const auto lines = drawn(columns);
    ASSERT_FALSE(lines.empty()) << columns;
    for (const std::string& line : lines) {
      EXPECT_LT(line.size(), static_cast<size_t>(columns)) << line;
      EXPECT_NE(line.find("packing"), std::string::npos) << line;
      const bool fits = columns == 40 || columns >= 80, narrow = columns < 30;
      EXPECT_TRUE(line[0] == '[' ? !narrow : !fits) << line;
    }
  }
}

TEST_F(CompileProgress, SaysWhatIsDoneInFewColumnsToo) {
  for (const std::string& line : drawn(40)) EXPECT_NE(line.find(" left"), line.npos) << line;
  for (const std::string& line : drawn(80)) EXPECT_NE(line.find("/s, "), line.npos) << line;
}

TEST_F(CompileProgress, IsNotShownWhereLinesCannotBeDrawnOver) {
  EXPECT_TRUE(drawn(80, "dumb").empty());
}

}  // namespace
}  // namespace ktx::testing
