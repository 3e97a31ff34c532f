// Runs every example command of README.md, the docs and both programs' --help verbatim, in a
// folder with the files that the examples name.
//
// Commands are changed only where a test requires it: a fixed port becomes a free one, `serve` is
// stopped once it answers, and `bench` measures each row once (what the machine could do takes it
// a second of both cores each time). A `chat` gets a message and /exit on its standard input.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <sstream>

#include "lib/input/gguf.h"
#include "tests/support/ec_keys.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"
#include "tests/support/split_gguf.h"

namespace ktx::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = "qwen3moe";
constexpr const char* kChatInput = "Tell me a story about a fox.\n/exit\n";
constexpr const char* kCase = R"({"messages": [{"role": "user", "content": "Hello"}]})";
constexpr const char* kTexts = "{\"prompt\": \"2 + 2 =\", \"text\": \" 4\"}\n";
constexpr const char* kRules = "- match: {kind: experts}\n  replace: {device: cpu}\n";

// The command of a line, or "": a line of a page counts when it stands in a fenced or an indented
// block, a line of --help when it is indented.
std::string command_of(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  std::string_view program = line;
  if (program.starts_with("build/")) program.remove_prefix(6);
  const bool is_one = program.starts_with("ktx-compile ") || program.starts_with("ktx-run ");
  return is_one ? std::string(line) : "";
}

std::vector<std::string> examples_in(const std::string& text, bool fenced_only) {
  std::vector<std::string> commands;
  std::istringstream lines(text);
  bool fenced = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) fenced = !fenced;
    const bool block = fenced || line.starts_with(fenced_only ? "    " : "  ");
    const std::string command = command_of(line);
    if (block && !command.empty()) commands.push_back(command);
  }
  return commands;
}

// Writes `gguf` again as three shards, model-0000N-of-00003.gguf in `dir`.
void write_shards(const std::string& gguf, const TempDir& dir) {
  const auto file = input::GgufFile::open(gguf);
  ASSERT_TRUE(file) << file.error().message;
  const Status written = split_gguf(*file, dir.path("model"), 3);
  ASSERT_TRUE(written) << written.error().message;
}

// `bench` with one repetition instead of its five or what the example has.
std::string bench_once(const std::string& command) {
  static const std::regex kBench("ktx-run bench [^ ]+"), kRepeats(" -r [0-9]+");
  if (!std::regex_search(command, kBench)) return command;
  return std::regex_replace(std::regex_replace(command, kRepeats, ""), kBench, "$& -r 1");
}

// Runs a command line in `dir` with the programs on the PATH, as a shell does.
Finished type(const std::string& command, const TempDir& dir, const std::string& input) {
  const std::string line = "cd '" + dir.path() + "' && " + command;
  return run_program(
      {"/bin/bash", "-c", line}, input,
      {"PATH=" + binary_dir() + ":/usr/bin:/bin", "HOME=" + dir.path(), "KTX_PORT=0"});
}

// Starts a server, waits for the line that says it is ready, fetches its page and stops it.
Finished type_serve(std::string command, const TempDir& dir) {
  if (const size_t at = command.find("--port "); at != command.npos) {
    const size_t end = std::min(command.find(' ', at + 7), command.size());
    command.replace(at, end - at, "--port 0");
  }
  // On a line of its own, since a comment may follow it.
  const std::string script = R"(
    exec 2> serve.err
    (exec )" + command + R"(
    ) & server=$!
    while kill -0 $server 2> /dev/null; do
      url=$(grep 'is ready' serve.err | grep -o 'http://[0-9.:]*')
      [ -z "$url" ] || break
      sleep 0.1
    done
    port=${url##*:}
    exec 3<> "/dev/tcp/127.0.0.1/$port"
    printf 'GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
    head -1 <&3
    kill -TERM $server
    wait $server)";
  Finished run = type(script, dir, "");
  run.err = read_file(dir.path("serve.err"));
  EXPECT_EQ(run.out, "HTTP/1.1 200 OK\r\n") << command << "\n" << run.err;
  return run;
}

class Examples : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_symlink(model_gguf(kModel), dir_.path("model.gguf"));
    fs::create_symlink(model_dir(kModel) + "/config.json", dir_.path("config.json"));
    fs::create_symlink(source_dir() + "/rules", dir_.path("rules"));
    fs::create_symlink(binary_dir(), dir_.path("build"));
    dir_.write("rules.yaml", kRules);
    dir_.write("prompt.txt", "Once upon a time");
    dir_.write("case.json", kCase);
    dir_.write("texts.jsonl", kTexts);
    fs::create_symlink(source_dir() + "/tests/quality/talk.txt", dir_.path("text.txt"));
    fs::create_symlink(source_dir() + "/README.md", dir_.path("README.md"));
    dir_.write("keys.txt", "a-key-of-this-test\n");
    dir_.write("key.pem", EcKeys("P-256").secret);
    write_shards(model_gguf(kModel), dir_);
  }

  // Types all commands in their order; a plan that none of them makes is there from the start.
  void type_all(const std::vector<std::string>& commands) {
    const Finished made =
        type("ktx-compile -q model.gguf -o model.ktxplan --target=zen4", dir_, "");
    ASSERT_EQ(made.status, 0) << made.err;
    for (const char* folder : {"models", "extra"}) fs::create_directory(dir_.path(folder));
    for (const char* copy :
         {"models/qwen3.ktxplan", "extra/llama.ktxplan", "f16.ktxplan", "q4.ktxplan"}) {
      fs::create_hard_link(dir_.path("model.ktxplan"), dir_.path(copy));
    }
    for (const std::string& command : commands) {
      SCOPED_TRACE(command);
      const bool serves = command.find("ktx-run serve ") != std::string::npos;
      const bool chats = command.find("ktx-run chat ") != std::string::npos;
      const Finished run = serves ? type_serve(command, dir_)
                                  : type(bench_once(command), dir_, chats ? kChatInput : "");
      EXPECT_EQ(run.status, 0) << run.out << run.err;
      const bool answers = chats || command.find("ktx-run generate ") != std::string::npos;
      if (answers) {
        EXPECT_GT(run.out.size(), 10u) << run.err;
      }
    }
  }

  void type_all_of_page(const std::string& page, size_t at_least) {
    const std::vector<std::string> commands =
        examples_in(read_file(source_dir() + "/" + page), true);
    EXPECT_GE(commands.size(), at_least) << page;
    type_all(commands);
  }

  std::vector<std::string> examples_of_help(const std::string& command) {
    const Finished help = type(command + " --help", dir_, "");
    EXPECT_EQ(help.status, 0) << help.err;
    return examples_in(help.out, false);
  }

  TempDir dir_;
};

TEST_F(Examples, OfTheReadme) {
  type_all_of_page("README.md", 10);
}

TEST_F(Examples, OfThePageOnServing) {
  type_all_of_page("docs/serve.md", 2);
}

TEST_F(Examples, OfThePageOnGpus) {
  type_all_of_page("docs/gpu.md", 3);
}

TEST_F(Examples, OfThePageOnGraphs) {
  type_all_of_page("docs/ir.md", 4);
}

TEST_F(Examples, OfThePageOnPerformance) {
  type_all_of_page("docs/performance.md", 1);
}

TEST_F(Examples, OfThePageOnQuality) {
  type_all_of_page("docs/quality.md", 5);
}

TEST_F(Examples, OfTheCompilersHelp) {
  const std::vector<std::string> commands = examples_of_help("ktx-compile");
  EXPECT_GE(commands.size(), 5u);
  type_all(commands);
}

// Those that the help of several commands repeats are typed once.
TEST_F(Examples, OfTheRuntimesHelp) {
  std::vector<std::string> commands = examples_of_help("ktx-run");
  EXPECT_GE(commands.size(), 5u);
  for (const char* name : {"chat", "generate", "serve", "inspect", "bench", "doctor", "probe"}) {
    for (const std::string& command : examples_of_help(std::string("ktx-run ") + name)) {
      if (std::ranges::find(commands, command) == commands.end()) commands.push_back(command);
    }
  }
  type_all(commands);
}

}  // namespace
}  // namespace ktx::testing
