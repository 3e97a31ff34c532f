// Broken, hostile and wrong files through the two programs: a clear error that
// names the file, exit status 1, no crash, and nothing left where the result
// would have been. The readers' own tests try every byte; these try the programs.
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <filesystem>
#include <random>

#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

namespace fs = std::filesystem;

class BadInput : public ::testing::Test {
 protected:
  // Compiles and expects a failure whose message holds `expected`.
  void expect_refused(const std::vector<std::string>& args, const std::string& expected) {
    std::vector<std::string> command = {ktx_compile()};
    command.insert(command.end(), args.begin(), args.end());
    command.insert(command.end(), {"-o", plan()});
    const Finished run = run_program(command);
    EXPECT_EQ(run.status, 1) << run.err;
    EXPECT_NE(run.err.find(expected), std::string::npos) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_FALSE(fs::exists(plan()));
    EXPECT_FALSE(fs::exists(plan() + ".work"));
  }
  std::string plan() const { return dir_.path("model.ktxplan"); }

  const std::string gguf_ = read_file(model_gguf("llama"));
  TempDir dir_;
};

TEST_F(BadInput, FilesThatAreNoModelAreNamed) {
  expect_refused({dir_.path("missing.gguf")}, "cannot open");
  expect_refused({dir_.write("empty.gguf", "")}, "empty");
  expect_refused({dir_.write("html.gguf", "<!DOCTYPE html><html></html>")}, "HTML");
  expect_refused({dir_.write("lfs.gguf", "version https://git-lfs.github.com/spec/v1\noid x")},
                 "git-lfs");
  expect_refused({dir_.write("zeros.gguf", std::string(4096, '\0'))}, "zero");
}

TEST_F(BadInput, TruncatedModelsAreRefused) {
  for (const size_t size : {4u, 23u, 24u, 100u, 5000u, 60000u, 100000u, 2000000u}) {
    const std::string path = dir_.write("cut.gguf", gguf_.substr(0, size));
    expect_refused({path}, "cut.gguf");
  }
}

TEST_F(BadInput, MutatedModelsNeverCrash) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 60; ++i) {
    std::string bytes = gguf_;
    const size_t header = 60000;  // metadata, vocabulary and tensor table
    for (int k = 0; k < 3; ++k) bytes[random() % header] = static_cast<char>(random());
    const std::string path = dir_.write("mutated.gguf", bytes);
    const Finished run = run_program({ktx_compile(), "-q", path, "-o", plan()});
    ASSERT_LE(run.status, 1) << run.err;
    if (run.status == 1) {
      EXPECT_NE(run.err, "");
      EXPECT_FALSE(fs::exists(plan()));
      continue;
    }
    // Accepted: then it runs too, or says why it cannot.
    const Finished answer =
        run_program({ktx_run(), "generate", plan(), "--prompt", "Hello", "-n", "2", "--temp", "0"});
    ASSERT_LE(answer.status, 1) << answer.err;
    fs::remove(plan());
  }
}

TEST_F(BadInput, AConfigOfAnotherModelIsRefusedWithBothValues) {
  expect_refused({model_gguf("llama"), "--hf-config", model_dir("qwen3moe") + "/config.json"},
                 "qwen3");
  const std::string config = read_file(model_dir("llama") + "/config.json");
  std::string other = config;
  const std::string key = "\"num_hidden_layers\": 3";
  ASSERT_NE(other.find(key), std::string::npos);
  other.replace(other.find(key), key.size(), "\"num_hidden_layers\": 4");
  expect_refused({model_gguf("llama"), "--hf-config", dir_.write("c/config.json", other)},
                 "num_hidden_layers");
}

TEST_F(BadInput, AnUnknownArchitectureNamesTheNearest) {
  std::string bytes = gguf_;
  const std::string key = std::string("general.architecture") +
                          std::string("\x08\0\0\0\x05\0\0\0\0\0\0\0", 12) + "llama";
  const size_t at = bytes.find(key);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at + key.size() - 5, 5, "lxama");
  expect_refused({dir_.write("arch.gguf", bytes)}, "lxama");
}

TEST_F(BadInput, ADamagedRuleFileIsReportedAtItsPlace) {
  expect_refused(
      {model_gguf("llama"), dir_.write("rules.yaml", "- match:\n    nam: x\n  replace: {}\n")},
      "rules.yaml:2:5");
}

TEST_F(BadInput, NoSpaceLeavesNothingBehind) {
  // A limit on the size of files stands for a full disk here.
  const Finished run = run_program({"/bin/bash", "-c",
                                    "trap '' XFSZ; ulimit -f 512; exec " + ktx_compile() + " -q " +
                                        model_gguf("llama") + " -o " + plan()});
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_NE(run.err.find("model.ktxplan"), std::string::npos) << run.err;
  EXPECT_FALSE(fs::exists(plan()));
  EXPECT_FALSE(fs::exists(plan() + ".work"));
}

TEST_F(BadInput, DamagedPlansAreRefused) {
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", plan()}).status, 0);
  const std::string bytes = read_file(plan());
  const auto expect_error = [&](const std::string& damaged, std::vector<std::string> args) {
    args.insert(args.begin() + 2, dir_.write("bad.ktxplan", damaged));
    const Finished run = run_program(args);
    EXPECT_EQ(run.status, 1) << run.err;
    EXPECT_NE(run.err.find("bad.ktxplan"), std::string::npos) << run.err;
  };
  const std::vector<std::string> generate = {ktx_run(), "generate", "--prompt", "Hello", "-n", "1"};
  for (const size_t size : {7u, 63u, 64u, 500u, 100000u}) {
    expect_error(bytes.substr(0, size), generate);
  }
  expect_error(bytes.substr(0, bytes.size() - 1), generate);
  std::string header = bytes;
  header[70] ^= 1;
  expect_error(header, generate);
  std::string weights = bytes;
  weights[bytes.size() - 100000] ^= 1;
  expect_error(weights, {ktx_run(), "inspect", "--verify"});
}

TEST_F(BadInput, UnknownInstructionSetsAreRefused) {
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", plan()}).status, 0);
  const Finished run =
      run_program({ktx_run(), "generate", plan(), "--prompt", "x", "--isa", "sse9"});
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("sse9"), std::string::npos) << run.err;
}

TEST_F(BadInput, TokensOutsideTheVocabularyAreRefused) {
  ASSERT_EQ(run_program({ktx_compile(), "-q", model_gguf("llama"), "-o", plan()}).status, 0);
  const Finished run = run_program({ktx_run(), "generate", plan(), "--prompt-ids", "1,999999"});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("999999"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace ktx::testing
