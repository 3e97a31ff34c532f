// --help of both programs and of every command: the texts, their width, and that their examples
// are accepted.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/support/golden.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

const std::vector<std::vector<std::string>> kHelps = {
    {ktx_compile()},         {ktx_run()},
    {ktx_run(), "generate"}, {ktx_run(), "chat"},
    {ktx_run(), "serve"},    {ktx_run(), "inspect"},
    {ktx_run(), "bench"},    {ktx_run(), "perplexity"},
    {ktx_run(), "score"},    {ktx_run(), "compare"},
    {ktx_run(), "selftest"}, {ktx_run(), "doctor"},
    {ktx_run(), "probe"},    {ktx_run(), "plans"},
    {ktx_run(), "pull"}};

std::string file_of(const std::vector<std::string>& command) {
  std::string name = command[0].substr(command[0].rfind('/') + 1);
  return "help/" + (command.size() > 1 ? name + "-" + command[1] : name) + ".txt";
}

std::string help_of(std::vector<std::string> command) {
  command.emplace_back("--help");
  const Finished run = run_program(command);
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.err, "");
  return run.out;
}

TEST(Help, ReadsAsItStandsInTheGoldenFiles) {
  for (const auto& command : kHelps) expect_golden(file_of(command), help_of(command));
}

TEST(Help, BeginsWithAnExampleAndFits80Columns) {
  for (const auto& command : kHelps) {
    const std::string help = help_of(command);
    EXPECT_EQ(help.rfind("EXAMPLES:\n  ktx-", 0), 0u) << help;
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST(Help, IsAskedForInEveryUsualWay) {
  const std::string chat = help_of({ktx_run(), "chat"}), run = help_of({ktx_run()});
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"help", "chat"},
                                             {"chat", "help"},
                                             {"chat", "-h"},
                                             {"--help", "chat"},
                                             {"chat", "-help"},
                                             {"chat", "m.ktxplan", "--help"},
                                             {"--temp", "1", "chat", "--help"}}) {
    std::vector<std::string> command = {ktx_run()};
    command.insert(command.end(), args.begin(), args.end());
    const Finished finished = run_program(command);
    EXPECT_EQ(finished.status, 0) << finished.err;
    EXPECT_EQ(finished.out, chat);
  }
  for (const char* word : {"help", "-h", "-help", "-?"}) {
    EXPECT_EQ(run_program({ktx_run(), word}).out, run) << word;
    EXPECT_EQ(run_program({ktx_compile(), word}).out, help_of({ktx_compile()})) << word;
  }
  // A value is none: --help of a prompt is its text.
  EXPECT_EQ(run_program({ktx_run(), "generate", "no.ktxplan", "--prompt", "--help"}).status, 1);
  EXPECT_EQ(run_program({ktx_run(), "--version"}).out.rfind("ktx-run ", 0), 0u);
  EXPECT_EQ(run_program({ktx_compile(), "--version"}).out.rfind("ktx-compile ", 0), 0u);
}

// The examples name files that are not there, and nothing else is wrong with them.
TEST(Help, ItsExamplesAreTaken) {
  const TempDir dir;
  int tried = 0;
  for (const auto& command : kHelps) {
    std::istringstream lines(help_of(command));
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("  ktx-", 0) != 0) continue;
      if (line == "  ktx-run doctor" || line.rfind("  ktx-run probe", 0) == 0) continue;  // no file
      // This user's own plans, and a network.
      if (line.rfind("  ktx-run plans", 0) == 0 || line.rfind("  ktx-run pull", 0) == 0) continue;
      const Finished run = run_program(
          {"/bin/bash", "-c", "cd " + dir.path() + " && " + binary_dir() + "/" + line.substr(2)});
      EXPECT_EQ(run.status, 1) << line << "\n" << run.err;
      // What does not open is a finding of doctor's, not its failure.
      const std::string& says = line.rfind("  ktx-run doctor", 0) == 0 ? run.out : run.err;
      EXPECT_NE(says.find("No such file"), std::string::npos) << line << "\n" << says;
      ++tried;
    }
  }
  EXPECT_GE(tried, 20);
}

// The block of docs/cli.md that begins with ```LANGUAGE, behind a heading.
std::string block_of_docs(const std::string& heading, const std::string& language) {
  const std::string docs = read_file(source_dir() + "/docs/cli.md");
  const size_t from = docs.find(heading);
  const size_t fence = docs.find("```" + language + "\n", from);
  EXPECT_NE(from, std::string::npos);
  EXPECT_NE(fence, std::string::npos);
  const size_t begin = docs.find('\n', fence) + 1;
  return docs.substr(begin, docs.find("```", begin) - begin);
}

TEST(Docs, TheCaseOfRenderChatGivesWhatStandsThere) {
  const TempDir dir;
  const std::string heading = "### Cases of --render-chat";
  const Finished run =
      run_program({ktx_compile(), "--render-chat",
                   dir.write("case.json", block_of_docs(heading, "json")), model_gguf("qwen3moe")});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, block_of_docs(heading, "text"));
}

}  // namespace
}  // namespace ktx::testing
