// ktx-run chat at a terminal: a pasted text is one message, whatever is in it.
#include "tests/terminal/terminal_fixture.h"

namespace ktx::testing {
namespace {

std::string pasted(const std::string& text) {
  return "\x1b[200~" + text + "\x1b[201~";
}

TEST_F(Terminal, APastedTextOfSeveralLinesIsOneMessage) {
  struct Case {
    std::string keys, message;
  };
  const std::string left = kLeft;
  const std::vector<Case> kCases = {
      {pasted("one\rtwo\r\tthree"), "one\ntwo\n\tthree"},
      {pasted("one\r\ntwo\r\n"), "one\ntwo"},
      {pasted("one\n\n\ntwo\n"), "one\n\n\ntwo"},
      {pasted("你好\r世界 cafe\u0301 👨\u200d👩\u200d👧"), "你好\n世界 cafe\u0301 👨\u200d👩\u200d👧"},
      {"see: " + pasted("a\rb") + " end", "see: a\nb end"},
      {pasted("x\ry") + left + left + "Z", "xZ\ny"},
      {pasted("\x1b[31mred\x1b[0m\rtext"), "\x1b[31mred\x1b[0m\ntext"},
      {pasted("\x03\x04\x15\rkept"), "\x03\x04\x15\nkept"},
      {pasted("/* a comment */\rint main() {}"), "/* a comment */\nint main() {}"},
      {pasted("\"\"\"doc\"\"\"\rdef f(): \\\r"), "\"\"\"doc\"\"\"\ndef f(): \\"},
      {pasted("broken \xe4\xbd\rutf \xff"), "broken \uFFFD\nutf \uFFFD"},
      {pasted("1\r2\r3\r4\r5\r6\r7\r8\r9") + "\x7f"
                                             "gone",
       "gone"},
      {pasted("/usr/bin/env is a path"), "/usr/bin/env is a path"},
      {pasted("") + "nothing", "nothing"},
  };
  for (size_t i = 0; i < kCases.size(); ++i) {
    EXPECT_EQ(received({kCases[i].keys + "\r"}), std::vector<std::string>{kCases[i].message}) << i;
  }
}

TEST_F(Terminal, ALongPasteIsShownAsOneWordAndArrivesWhole) {
  std::string text, expected;
  for (int i = 0; i < 60; ++i) {
    text += "line " + std::to_string(i) + " of it\r";
    expected += "line " + std::to_string(i) + " of it\n";
  }
  expected.pop_back();
  const std::string saved = home_.path("long.ktxsession");
  PtyProgram program(chat({"--ctx", "4096"}), environment());
  ASSERT_TRUE(program.shows("\x1b[J> ")) << program.output();
  program.send("first " + pasted(text));
  EXPECT_TRUE(program.shows("first [pasted 60 lines: line 0 of it ...]")) << program.output();
  program.send(" last\r");
  EXPECT_TRUE(program.shows("\x1b[?2004l")) << program.output();
  ASSERT_TRUE(program.shows("\x1b[J> ")) << program.output();
  program.send("/save " + saved + "\r");
  EXPECT_TRUE(program.shows("messages, ")) << program.output();
  EXPECT_EQ(user_messages(saved), std::vector<std::string>{"first " + expected + "\n last"});
  // Half a megabyte: more than the context takes, which is said, and the chat goes on.
  ASSERT_TRUE(program.shows("\x1b[J> "));
  program.send(pasted(std::string(500000, 'x') + "\r" + std::string(30000, 'y')) + "\r");
  EXPECT_TRUE(program.shows("error: the message alone has ")) << program.rest();
  ASSERT_TRUE(program.shows("\x1b[J> "));
  program.send("/bye\r");
  EXPECT_EQ(program.status(), 0) << "an error that a person saw is no failure";
}

TEST_F(Terminal, PasteModeIsOffWhenTheLineIsSent) {
  PtyProgram program(chat(), environment());
  ASSERT_TRUE(program.shows("\x1b[?2004h"));
  ASSERT_TRUE(program.shows("\x1b[J> "));
  program.send("hello\r");
  ASSERT_TRUE(program.shows("\x1b[?2004l")) << program.output();
  ASSERT_TRUE(program.shows("\x1b[?2004h")) << program.output();
  ASSERT_TRUE(program.shows("\x1b[J> ")) << program.output();
  program.send("\x04");
  EXPECT_EQ(program.status(), 0);
  const std::string& all = program.output();
  EXPECT_LT(all.rfind("\x1b[?2004h"), all.rfind("\x1b[?2004l"));
  EXPECT_TRUE(all.ends_with("\r\n\x1b[?2004l")) << "the shell's prompt begins a line";
}

TEST_F(Terminal, APipeGetsNoEscapeSequences) {
  const Finished run = run_program({ktx_run(), "chat", plan(), "--temp", "0", "-n", "4"},
                                   "Tell me a story.\ncaf\xe9\n", {"TERM=xterm"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out.find('\x1b'), std::string::npos) << run.out;
  EXPECT_EQ(run.err.find('\x1b'), std::string::npos) << run.err;
}

TEST_F(Terminal, ADumbTerminalReadsPlainLines) {
  PtyProgram program(chat(), {"HOME=" + home_.path(""), "TERM=dumb"});
  ASSERT_TRUE(program.shows("> ")) << program.output();
  program.send("Tell me a story.\n");
  ASSERT_TRUE(program.shows("> ")) << program.output();
  program.send("\x03");
  ASSERT_TRUE(program.shows("leaves")) << program.output();
  program.send("\x04");
  EXPECT_EQ(program.status(), 0) << program.output();
  EXPECT_EQ(program.output().find('\x1b'), std::string::npos) << program.output();
}

}  // namespace
}  // namespace ktx::testing
