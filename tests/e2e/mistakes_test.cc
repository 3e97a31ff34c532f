// Typical first commands of llama.cpp and KTransformers users: each mistake is answered with
// the right command, and with exit status 2 or 1.
#include <gtest/gtest.h>

#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

struct Mistake {
  std::vector<std::string> command;
  int status;
  std::vector<std::string> says;
};

void expect_answers(const std::vector<Mistake>& mistakes) {
  for (const Mistake& mistake : mistakes) {
    const Finished run = run_program(mistake.command);
    SCOPED_TRACE(run.err);
    EXPECT_EQ(run.status, mistake.status);
    EXPECT_EQ(run.out, "");
    for (const std::string& text : mistake.says) {
      EXPECT_NE(run.err.find(text), std::string::npos) << text;
    }
  }
}

TEST(Mistakes, OptionsOfOtherProgramsAreTranslated) {
  const std::string model = model_gguf("llama");
  expect_answers({
      {{ktx_compile(), "-m", model, "-o", "x"}, 2, {"no option '-m' here: the file is given"}},
      {{ktx_compile(), model, "-ngl", "99", "-c", "4096", "-o", "x"},
       2,
       {"no option '-ngl' here: the compiler places", "no option '-c' here: write --ctx N"}},
      {{ktx_compile(), "--gguf_path", "d", "--optimize_config_path=r.yaml", "--cpu_infer", "8"},
       2,
       {"'--gguf_path' here", "'--optimize_config_path' here: rule files are given", "write -t N"}},
      {{ktx_run(), "generate", "x", "-p", "hi", "--n-predict", "5", "--temperature=0"},
       2,
       {"write --prompt TEXT", "write -n N", "write --temp T"}},
      {{ktx_run(), "serve", "x", "--parallel", "4"}, 2, {"write --max-batch N"}},
  });
}

TEST(Mistakes, MisspeltOptionsLeadToTheNearest) {
  expect_answers({
      {{ktx_compile(), "--chek", "x"}, 2, {"no option '--chek'; did you mean '--check'?"}},
      {{ktx_run(), "serve", "x", "--api_key=k"}, 2, {"did you mean '--api-key'?"}},
      {{ktx_compile(), "x", "--cxt", "4096"}, 2, {"no option '--cxt'; did you mean '--ctx'?"}},
      {{ktx_run(), "chat", "x", "--qqqqqqqqqq"}, 2, {"no option '--qqqqqqqqqq'; --help lists"}},
      {{ktx_run(), "chat", "x", "--port", "80"}, 2, {"no option '--port'"}},
  });
}

TEST(Mistakes, OptionsThatGoWithoutEffectOrTwiceAreRefused) {
  expect_answers({
      {{ktx_compile(), "x", "-o"}, 2, {"error: -o takes a value, and nothing follows it"}},
      {{ktx_compile(), "x", "--ctx", "1", "--ctx=2"}, 2, {"error: --ctx is given twice"}},
      {{ktx_compile(), "x", "-o", "y", "--stop-after=lower-to-step"},
       2,
       {"no pass 'lower-to-step'; did you mean 'lower-to-steps'?"}},
      {{ktx_compile(), "x", "-o", "y", "--print-after=all,nil"}, 2, {"no pass 'nil'; passes are"}},
      {{ktx_compile(), "x", "--passes="}, 2, {"no pass ''; passes are"}},
      {{ktx_compile(), "x", "--passes=match-rules,"}, 2, {"no pass ''; passes are"}},
      {{ktx_compile(), "x", "-o", "y", "--ctx", "16777217"},
       2,
       {"from 1 to 16777216, or max, not"}},
      {{ktx_run(), "generate", "x", "Tell me a story."},
       2,
       {"only one model is used, but 'Tell me a story.' follows it; a prompt is given as "
        "--prompt"}},
      {{ktx_run(), "chat", "x", "y"}, 2, {"only one model is used, but 'y' follows it\n"}},
      {{ktx_run(), "generate", "x", "--prompt", "hi", "--system", "s"}, 2, {"add --chat"}},
      {{ktx_run(), "generate", "x", "--prompt", "hi", "--logprobs", "3"}, 2, {"with --json"}},
      {{ktx_run(), "bench", "x", "-o", "xml"}, 2, {"error: -o takes md or csv or json"}},
  });
}

TEST(Mistakes, AServerThatWouldBeOpenOrDeafDoesNotStart) {
  TempDir dir;
  const std::string twice = dir.write("twice", "port = 1\nport = 2\n");
  const auto serve = [](const std::string& option, const std::string& value) {
    return std::vector<std::string>{ktx_run(), "serve", "x", option, value};
  };
  expect_answers({
      {serve("--api-key", ""), 2, {"--api-key (KTX_SERVE_API_KEY) is empty"}},
      {serve("--cors", "site.example"), 2, {"--cors takes https://site"}},
      {serve("--cors", "https://site.example/"), 2, {"without a path"}},
      {serve("--config", twice), 2, {"twice:2: 'port' is there twice"}},
  });
  for (const char* origin : {"*", "null", "https://site.example", "http://localhost:3000"}) {
    const Finished run = run_program(serve("--cors", origin));
    EXPECT_EQ(run.err.find("--cors takes"), std::string::npos) << run.err;
  }
}

TEST(Mistakes, OptionsOfAnotherCommandOrWithTheirValueInThemAreNamed) {
  expect_answers({
      {{ktx_run(), "chat", "x", "--port", "80"},
       2,
       {"no option '--port' here: ktx-run serve has it"}},
      {{ktx_run(), "bench", "x", "--temp", "0"}, 2, {"ktx-run generate, chat, serve has it"}},
      {{ktx_run(), "bench", "x", "-p512,1k"}, 2, {"no option '-p512,1k'"}},
      {{ktx_run(), "bench", "x", "-p512"}, 2, {"no option '-p512'; write -p 512"}},
      {{ktx_run(), "chat", "x", "-t8"}, 2, {"no option '-t8'; write -t 8"}},
      {{ktx_compile(), "x", "--o", "y", "\u2014ctx", "5"}, 2, {"begins with a typeset dash"}},
      {{ktx_compile(), "--helo"}, 2, {"no option '--helo'; did you mean '--help'?"}},
      {{ktx_compile(), "x", "--output", "y"}, 2, {"no option '--output' here: write -o FILE"}},
      {{ktx_run(), "serve", "x", "--max-model-len", "9"}, 2, {"write --ctx N"}},
      {{ktx_run(), "serve", "x", "--verify=maybe"}, 2, {"--verify takes no value, or on or off"}},
  });
}

// Values may look like options of other programs, and some options are our own.
TEST(Mistakes, ValuesAndOwnOptionsAreNotTakenForOthers) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {ktx_run(), "generate", "none.ktxplan", "--prompt", "-m", "--temp=0"},
           {ktx_run(), "bench", "none.ktxplan", "-p", "8", "-b", "1,2"},
           {ktx_compile(), "none.gguf", "-Werror=R001", "-Wno-R004", "-o", "-ngl"}}) {
    const Finished run = run_program(command);
    EXPECT_EQ(run.status, 1) << run.err;
    EXPECT_NE(run.err.find("No such file"), std::string::npos) << run.err;
    EXPECT_EQ(run.err.find("no option"), std::string::npos) << run.err;
  }
}

TEST(Mistakes, FoldersAndFilesOfOtherKindsSayWhatToGive) {
  TempDir dir;
  dir.write("hf/config.json", "{}");
  dir.write("hf/model.safetensors", "x");
  dir.write("gguf/b-00002-of-00002.gguf", "x");
  dir.write("gguf/b-00001-of-00002.gguf", "x");
  dir.write("none/readme", "x");
  const std::string text = dir.write("model.txt", "hello\n");
  const auto compile = [](const std::string& path) {
    return std::vector<std::string>{ktx_compile(), path, "-o", "x.ktxplan"};
  };
  expect_answers({
      {compile(dir.path("hf")),
       2,
       {"folder of safetensors", "convert_hf_to_gguf.py", "--hf-config " + dir.path("hf")}},
      {compile(dir.path("gguf")), 2, {"name the GGUF in it (of shards the first)", "b-00001-of"}},
      {compile(dir.path("none")), 2, {"is a folder without a GGUF"}},
      {compile(dir.path("hf/config.json")), 2, {"give a config as --hf-config"}},
      {compile(text), 2, {"model.txt is no GGUF and was taken as a rule file"}},
      {{ktx_compile(), model_gguf("llama"), "--ctx", "4X", "-o", "x"}, 2, {"--ctx takes a whole"}},
      {{ktx_compile(), "none", model_gguf("llama"), "-o", dir.path("x")},
       1,
       {"none: cannot open: No such file"}},
  });
}

// What could not be printed is no success.
TEST(Mistakes, AFullDiskBehindStandardOutputIsAnError) {
  TempDir dir;
  const std::string text = dir.write("t.txt", "Once upon a time");
  const std::string plan = dir.path("my plan");
  const Finished compiled = run_program({ktx_compile(), model_gguf("llama"), "-o", plan});
  EXPECT_NE(compiled.err.find("ktx-run chat '" + plan + "'\n"), std::string::npos) << compiled.err;
  for (const std::string& command :
       {ktx_compile() + " --tokenize " + text + " " + model_gguf("llama"),
        ktx_compile() + " --check --coverage " + model_gguf("llama"),
        ktx_run() + " generate '" + plan + "' --prompt hi -n 2",
        ktx_run() + " generate '" + plan + "' --prompt hi -n 2 --json"}) {
    const Finished run = run_program({"/bin/bash", "-c", command + " > /dev/full"});
    EXPECT_EQ(run.status, 1) << command;
    EXPECT_NE(run.err.find("error: cannot write to standard output"), std::string::npos) << run.err;
  }
}

// A slip of the keyboard must cost no file: what is there is replaced by its own kind only.
TEST(Mistakes, OutputsReplaceNoFilesOfOtherKinds) {
  const std::string kRules = "- match: {kind: head}\n  replace: {device: cpu}\n";
  TempDir dir;
  const std::string model = dir.write("m.gguf", read_file(model_gguf("llama")));
  const std::string rules = dir.write("r.yaml", kRules);
  const std::string plan = dir.path("m.ktxplan");
  ASSERT_EQ(run_program({ktx_compile(), model, "-q", "-o", plan}).status, 0);
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {ktx_compile(), model, "-o", model},
           {ktx_compile(), model, rules, "-o", rules},
           {ktx_compile(), "--check", model, rules, "--report", rules},
           {ktx_compile(), "--check", model, "--report", model},
           {ktx_run(), "inspect", plan, "--export-gguf", rules},
           {ktx_run(), "serve", plan, "--port", "0", "--profile", plan}}) {
    const Finished run = run_program(command);
    EXPECT_EQ(run.status, 1) << run.err;
    EXPECT_NE(run.err.find("there is a file of this name that begins with"), std::string::npos)
        << run.err;
  }
  EXPECT_EQ(read_file(model), read_file(model_gguf("llama")));
  EXPECT_EQ(read_file(rules), kRules);
  EXPECT_EQ(run_program({ktx_run(), "inspect", plan, "--verify"}).status, 0);
  EXPECT_EQ(run_program({ktx_compile(), model, "-q", "-o", plan}).status, 0);  // a plan again
}

}  // namespace
}  // namespace ktx::testing
