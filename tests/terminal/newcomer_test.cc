// A newcomer's first session in a shell at a terminal: a model, a plan, a conversation, with
// typical mistakes.
#include <filesystem>

#include "tests/support/paths.h"
#include "tests/terminal/terminal_fixture.h"

namespace ktx::testing {
namespace {

// A shell whose prompt cannot be mistaken for output. What is typed is echoed, so the status of
// a command is asked for in words that its echo does not hold.
class Shell {
 public:
  explicit Shell(const TempDir& home)
      : shell_({"/bin/bash", "--norc", "--noprofile", "-i"},
               {"HOME=" + home.path(), "TERM=xterm-256color", "HISTFILE=/dev/null"}) {
    type("cd; export PATH=" + binary_dir() + ":/usr/bin:/bin");
    type("PS1='ready''$ '; PS2=");
    EXPECT_TRUE(shell_.shows("ready$ ")) << shell_.output();
  }
  void type(const std::string& line) { shell_.send(line + "\r"); }
  bool shows(std::string_view text) { return shell_.shows(text); }
  // The exit status of the command that has just ended.
  std::string status() {
    type("echo \"status=\"$?.");
    EXPECT_TRUE(shell_.shows("status=\"$?.")) << shell_.rest();
    EXPECT_TRUE(shell_.shows("status=")) << shell_.rest();
    const std::string rest = shell_.shows(".") ? shell_.output() : "";
    EXPECT_TRUE(shell_.shows("ready$ ")) << shell_.rest();
    const size_t at = rest.rfind("status=") + 7;
    return rest.substr(at, rest.find('.', at) - at);
  }
  std::string all() const { return shell_.output(); }
  std::string rest() const { return shell_.rest(); }

 private:
  PtyProgram shell_;
};

TEST(Newcomer, FirstSessionFromAModelToAConversation) {
  const TempDir home;
  std::filesystem::create_symlink(model_gguf("qwen3moe"), home.path("model.gguf"));
  Shell shell(home);

  // The model is enough; its plan is kept. A plan of one's own needs a name.
  shell.type("ktx-run chat model.gguf --temp 0 -n 12");
  ASSERT_TRUE(shell.shows("compiling model.gguf")) << shell.rest();
  ASSERT_TRUE(shell.shows("> ")) << shell.rest();
  shell.type("/bye");
  ASSERT_TRUE(shell.shows("ready$ ")) << shell.rest();
  EXPECT_EQ(shell.status(), "0") << shell.all();
  shell.type("ktx-compile model.gguf");
  ASSERT_TRUE(shell.shows("-o model.ktxplan")) << shell.rest();
  ASSERT_TRUE(shell.shows("ready$ "));
  EXPECT_EQ(shell.status(), "2");

  shell.type("ktx-compile model.gguf -o model.ktxplan");
  ASSERT_TRUE(shell.shows("run it with: ktx-run chat model.ktxplan")) << shell.rest();
  ASSERT_TRUE(shell.shows("ready$ "));
  EXPECT_EQ(shell.status(), "0");

  // A name with a letter missing.
  shell.type("ktx-run chat modl.ktxplan");
  ASSERT_TRUE(shell.shows("model.ktxplan")) << shell.rest();
  ASSERT_TRUE(shell.shows("ready$ "));
  EXPECT_EQ(shell.status(), "1");

  shell.type("ktx-run chat model.ktxplan --temp 0 -n 12");
  ASSERT_TRUE(shell.shows("> ")) << shell.rest();
  shell.type("/?");
  ASSERT_TRUE(shell.shows("/save")) << shell.rest();
  shell.type("Tell me a story about a fox.");
  ASSERT_TRUE(shell.shows("Once upon a time")) << shell.rest();
  shell.type("你好, café 🦊");
  ASSERT_TRUE(shell.shows("你好, café 🦊")) << shell.rest();
  shell.type("/bye");
  ASSERT_TRUE(shell.shows("ready$ ")) << shell.rest();
  EXPECT_EQ(shell.status(), "0") << shell.all();
  shell.type("exit");
}

}  // namespace
}  // namespace ktx::testing
