// The two programs from a user's view: results on stdout, diagnostics on stderr, exit status 0,
// 1 or 2, and the same answer for any number of threads and any chunk.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Commands : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    const Finished run = run_program({ktx_compile(), "-q", model_gguf("qwen3moe"), "-o", plan()});
    ASSERT_EQ(run.status, 0) << run.err;
  }
  static void TearDownTestSuite() { delete dir_; }
  static std::string plan() { return dir_->path("model.ktxplan"); }

  static TempDir* dir_;
};
TempDir* Commands::dir_ = nullptr;

TEST_F(Commands, GeneratePrintsTheAnswerOnStdoutOnly) {
  const Finished run = run_program({ktx_run(), "generate", plan(), "--chat", "--prompt",
                                    "Tell me a story about a fox.", "--temp", "0"});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out.rfind("Once upon a time", 0), 0u) << run.out;
  EXPECT_EQ(run.err, "");
}

TEST_F(Commands, ThreadsAndInstructionSetsChangeNoTokenInExactPrecision) {
  std::string first;
  for (const char* threads : {"1", "2", "3"}) {
    const Finished run = run_program({ktx_run(), "generate", plan(), "--chat", "--prompt",
                                      "What is 12 + 30?", "--temp", "0", "-t", threads, "--json",
                                      "--logprobs", "3", "--precision=exact"});
    ASSERT_EQ(run.status, 0) << run.err;
    json answer = json::parse(run.out);
    answer.erase("timings");
    if (first.empty()) first = answer.dump();
    EXPECT_EQ(answer.dump(), first) << threads << " threads";
  }
  const Finished scalar =
      run_program({ktx_run(), "generate", plan(), "--chat", "--prompt", "What is 12 + 30?",
                   "--temp", "0", "--json", "--precision=exact", "--isa=scalar"});
  EXPECT_EQ(json::parse(scalar.out)["ids"], json::parse(first)["ids"]) << scalar.err;
}

TEST_F(Commands, SeedsDecideTheSample) {
  const auto sample = [&](const char* seed) {
    return run_program({ktx_run(), "generate", plan(), "--chat", "--prompt", "Tell me a story.",
                        "--temp", "1.2", "--seed", seed, "-n", "40"})
        .out;
  };
  EXPECT_EQ(sample("7"), sample("7"));
  EXPECT_NE(sample("7"), sample("8"));
}

TEST_F(Commands, AFullContextEndsTheAnswerClearly) {
  const Finished run =
      run_program({ktx_run(), "generate", plan(), "--chat", "--prompt",
                   "Tell me a story about a fox.", "--temp", "0", "--ctx", "30", "--json"});
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(json::parse(run.out)["finish_reason"], "length");
  EXPECT_NE(run.err.find("the context of 30 tokens is full"), std::string::npos) << run.err;
  const Finished too_long = run_program(
      {ktx_run(), "generate", plan(), "--prompt", "one two three four five six", "--ctx", "4"});
  EXPECT_EQ(too_long.status, 1);
  EXPECT_NE(too_long.err.find("--ctx"), std::string::npos) << too_long.err;
}

TEST_F(Commands, ChatRemembersAndItsCommandsWork) {
  const std::string saved = dir_->path("talk.ktxsession");
  const Finished run = run_program({ktx_run(), "chat", plan(), "--temp", "0"},
                                   "Tell me a story about a fox.\n/stats\n/save " + saved +
                                       "\n/reset\n/load " + saved + "\nWhat is 12 + 30?\n/exit\n");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("Once upon a time"), std::string::npos);
  EXPECT_NE(run.err.find("t/s"), std::string::npos);
  EXPECT_NE(run.err.find("talk.ktxsession: 2 messages"), std::string::npos) << run.err;
  // Another process goes on where this one was: nothing of the past is computed again.
  const Finished later = run_program({ktx_run(), "chat", plan(), "--temp", "0", "--stats"},
                                     "/load " + saved + "\nWhat is 12 + 30?\n/exit\n");
  EXPECT_EQ(later.status, 0) << later.err;
  EXPECT_EQ(later.out, run.out.substr(run.out.find('\n') + 1));
  EXPECT_EQ(later.err.find("(0 from the cache)"), std::string::npos) << later.err;
}

TEST_F(Commands, ACommandOfChatThatIsNotThereFailsAScript) {
  const std::pair<std::string, std::string> cases[] = {
      {"/nothing", "error: no command '/nothing'; /help lists them\n"},
      {"/hlep", "error: no command '/hlep'; did you mean '/help'?\n"},
      {"/save", "error: /save needs PATH\n"},
      {"/load  ", "error: /load needs PATH\n"},
  };
  for (const auto& [line, message] : cases) {
    const Finished run = run_program({ktx_run(), "chat", plan()}, line + "\n/exit\n");
    EXPECT_EQ(run.status, 1) << line;
    EXPECT_NE(run.err.find(message), std::string::npos) << run.err;
  }
}

TEST_F(Commands, PathsInAChatMayBeQuotedOrBeginAtHome) {
  const TempDir home;
  fs::create_directory(home.path("my talks"));
  const auto chat = [&](const std::string& lines) {
    return run_program({"/usr/bin/env", "HOME=" + home.path(""), ktx_run(), "chat", plan(), "-n",
                        "1", "--temp", "0"},
                       lines);
  };
  const Finished saves = chat("Hi\n/save ~/a b.s\n/save \"" + home.path("my talks/c.s") +
                              "\"\n/save '" + home.path("~") + "'\n");
  EXPECT_EQ(saves.status, 0) << saves.err;
  for (const char* name : {"a b.s", "my talks/c.s", "~"}) {
    EXPECT_TRUE(fs::is_regular_file(home.path(name))) << name << saves.err;
    const Finished loads = chat(fmt::format("/load {}\n", home.path(name)));
    EXPECT_EQ(loads.status, 0) << loads.err;
  }
  home.write("ask.txt", "Tell me a story.");
  EXPECT_EQ(chat("/file ~/ask.txt\n").status, 0);
  // Without a closing quote, and the home of another user: as they stand.
  for (const char* path : {"\"nix", "~nobody/nix", "~"}) {
    const Finished run = chat(fmt::format("/load {}\n", path));
    EXPECT_EQ(run.status, 1) << path;
  }
}

TEST_F(Commands, ASavedSessionGoesOnInAnotherProcessForEveryFamily) {
  for (const std::string name :
       {"llama", "mixtral", "qwen2", "qwen2moe", "qwen3moe", "deepseek2", "deepseek3"}) {
    const TempDir dir;
    const std::string model = dir.path("p"), saved = dir.path("s");
    ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf(name), "-o", model}).status, 0);
    // Sampled: the place in the random numbers is part of a session.
    const Finished whole =
        run_program({ktx_run(), "chat", model, "--seed", "3"},
                    "Tell me a story about a fox.\n/save " + saved + "\nAnd then?\n");
    ASSERT_EQ(whole.status, 0) << whole.err;
    const Finished first =
        run_program({ktx_run(), "chat", model, "--seed", "3"}, "Tell me a story about a fox.\n");
    const Finished second = run_program({ktx_run(), "chat", model, "--seed", "4", "-t", "3"},
                                        "/load " + saved + "\nAnd then?\n");
    EXPECT_EQ(second.status, 0) << second.err;
    EXPECT_EQ(first.out + second.out, whole.out) << name;
  }
}

TEST_F(Commands, WrongUsageIsStatus2AndNamesTheWay) {
  const std::vector<std::vector<std::string>> kCases = {
      {ktx_run()},
      {ktx_run(), "generate", plan()},
      {ktx_run(), "generate", plan(), "--prompt", "x", "--temp", "hot"},
      {ktx_run(), "generate", plan(), "--prompt", "x", "--no-such-option"},
      {ktx_compile()},
      {ktx_compile(), model_gguf("llama")},
      {ktx_compile(), model_gguf("llama"), "-o", plan(), "--trust=me"},
  };
  for (const auto& args : kCases) {
    const Finished run = run_program(args);
    EXPECT_EQ(run.status, 2) << run.err;
    EXPECT_NE(run.err, "");
    EXPECT_EQ(run.out, "");
  }
}

TEST_F(Commands, AMisspeltOrMissingCommandIsNamed) {
  const Finished misspelt = run_program({ktx_run(), "chatt", plan()});
  EXPECT_EQ(misspelt.status, 2);
  EXPECT_NE(misspelt.err.find("no command 'chatt'; did you mean 'chat'?"), std::string::npos)
      << misspelt.err;
  const Finished missing = run_program({ktx_run(), plan()});
  EXPECT_EQ(missing.status, 2);
  EXPECT_NE(missing.err.find("try: ktx-run chat " + plan()), std::string::npos) << missing.err;
}

TEST_F(Commands, HelpBeginsWithExamples) {
  for (const std::string& program : {ktx_compile(), ktx_run()}) {
    const Finished run = run_program({program, "--help"});
    EXPECT_EQ(run.status, 0);
    EXPECT_LT(run.out.find("EXAMPLES"), run.out.find("OPTIONS"));
  }
}

TEST_F(Commands, InspectVerifiesAndExportsTheVeryGguf) {
  for (const std::string name :
       {"llama", "mixtral", "qwen2", "qwen2moe", "qwen3moe", "deepseek2", "deepseek3"}) {
    const TempDir dir;
    ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf(name), "-o", dir.path("p")}).status, 0);
    const Finished run = run_program({ktx_run(), "inspect", dir.path("p"), "--json", "--verify",
                                      "--export-gguf", dir.path("copy.gguf")});
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_TRUE(json::accept(run.out));
    EXPECT_EQ(read_file(dir.path("copy.gguf")), read_file(model_gguf(name))) << name;
  }
}

TEST_F(Commands, TheSameInputsGiveTheSameBytes) {
  const TempDir dir;
  ASSERT_EQ(
      run_program({ktx_compile(), "-q", model_gguf("qwen3moe"), "-o", dir.path("a"), "-t", "1"})
          .status,
      0);
  EXPECT_EQ(read_file(dir.path("a")), read_file(plan()));
}

TEST_F(Commands, BenchPrintsItsTable) {
  const Finished run =
      run_program({ktx_run(), "bench", plan(), "-p", "16", "-n", "4", "-r", "2", "-o", "json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const json rows = json::parse(run.out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["test"], "pp16");
  EXPECT_GT(rows[1]["tokens_per_second"], 0);
}

TEST_F(Commands, BenchGeneratesSequencesSideBySide) {
  const Finished run = run_program(
      {ktx_run(), "bench", plan(), "-p", "0", "-n", "3", "-b", "1,4", "-r", "1", "-o", "json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const json rows = json::parse(run.out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["test"], "tg3");
  EXPECT_EQ(rows[1]["test"], "tg3 x 4");
}

TEST_F(Commands, BenchOfKernelsNeedsAGpuAndSaysWhatToDo) {
  const Finished run =
      run_program({ktx_run(), "bench", plan(), "-p", "0", "-n", "1", "-r", "1", "--kernels"});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("no steps on a GPU; --steps times a CPU"), std::string::npos) << run.err;
}

TEST_F(Commands, BenchMeasuresAtADepthAndSaysWhereTheTimeGoes) {
  const Finished run = run_program({ktx_run(), "bench", plan(), "-p", "8", "-n", "2", "-d", "70",
                                    "-r", "1", "--steps", "-o", "json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const json rows = json::parse(run.out);
  EXPECT_EQ(rows[0]["test"], "pp8 @ d70");
  EXPECT_GT(rows[0]["int8_rate"], 1e9);
  EXPECT_GT(rows[0]["int8_share"], 0);
  EXPECT_LT(rows[0]["int8_share"], 1);
  EXPECT_NE(run.err.find("experts_gate_up experts"), std::string::npos) << run.err;
}

TEST_F(Commands, TokenizePrintsOneJsonArray) {
  const TempDir dir;
  dir.write("text", "Hello <|im_end|>");
  const Finished plain =
      run_program({ktx_compile(), "--tokenize", dir.path("text"), model_gguf("qwen3moe")});
  const Finished special = run_program(
      {ktx_compile(), "--tokenize", dir.path("text"), "--parse-special", model_gguf("qwen3moe")});
  ASSERT_EQ(plain.status, 0) << plain.err;
  ASSERT_EQ(special.status, 0) << special.err;
  EXPECT_GT(json::parse(plain.out).size(), json::parse(special.out).size());
  EXPECT_EQ(json::parse(special.out).back(), 1181);
  const Finished files =
      run_program({ktx_compile(), "--tokenize", dir.path("text"), "--parse-special", "--tokenizer",
                   model_dir("qwen3moe") + "/tokenizer.json"});
  EXPECT_EQ(files.out, special.out) << files.err;
}

TEST_F(Commands, RenderChatPrintsThePrompt) {
  const TempDir dir;
  dir.write("case.json", R"({"messages": [{"role": "user", "content": "Hi"}]})");
  const Finished run =
      run_program({ktx_compile(), "--render-chat", dir.path("case.json"), model_gguf("qwen3moe")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(Commands, TemplateVariablesReachTheTemplate) {
  const TempDir dir;
  const std::string reasoning = dir.path("deepseek3.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("deepseek3"), "-o", reasoning}).status, 0);
  const auto generate = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {ktx_run(),         "generate", reasoning, "--chat", "--prompt",
                                     "What is 7 + 12?", "--temp",   "0",       "-n",     "1"};
    args.insert(args.end(), {"--json"});
    args.insert(args.end(), more.begin(), more.end());
    const Finished run = run_program(args);
    EXPECT_EQ(run.status, 0) << run.err;
    return json::parse(run.out)["prompt_ids"].size();
  };
  EXPECT_EQ(generate({"--template-var", "reasoning=false"}), generate({}));
  EXPECT_GT(generate({"--template-var", "reasoning=true"}), generate({}));

  const Finished chat =
      run_program({ktx_run(), "chat", reasoning, "--temp", "0", "--template-var", "reasoning=true"},
                  "What is 7 + 12?\n");
  EXPECT_NE(chat.out.find("</think>"), std::string::npos) << chat.out << chat.err;

  dir.write("t.jinja", "{{ x + 1 }} {{ who }}");
  dir.write("case.json", R"({"messages": [], "extra": {"x": 1, "who": "me"}})");
  const Finished rendered =
      run_program({ktx_compile(), "--render-chat", dir.path("case.json"), "--template",
                   dir.path("t.jinja"), "--template-var", "x=41", "--template-var", "y=a=b"});
  EXPECT_EQ(rendered.out, "42 me") << rendered.err;

  for (const char* wrong : {"x", "=1", "a-b=1"}) {
    const Finished run = run_program({ktx_run(), "chat", reasoning, "--template-var", wrong});
    EXPECT_EQ(run.status, 2) << wrong;
    EXPECT_NE(run.err.find("is not KEY=VALUE"), std::string::npos) << run.err;
  }
}

}  // namespace
}  // namespace ktx::testing
