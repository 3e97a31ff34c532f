// A prompt from a pipe: `echo hi | ktx-run generate m.ktxplan`, `--prompt-file -`, `<(...)`.
#include "tests/terminal/terminal_fixture.h"

namespace ktx::testing {
namespace {

class PromptPipe : public Terminal {
 protected:
  static Finished shell(const std::string& command) {
    return run_program({"/bin/bash", "-c", command}, "",
                       {"RUN=" + ktx_run(), "COMPILE=" + ktx_compile(), "PLAN=" + plan(),
                        "GGUF=" + model_gguf("qwen3moe")});
  }
};

constexpr const char* kRest = " --temp 0 -n 4 --json";

std::string ids_of(const Finished& run) {
  EXPECT_EQ(run.status, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out, nullptr, false);
  return json.is_object() ? json["prompt_ids"].dump() : "no JSON: " + run.out + run.err;
}

TEST_F(PromptPipe, EveryWayInGivesTheSamePrompt) {
  const std::string expected =
      ids_of(run_program({ktx_run(), "generate", plan(), "--prompt", "Tell me a story.", "--temp",
                          "0", "-n", "4", "--json"}));
  for (const std::string command :
       {"echo 'Tell me a story.' | $RUN generate $PLAN",
        "printf 'Tell me a story.' | $RUN generate $PLAN",
        "echo 'Tell me a story.' | $RUN generate $PLAN --prompt-file -",
        "echo 'Tell me a story.' | $RUN generate $PLAN --prompt-file=-",
        "echo 'Tell me a story.' | $RUN generate $PLAN --prompt-file /dev/stdin",
        "$RUN generate $PLAN --prompt-file <(echo 'Tell me a story.')",
        "(echo -n 'Tell me '; sleep 0.3; echo 'a story.') | $RUN generate $PLAN",
        "f=$(mktemp) && printf 'Tell me a story.' > $f && $RUN generate $PLAN --prompt-file $f"}) {
    EXPECT_EQ(ids_of(shell(command + kRest)), expected) << command;
  }
  EXPECT_EQ(ids_of(shell("d=$(mktemp -d) && mkfifo $d/p && (echo 'Tell me a story.' > $d/p &) ; "
                         "$RUN generate $PLAN --prompt-file $d/p" +
                         std::string(kRest))),
            expected);
}

TEST_F(PromptPipe, WhatIsNoPromptIsNamed) {
  struct Case {
    std::string command, message;
    int status;
  };
  const std::vector<Case> kCases = {
      {"$RUN generate $PLAN < /dev/null", "or a text by a pipe", 2},
      {": | $RUN generate $PLAN", "standard input: the text is empty", 1},
      {"$RUN generate $PLAN --prompt-file - < /dev/null", "standard input: the text is empty", 1},
      {"head -c 70000000 /dev/zero | $RUN generate $PLAN",
       "standard input: the text has more than the 67108864 bytes allowed here", 1},
      {"$RUN generate $PLAN --prompt-file /tmp", "/tmp: cannot read: Is a directory", 1},
      {"echo hi | $RUN generate $PLAN --prompt a --prompt-file -", "give one of --prompt", 2},
  };
  for (const Case& test : kCases) {
    const Finished run = shell(test.command);
    EXPECT_EQ(run.status, test.status) << test.command;
    EXPECT_NE(run.err.find(test.message), std::string::npos) << test.command << "\n" << run.err;
  }
  // A prompt that is given wins over a pipe that happens to be there.
  EXPECT_EQ(shell("echo hi | $RUN generate $PLAN --prompt 'Tell me' -n 1").status, 0);
}

TEST_F(PromptPipe, TheCompilersTextsComeByPipesToo) {
  const Finished file = shell("$COMPILE --tokenize <(printf 'Tell me a story.') $GGUF");
  const Finished dash = shell("printf 'Tell me a story.' | $COMPILE --tokenize - $GGUF");
  EXPECT_EQ(file.status, 0) << file.err;
  EXPECT_EQ(dash.out, file.out) << dash.err;
  const Finished chat = shell(
      "echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' | "
      "$COMPILE --render-chat - $GGUF");
  EXPECT_EQ(chat.status, 0) << chat.err;
  EXPECT_NE(chat.out.find("Hi"), std::string::npos) << chat.out;
}

}  // namespace
}  // namespace ktx::testing
