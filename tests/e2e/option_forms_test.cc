// Values with common units, and the words of a command line in every order: the command works,
// or the message is the command to type.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

class OptionForms : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    const Finished run = run_program({ktx_compile(), "-q", model_gguf("llama"), "--o", plan(),
                                      "-ctx", "0.25k", "--max-batch=2"});
    ASSERT_EQ(run.status, 0) << run.err;
  }
  static void TearDownTestSuite() { delete dir_; }
  static std::string plan() { return dir_->path("model.ktxplan"); }
  // In a folder of its own, so that what lies around says nothing.
  static Finished in_folder(const std::string& folder, const std::string& command) {
    return run_program(
        {"/bin/bash", "-c", "cd " + folder + " && PATH=" + binary_dir() + ":$PATH && " + command});
  }

  static TempDir* dir_;
};
TempDir* OptionForms::dir_ = nullptr;

TEST_F(OptionForms, CountsAndSizesTakeUnits) {
  const Finished inspect = run_program({ktx_run(), "inspect", plan(), "--json"});
  ASSERT_EQ(inspect.status, 0) << inspect.err;
  EXPECT_EQ(nlohmann::json::parse(inspect.out)["facts"]["default_ctx"], 256);
  const Finished bench = run_program({ktx_run(), "bench", plan(), "-p", "0.0625k,8", "-n", "4",
                                      "-r", "1", "-o", "json", "--kv-budget", "4 MiB"});
  ASSERT_EQ(bench.status, 0) << bench.err;
  EXPECT_EQ(nlohmann::json::parse(bench.out)[0]["test"], "pp64");
  for (const char* size : {"8MiB", "8mb", "8M", "8388608", "0.01g"}) {
    const Finished run = run_program({ktx_run(), "generate", plan(), "--prompt", "Once", "-n", "2",
                                      "--ctx", "64", "--kv-budget", size});
    EXPECT_EQ(run.status, 0) << size << run.err;
  }
}

TEST_F(OptionForms, NonsenseIsRefusedWithTheFormsThatWork) {
  for (const char* value : {"4X", "1e9", "", "-1k", "0x10", "４k", "1,5k", "0", "9g", " "}) {
    for (const std::string& program : {ktx_run(), ktx_compile()}) {
      std::vector<std::string> command = {program};
      if (program == ktx_run()) command.emplace_back("chat");
      command.insert(command.end(), {"x", "--ctx", value});
      const Finished run = run_program(command);
      EXPECT_EQ(run.status, 2) << value;
      EXPECT_NE(run.err.find("--ctx takes a whole number from 1 to 16777216, or max, not '"),
                std::string::npos)
          << run.err;
      EXPECT_NE(run.err.find("32k is 32768"), std::string::npos) << run.err;
    }
  }
  for (const char* value : {"4X", "1e9", "", "-1G", "0", "1,5G", "4 GiB ram", "2000T", "1.5"}) {
    const Finished run = run_program({ktx_run(), "serve", "x", "--max-body", value});
    EXPECT_EQ(run.status, 2) << value;
    EXPECT_NE(run.err.find("--max-body takes a size such as 8GiB, 512M or 1.5g (units of 1024), up "
                           "to 1024TiB, not '"),
              std::string::npos)
        << run.err;
  }
  const Finished real = run_program({ktx_run(), "chat", "x", "--temp", "0,7"});
  EXPECT_NE(real.err.find("--temp takes a number from 0 to 100, such as 0.7, not '0,7'"),
            std::string::npos)
      << real.err;
}

TEST_F(OptionForms, SettingsOfServeTakeTheSameAndNameTheirPlace) {
  const std::string config =
      dir_->write("serve.conf", "# sizes\nctx = 1k\nmax-body = 4 MiB\nmax-queue = 4X\n");
  const Finished file = run_program({ktx_run(), "serve", "x", "--config", config});
  EXPECT_EQ(file.status, 2);
  EXPECT_NE(file.err.find("serve.conf:4: max-queue takes a whole number from 0 to 1048576, not "
                          "'4X'"),
            std::string::npos)
      << file.err;
  EXPECT_EQ(file.err.find("ctx"), std::string::npos) << file.err;
  const Finished environment =
      run_program({ktx_run(), "serve", "x"}, "", {"KTX_KV_BUDGET=lots", "KTX_CHUNK=2k"});
  EXPECT_EQ(environment.status, 2);
  EXPECT_EQ(environment.err.rfind("ktx-run: error: KTX_KV_BUDGET takes a size such as", 0), 0u)
      << environment.err;
}

TEST_F(OptionForms, TheMemoryOfATargetTakesUnits) {
  const auto estimate = [&](const std::string& memory) {
    const std::string target =
        dir_->write("target.yaml", "cpu: {isa: avx2, cores: 8, memory_gib: " + memory + "}\n");
    return run_program({ktx_compile(), "--estimate", "--target", target, "-q", "--hf-config",
                        source_dir() + "/tests/configs/Qwen3-8B.json"});
  };
  const Finished plain = estimate("24");  // of which programs see 23.33
  ASSERT_EQ(plain.status, 0) << plain.err;
  EXPECT_NE(plain.out.find(" 23.33 GiB"), std::string::npos) << plain.out;
  for (const char* memory : {"24GB", "24 GiB", "\"24g\"", "24576M", "25165824k"}) {
    EXPECT_EQ(estimate(memory).out, plain.out) << memory;
  }
  for (const char* memory : {"24X", "lots", "2000000000G", "24 giga"}) {
    const Finished wrong = estimate(memory);
    EXPECT_EQ(wrong.status, 1);
    EXPECT_NE(
        wrong.err.find("`memory_gib` must be a number from 0.001 to 1e+06, or a size such as"),
        std::string::npos)
        << wrong.err;
  }
}

TEST_F(OptionForms, AnEmptyTextHasNoTokensAndAMissingModuleIsAnError) {
  const std::string empty = dir_->write("empty.txt", "");
  const Finished tokens = run_program({ktx_compile(), "--tokenize", empty, model_gguf("llama")});
  EXPECT_EQ(tokens.status, 0) << tokens.err;
  EXPECT_EQ(tokens.out, "[]\n");
  const Finished none =
      run_program({ktx_compile(), "--explain", "model.layer.0.mlp", model_gguf("llama")});
  EXPECT_EQ(none.status, 1);
  EXPECT_EQ(none.out, "");
  EXPECT_NE(
      none.err.find("error: --explain model.layer.0.mlp: no module of this path; did you mean "
                    "'model.layers.0.mlp'?"),
      std::string::npos)
      << none.err;
  const Finished there =
      run_program({ktx_compile(), "--explain", "model.layers.0.mlp.up_proj", model_gguf("llama")});
  EXPECT_EQ(there.status, 0) << there.err;
  EXPECT_NE(there.out.find("param   weight: Q4_K [256, "), std::string::npos) << there.out;
}

TEST_F(OptionForms, OptionsMayStandBeforeTheCommand) {
  const Finished run =
      run_program({ktx_run(), "--temp", "0", "-n", "2", "generate", "--prompt", "Once", plan()});
  EXPECT_EQ(run.status, 0) << run.err;
  const Finished last = run_program({ktx_run(), "--prompt=chat", "-n=2", "generate", "--", plan()});
  EXPECT_EQ(last.status, 0) << last.err;
}

// Each line is typed in a folder with one plan and one model; the message has the command.
TEST_F(OptionForms, EveryWrongLineNamesTheRightOne) {
  const TempDir dir;
  dir.write("tale.ktxplan", read_file(plan()));
  dir.write("tale.gguf", read_file(model_gguf("llama")));
  dir.write("my rules/cpu.yaml", "- match: {kind: head}\n  replace: {device: cpu}\n");
  dir.write("plans/a.ktxplan", read_file(plan()));
  dir.write("models/b.gguf", read_file(model_gguf("llama")));
  dir.write("empty/x", "x");
  dir.write("hf/model.safetensors", "x");
  struct Case {
    const char* line;
    int status;
    const char* says;
  };
  for (const Case& item : std::vector<Case>{
           {"ktx-run", 2, "try: ktx-run chat tale.ktxplan"},
           {"ktx-run chat", 2, "try: ktx-run chat tale.ktxplan"},
           {"ktx-run tale.ktxplan --temp 0.7", 2, "try: ktx-run chat tale.ktxplan --temp 0.7"},
           {"ktx-run tale.gguf", 2, "try: ktx-run chat tale.gguf"},
           {"ktx-run hf:o/n:Q8_0", 2, "try: ktx-run chat hf:o/n:Q8_0"},
           {"ktx-run tale.ktxplan chat", 2, "comes first: ktx-run chat tale.ktxplan"},
           {"ktx-run run tale.ktxplan", 2, "no command 'run': write chat, or generate"},
           {"ktx-run sreve tale.ktxplan", 2, "did you mean 'serve'?"},
           {"ktx-run chat tael.ktxplan", 1,
            "No such file or directory; did you mean 'tale.ktxplan'"},
           {"ktx-run chat Tale.KTXPLAN", 1, "did you mean 'tale.ktxplan'?"},
           {"ktx-run chat model.ktxplan", 1, "did you mean 'tale.ktxplan'?"},
           {"ktx-run chat tale", 1, "cannot open: No such file"},
           {"ktx-run chat plans", 2, "name the plan in it: ktx-run chat plans/a.ktxplan"},
           {"ktx-run models", 2, "name the model in it: ktx-run chat models/b.gguf"},
           {"ktx-run chat empty", 2, "is a folder without a plan or a GGUF; make a GGUF of it"},
           {"ktx-run chat hf", 2, "is a folder of safetensors, and weights are read from a GGUF"},
           {"ktx-run ./tael.ktxplan", 2, "try: ktx-run chat ./tale.ktxplan"},
           {"ktx-compile tale.ktxplan", 2, "is a plan already; run it: ktx-run chat tale.ktxplan"},
           {"ktx-compile tale.gguf", 2, "try: ktx-compile tale.gguf -o tale.ktxplan"},
           {"ktx-compile tael.gguf -o x.ktxplan", 1, "did you mean 'tale.gguf'?"},
           {"ktx-compile tale.gguf new.ktxplan", 2,
            "named with -o: ktx-compile tale.gguf -o new.ktxplan"},
           {"ktx-compile -o tale.gguf new.ktxplan", 2, "try: ktx-compile tale.gguf -o new.ktxplan"},
           {"ktx-compile models", 2, "try: ktx-compile models/b.gguf -o models/b.ktxplan"},
           {"ktx-compile --check models", 2, "try: ktx-compile --check models/b.gguf"},
           {"ktx-compile tale.gguf 'my rules' -o x.ktxplan", 2,
            "a folder of 1 rule file; name those to use: ktx-compile tale.gguf 'my rules/cpu.yaml' "
            "-o tale.ktxplan"},
           {"ktx-compile 'my rules/cpu.yaml'", 2,
            "try: ktx-compile model.gguf 'my rules/cpu.yaml' -o model.ktxplan, or for a check "
            "alone: ktx-compile --check 'my rules/cpu.yaml' --hf-config config.json"},
           {"ktx-compile check tale.gguf", 2, "no file 'check'; did you mean '--check'?"},
           {"ktx-compile compile tale.gguf -o x", 2, "leave the word out"},
           {"ktx-compile tale.gguf 'my rules/cup.yaml' -o x.ktxplan", 1,
            "did you mean 'my rules/cpu.yaml'?"},
       }) {
    const Finished run = in_folder(dir.path(), item.line);
    EXPECT_EQ(run.status, item.status) << item.line << "\n" << run.err;
    EXPECT_NE(run.err.find(item.says), std::string::npos) << item.line << "\n" << run.err;
    EXPECT_EQ(run.out, "") << item.line;
  }
}

}  // namespace
}  // namespace ktx::testing
