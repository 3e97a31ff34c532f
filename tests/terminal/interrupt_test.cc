// Ctrl-C, Ctrl-D, errors and signals at a terminal, and the display during waits.
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "tests/terminal/terminal_fixture.h"

namespace ktx::testing {
namespace {

// Long enough to be unfinished when a key arrives.
std::string long_text(int words) {
  std::string text;
  for (int i = 0; i < words; ++i) text += "story " + std::to_string(i * 7919 % 1000) + " ";
  return text;
}

// One slow thread.
std::vector<std::string> slow(std::vector<std::string> args) {
  for (const char* more :
       {"-t", "1", "--precision=exact", "--isa=scalar", "--ctx", "60000", "--kv-budget", "4G"})
    args.emplace_back(more);
  return args;
}

TEST_F(Terminal, CtrlCAtAnEmptyPromptTellsTheWayOut) {
  PtyProgram program(chat(), environment());
  ASSERT_TRUE(program.shows("\x1b[J> "));
  program.send("\x03");
  EXPECT_TRUE(program.shows("Ctrl-D or /bye leaves")) << program.output();
  program.send("\x03\x03\x03hel\x03");
  program.let_pass(0.3);
  program.send_signal(SIGINT);  // of a program that sends it, not a key
  EXPECT_TRUE(program.shows("Ctrl-D or /bye leaves"));
  program.send("/stats\r");
  EXPECT_TRUE(program.shows("context: 0 of")) << program.output();
  // Ctrl-D counts at the prompt; before it, the line discipline of the terminal takes it.
  ASSERT_TRUE(program.shows("\x1b[J> "));
  program.send("\x04");
  EXPECT_EQ(program.status(), 0);
}

TEST_F(Terminal, ALongPromptShowsItsProgressAndCtrlCEndsItAndNothingElse) {
  home_.write("long.txt", long_text(9000));
  PtyProgram program(slow({ktx_run(), "chat", plan(), "--temp", "0", "-n", "3"}), environment());
  ASSERT_TRUE(program.shows("\x1b[J> ")) << program.output();
  program.send("Hello\r");
  ASSERT_TRUE(program.shows("\x1b[?2004l")) << program.output();  // it answers
  ASSERT_TRUE(program.shows("\x1b[J> ")) << program.output();
  program.send("/file " + home_.path("long.txt") + "\r");
  ASSERT_TRUE(program.shows("prompt: ")) << program.output();
  ASSERT_TRUE(program.shows(" t/s")) << program.output();
  program.send("\x03\x03\x03");
  ASSERT_TRUE(program.shows("stopped; the message was not answered")) << program.rest();
  ASSERT_TRUE(program.shows("\x1b[J> ")) << program.rest();
  program.send("And then?\r");
  ASSERT_TRUE(program.shows("\x1b[?2004l"));
  ASSERT_TRUE(program.shows("\x1b[J> ")) << program.rest();
  const std::string saved = home_.path("s.ktxsession");
  program.send("/save " + saved + "\r");
  ASSERT_TRUE(program.shows("4 messages, ")) << program.rest();
  program.send("/quit\r");
  EXPECT_EQ(program.status(), 0);
  EXPECT_EQ(user_messages(saved), (std::vector<std::string>{"Hello", "And then?"}));
}

TEST_F(Terminal, CtrlCDuringAnAnswerKeepsTheConversation) {
  PtyProgram program(slow({ktx_run(), "chat", plan(), "--temp", "0"}), environment());
  ASSERT_TRUE(program.shows("\x1b[J> "));
  program.send("Tell me a story about a fox.\r");
  ASSERT_TRUE(program.shows("\x1b[?2004l"));
  // Not by time: on a busy machine the prompt may still be computed.
  ASSERT_TRUE(program.shows("Once")) << program.rest();
  program.send("\x03\x03\x03");
  ASSERT_TRUE(program.shows("\x1b[J> ")) << program.rest();
  program.send("/drop\r");
  EXPECT_TRUE(program.shows("0 are left")) << program.rest();
  program.send("/drop\r");
  EXPECT_TRUE(program.shows("nothing to drop")) << program.rest();
  program.send("/exit\r");
  EXPECT_EQ(program.status(), 0);
}

// What was scored so far is printed.
TEST_F(Terminal, PerplexityAndCompareShowTheirProgressAndEndByCtrlC) {
  home_.write("long.txt", long_text(20000));
  const std::string text = home_.path("long.txt");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{ktx_run(), "perplexity", plan()},
        std::vector<std::string>{ktx_run(), "compare", plan(), plan()}}) {
    std::vector<std::string> args = command;
    for (const char* more : {"-t", "1", "--precision=exact", "--isa=scalar", "--ctx", "64", "-f"})
      args.emplace_back(more);
    args.push_back(text);
    PtyProgram program(args, environment());
    ASSERT_TRUE(program.shows(" contexts, ")) << program.output();
    ASSERT_TRUE(program.shows(" so far, ")) << program.output();
    program.send("\x03");
    ASSERT_TRUE(program.shows("perplexity  ")) << program.output();
    EXPECT_EQ(program.status(), 128 + SIGINT) << program.output();
  }
}

TEST_F(Terminal, GenerateAndBenchEndByCtrlCAsShellsExpect) {
  home_.write("long.txt", long_text(9000));
  PtyProgram prompt(slow({ktx_run(), "generate", plan(), "--prompt-file", home_.path("long.txt")}),
                    environment());
  ASSERT_TRUE(prompt.shows("prompt: ")) << prompt.output();
  prompt.send("\x03");
  EXPECT_EQ(prompt.status(), 128 + SIGINT) << prompt.output();
  PtyProgram answer(slow({ktx_run(), "generate", plan(), "--prompt", "Once upon", "--temp", "3",
                          "--top-k", "0", "--top-p", "1", "--min-p", "0", "--seed", "1"}),
                    environment());
  ASSERT_TRUE(answer.shows("was made for\r\n")) << answer.output();
  ASSERT_TRUE(answer.shows_anything());
  answer.send("\x03");
  EXPECT_EQ(answer.status(), 128 + SIGINT) << answer.output();
  PtyProgram bench({ktx_run(), "bench", plan(), "-p", "64", "-n", "100000", "-r", "1", "-t", "1",
                    "--isa=scalar", "--ctx", "100000"},
                   environment());
  ASSERT_TRUE(bench.shows("bench: pp64, 1 threads: run 1 of 1")) << bench.output();
  ASSERT_TRUE(bench.shows("bench: tg100000, 1 threads: run 1 of 1")) << bench.output();
  bench.send("\x03");
  EXPECT_EQ(bench.status(), 128 + SIGINT) << bench.output();
  EXPECT_NE(bench.rest().find("pp64"), std::string::npos) << "what was measured is printed";
}

TEST_F(Terminal, SignalsThatEndTheProgramPutTheTerminalBack) {
  for (const int number : {SIGTERM, SIGHUP, SIGQUIT}) {
    PtyProgram program(chat(), environment());
    ASSERT_TRUE(program.shows("\x1b[J> "));
    program.send("half a line");
    ASSERT_TRUE(program.shows("line"));
    EXPECT_FALSE(program.is_cooked());
    program.send_signal(number);
    EXPECT_EQ(program.status(), 128 + number);
    EXPECT_TRUE(program.is_cooked()) << number;
    EXPECT_NE(program.rest().find("\x1b[?2004l"), std::string::npos) << number;
  }
}

TEST_F(Terminal, AnErrorIsAFailureOfAScriptOnly) {
  PtyProgram program(chat(), environment());
  ASSERT_TRUE(program.shows("\x1b[J> "));
  program.send("/file /nowhere\r");
  ASSERT_TRUE(program.shows("error: /nowhere: cannot open")) << program.output();
  ASSERT_TRUE(program.shows("\x1b[J> "));
  program.send("\x04");
  EXPECT_EQ(program.status(), 0);
  const Finished script = run_program(chat(), "/file /nowhere\n/bye\n");
  EXPECT_EQ(script.status, 1);
}

TEST_F(Terminal, NamesOfCommandsThatPeopleKnowWork) {
  for (const std::string leave : {"/bye", "/quit", "/exit"}) {
    const Finished run = run_program(chat(), "/?\n/clear\n" + leave + "\nnever\n");
    EXPECT_EQ(run.status, 0);
    EXPECT_NE(run.err.find("(also /bye, /quit)"), std::string::npos) << run.err;
    EXPECT_EQ(run.out, "") << leave;
  }
  EXPECT_NE(run_program(chat(), "/quitt\n").err.find("did you mean '/quit'?"), std::string::npos);
}

TEST_F(Terminal, AnAnswerThatIsCutOffSaysSo) {
  const Finished run = run_program(chat(), "Tell me a story.\n");
  EXPECT_NE(run.err.find("the answer was cut off after 2 tokens (-n)"), std::string::npos)
      << run.err;
}

TEST_F(Terminal, AFullContextDropsTheOldestTurnsByChoice) {
  const std::string question = "Tell me a story about a fox and a hen in the wood.\n";
  std::string talk;
  for (int i = 0; i < 8; ++i) talk += question;
  const std::string saved = home_.path("full.ktxsession");
  const std::vector<std::string> args = {
      ktx_run(), "chat", plan(),     "--temp",        "0", "-n", "8",
      "--ctx",   "128",  "--system", "You are brief."};
  const Finished stops = run_program(args, talk);
  EXPECT_EQ(stops.status, 1);
  EXPECT_NE(stops.err.find("--on-full=drop"), std::string::npos) << stops.err;
  std::vector<std::string> dropping = args;
  dropping.push_back("--on-full=drop");
  const Finished drops = run_program(dropping, talk + "/save " + saved + "\n");
  EXPECT_EQ(drops.status, 0) << drops.err;
  EXPECT_NE(drops.err.find("the context of 128 tokens is full: the oldest 2 messages were dropped"),
            std::string::npos)
      << drops.err;
  EXPECT_NE(read_file(saved).find("You are brief."), std::string::npos);
  EXPECT_LT(user_messages(saved).size(), 8u);
  EXPECT_GE(user_messages(saved).size(), 1u);
  const Finished wrong = run_program({ktx_run(), "chat", plan(), "--on-full=burn"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_NE(wrong.err.find("stop"), std::string::npos) << wrong.err;
}

// Its turns were dropped for a message that did not fit without them either.
TEST_F(Terminal, AMessageLongerThanTheContextDropsNothing) {
  std::string words;
  for (int i = 0; i < 200; ++i) words += "fox ";
  const std::string saved = home_.path("kept.ktxsession");
  for (const std::string on_full : {"--on-full=drop", "--on-full=stop"}) {
    std::filesystem::remove(saved);
    const Finished run = run_program({ktx_run(), "chat", plan(), "--temp", "0", "-n", "8", "--ctx",
                                      "128", "--system", "You are brief.", on_full},
                                     "What is 12 + 30?\n" + words + "\n/save " + saved + "\n");
    EXPECT_EQ(run.status, 1) << run.err;
    EXPECT_NE(run.err.find("the message alone has "), std::string::npos) << run.err;
    EXPECT_NE(run.err.find(" tokens, the context 128; shorten it, or start with --ctx "),
              std::string::npos)
        << run.err;
    EXPECT_EQ(run.err.find("drop"), std::string::npos) << run.err;
    EXPECT_EQ(user_messages(saved), Lines{"What is 12 + 30?"}) << on_full;
  }
}

TEST_F(Terminal, ReasoningIsDimOnATerminalAndAsItIsInAPipe) {
  const std::string reasoner = home_.path("reasoner.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("deepseek3"), "-o", reasoner}).status, 0);
  const std::vector<std::string> args = {ktx_run(), "chat",           reasoner,        "--temp",
                                         "0",       "--template-var", "reasoning=true"};
  PtyProgram program(args, environment());
  ASSERT_TRUE(program.shows("\x1b[J> "));
  program.send("What is 12 + 30?\r");
  EXPECT_TRUE(program.shows("\x1b[2m")) << program.output();
  EXPECT_TRUE(program.shows("\x1b[22m\r\n\r\n")) << program.output();
  ASSERT_TRUE(program.shows("\x1b[J> "));
  program.send("\x04");
  EXPECT_EQ(program.status(), 0);
  EXPECT_EQ(program.output().find("think>"), std::string::npos) << program.output();
  PtyProgram plain(args, environment({"NO_COLOR=1"}));
  ASSERT_TRUE(plain.shows("\x1b[J> "));
  plain.send("What is 12 + 30?\r");
  EXPECT_TRUE(plain.shows("</think>")) << plain.output();
}

// gpt-oss: the channel of the reasoning is dim, and no name of a channel is shown.
TEST_F(Terminal, TheChannelsOfHarmonyAreReasoningAndText) {
  const std::string reasoner = home_.path("harmony.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("gpt_oss"), "-o", reasoner}).status, 0);
  PtyProgram program({ktx_run(), "chat", reasoner, "--temp", "0"}, environment());
  ASSERT_TRUE(program.shows("\x1b[J> "));
  program.send("What is 7 + 12?\r");
  EXPECT_TRUE(program.shows("\x1b[2m")) << program.output();
  EXPECT_TRUE(program.shows("\x1b[22m\r\n\r\n")) << program.output();
  ASSERT_TRUE(program.shows("\x1b[J> "));
  program.send("\x04");
  EXPECT_EQ(program.status(), 0);
  for (const char* hidden : {"analysis", "final", "assistant", "<|"}) {
    EXPECT_EQ(program.output().find(hidden), std::string::npos) << program.output();
  }
}

}  // namespace
}  // namespace ktx::testing
