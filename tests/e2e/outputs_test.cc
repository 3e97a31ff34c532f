// Every output of both programs: through symbolic links, to pipes and devices, to a standard
// output that is full, closed or no longer read. Devices are reached through links in a folder
// of the test: a program that renamed onto its output would replace the link, not the device.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "tests/support/run_program.h"

namespace ktx::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Outputs : public ::testing::Test {
 protected:
  // A link in a folder of its own, so that what a program leaves beside it is seen.
  std::string link(const std::string& name, const std::string& target) {
    fs::create_directories(dir_.path("links"));
    fs::create_symlink(target, dir_.path("links/" + name));
    return dir_.path("links/" + name);
  }
  std::string real(const std::string& name) {
    fs::create_directories(dir_.path("real"));
    return dir_.path("real/" + name);
  }
  std::string plan() {
    const std::string path = dir_.path("m.ktxplan");
    if (fs::exists(path)) return path;
    EXPECT_EQ(run_program({ktx_compile(), model_gguf("llama"), "-q", "-o", path}).status, 0);
    return path;
  }
  Finished shell(const std::string& command) { return run_program({"/bin/bash", "-c", command}); }
  // Nothing but links in their folder, and no half-made file where they lead.
  void expect_clean() {
    for (const fs::directory_entry& entry : fs::directory_iterator(dir_.path("links"))) {
      EXPECT_TRUE(entry.is_symlink()) << entry.path();
    }
    if (!fs::exists(dir_.path("real"))) return;
    for (const fs::directory_entry& entry : fs::directory_iterator(dir_.path("real"))) {
      EXPECT_NE(entry.path().extension(), ".work") << entry.path();
    }
  }
  TempDir dir_;
};

TEST_F(Outputs, GoWhereALinkPoints) {
  const std::string rules = real("r.yaml");
  std::ofstream(rules) << "- match: {kind: hed}\n  replace: {device: cpu}\n";
  fs::permissions(rules, fs::perms(0640));
  const std::string fixed = link("rules", rules);
  const std::vector<std::vector<std::string>> commands = {
      {ktx_compile(), model_gguf("llama"), "-q", "-o", link("plan", real("p"))},
      {ktx_compile(), model_gguf("llama"), "-q", "-o", link("plan2", "../real/p")},
      {ktx_compile(), "--check", model_gguf("llama"), "--report", link("html", real("h"))},
      {ktx_run(), "inspect", plan(), "--export-gguf", link("gguf", real("g"))},
  };
  for (const std::vector<std::string>& command : commands) {
    const Finished run = run_program(command);
    EXPECT_EQ(run.status, 0) << run.err;
  }
  EXPECT_THAT(read_file(real("p")), StartsWith("KTXPLAN"));
  EXPECT_THAT(read_file(real("h")), StartsWith("<!doctype html>"));
  EXPECT_EQ(read_file(real("g")), read_file(model_gguf("llama")));

  const Finished fix = run_program({ktx_compile(), "--check", "--fix", model_gguf("llama"), fixed});
  EXPECT_THAT(fix.err, HasSubstr("1 fix-it applied"));
  EXPECT_THAT(read_file(rules), HasSubstr("kind: head}"));
  EXPECT_EQ(fs::status(rules).permissions(), fs::perms(0640));

  const Finished chat =
      run_program({ktx_run(), "chat", plan()}, "/save " + link("talk", real("s")) + "\n");
  EXPECT_EQ(chat.status, 0) << chat.err;
  EXPECT_THAT(read_file(real("s")), StartsWith("KTXSESS"));
  expect_clean();
}

TEST_F(Outputs, AreNeverRenamedOntoADevice) {
  mkfifo(real("pipe").c_str(), 0600);
  for (const std::string& target : {std::string("/dev/null"), std::string("/dev/stdout"),
                                    std::string("/dev/full"), real("pipe")}) {
    const std::string path = link("out", target);
    const Finished compiled = run_program({ktx_compile(), model_gguf("llama"), "-o", path});
    EXPECT_EQ(compiled.status, 1);
    EXPECT_THAT(compiled.err, HasSubstr("a pipe or a device, and not a regular file; name a"));
    const Finished exported = run_program({ktx_run(), "inspect", plan(), "--export-gguf", path});
    EXPECT_EQ(exported.status, 1);
    EXPECT_THAT(exported.err, HasSubstr("a pipe or a device"));
    const Finished chat = run_program({ktx_run(), "chat", plan()}, "/save " + path + "\n");
    EXPECT_THAT(chat.err, HasSubstr("a pipe or a device"));
    expect_clean();
    fs::remove(path);
  }
  EXPECT_TRUE(fs::is_fifo(real("pipe")));
}

TEST_F(Outputs, AReportIsWrittenToWhatIsNoFile) {
  const std::string check = ktx_compile() + " --check " + model_gguf("llama") + " --report ";
  const std::string out = link("out", "/dev/stdout");
  EXPECT_EQ(shell(check + link("null", "/dev/null")).status, 0);
  EXPECT_THAT(shell(check + out).out, StartsWith("<!doctype html>"));
  EXPECT_THAT(shell(check + out + " | cat").out, StartsWith("<!doctype html>"));
  EXPECT_THAT(shell(check + out + " --coverage | tail -n 1").out, HasSubstr("</html>"));
  const Finished full = shell(check + link("full", "/dev/full"));
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.err, HasSubstr("cannot write: no space left on the device"));
  mkfifo(real("pipe").c_str(), 0600);
  const Finished unread = shell(check + link("pipe", real("pipe")));
  EXPECT_EQ(unread.status, 1);
  EXPECT_THAT(unread.err, HasSubstr("no program reads from it; start the reader first"));
  expect_clean();
}

// What could not be printed is no success, and says why.
TEST_F(Outputs, AStandardOutputThatTakesNothingIsAnError) {
  const std::string codes = ktx_compile() + " --explain-code all";
  const std::string check = ktx_compile() + " --check --coverage " + model_gguf("deepseek3");
  const std::string generate = ktx_run() + " generate " + plan() + " --prompt hi -n 64 --temp 0";
  const std::string inspect = ktx_run() + " inspect " + plan();
  const std::string bench = ktx_run() + " bench " + plan() + " -p 8 -n 2 -r 1";
  for (const std::string& command :
       {codes, check, generate, generate + " --json", inspect, inspect + " --json", bench,
        ktx_compile() + " --help", ktx_run() + " --help"}) {
    const Finished full = shell(command + " > /dev/full");
    EXPECT_EQ(full.status, 1) << command;
    EXPECT_THAT(full.err, HasSubstr("error: cannot write to standard output: no space left on"))
        << command;
    const Finished closed = shell(command + " >&-");
    EXPECT_EQ(closed.status, 1) << command;
    EXPECT_THAT(closed.err, HasSubstr("standard output: it is not open for writing")) << command;
  }
  // A pipe whose reader has ended for certain.
  mkfifo(real("ended").c_str(), 0600);
  const std::string ended_pipe =
      "(: < " + real("ended") + ") & exec 3> " + real("ended") + "; wait $!; ";
  for (const std::string& command : {check, generate, inspect}) {
    const Finished ended = shell(ended_pipe + command + " >&3");
    EXPECT_EQ(ended.status, 1) << command;
    EXPECT_THAT(ended.err, HasSubstr("the program that reads it has ended")) << command;
  }
}

// The first file that a program opens would be its closed standard output.
TEST_F(Outputs, APlanMadeWithClosedStandardFilesIsWhole) {
  const std::string path = real("p");
  const std::string compile = ktx_compile() + " " + model_gguf("llama") + " -o " + path;
  EXPECT_EQ(shell(compile + " <&- >&- 2>&-").status, 0);
  const Finished verified = run_program({ktx_run(), "inspect", path, "--verify"});
  EXPECT_EQ(verified.status, 0) << verified.err;
}

// A standard error that is full ends a program with a status, never with a signal.
TEST_F(Outputs, AFullStandardErrorIsNoCrash) {
  const std::pair<std::string, int> commands[] = {
      {ktx_compile() + " none.gguf -o x", 1},        {ktx_compile() + " --check none.yaml", 2},
      {ktx_compile() + " --no-such-option", 2},      {ktx_run() + " inspect none", 1},
      {ktx_run() + " generate none --prompt hi", 1}, {ktx_run() + " inspect", 2},
  };
  for (const auto& [command, status] : commands) {
    for (const char* closed : {" 2>/dev/full", " 2>&-"}) {
      EXPECT_EQ(shell(command + closed).status, status) << command << closed;
    }
  }
}

TEST_F(Outputs, LogsOfAServerAreWrittenInPlace) {
  const std::string model = real("model");
  std::ofstream(model) << "GGUF";
  for (const char* option : {"--access-log", "--profile"}) {
    const Finished run = run_program({ktx_run(), "serve", plan(), "--port", "0", option, model});
    EXPECT_EQ(run.status, 1);
    EXPECT_THAT(run.err, HasSubstr("there is a file of this name that begins with 'G'"));
  }
  const std::string log = link("log", real("log"));
  const std::string profile = link("profile", "/dev/full");
  const Finished run = shell(
      ktx_run() + " serve " + plan() + " --port 0 -t 1 --access-log " + log + " --profile " +
      profile + " 2>" + dir_.path("err") +
      " & pid=$!; for i in $(seq 300); do sleep 0.1; grep -q "
      "'is ready' " +
      dir_.path("err") + " && break; done; url=$(sed -n 's/listening on //p' " + dir_.path("err") +
      "); curl -s $url/v1/completions -d '{\"prompt\": \"hi\", \"max_tokens\": "
      "2}' >/dev/null; kill -TERM $pid; wait $pid");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(read_file(dir_.path("err")),
              ContainsRegex("links/profile: [0-9]+ lines are missing: no space left on"));
  EXPECT_THAT(read_file(real("log")), HasSubstr("/v1/completions"));
  expect_clean();
}

// Types lines into a chat at a terminal whose home is `home`, and ends it.
int chat_at_terminal(const std::string& plan, const std::string& home) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    setenv("HOME", home.c_str(), 1);
    execl(ktx_run().c_str(), "ktx-run", "chat", plan.c_str(), nullptr);
    _exit(127);
  }
  std::string shown;
  char buffer[4096];
  size_t behind = 0;  // what was waited for last
  const auto read_until = [&](std::string_view text) {
    while (shown.find(text, behind) == std::string::npos) {
      const ssize_t n = read(terminal, buffer, sizeof buffer);
      if (n <= 0) return;
      shown.append(buffer, static_cast<size_t>(n));
    }
    behind = shown.find(text, behind) + text.size();
  };
  read_until("> ");
  (void)!write(terminal, "/stats\n", 7);
  read_until("context: ");
  read_until("\x1b[J> ");  // Ctrl-D counts at the prompt
  (void)!write(terminal, "\x04", 1);
  while (read(terminal, buffer, sizeof buffer) > 0) {
  }
  int status = 0;
  waitpid(child, &status, 0);
  close(terminal);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(Outputs, TheHistoryGoesWhereItsLinkPointsAndNowhereElse) {
  const auto home = [&](const std::string& name, const std::string& target) {
    fs::create_directories(dir_.path(name));
    fs::create_symlink(target, dir_.path(name + "/.ktx_history"));
    return dir_.path(name);
  };
  EXPECT_EQ(chat_at_terminal(plan(), home("linked", real("history"))), 0);
  EXPECT_THAT(read_file(real("history")), HasSubstr("/stats"));
  EXPECT_EQ(fs::status(real("history")).permissions(), fs::perms(0600));
  EXPECT_TRUE(fs::is_symlink(dir_.path("linked/.ktx_history")));

  // A link to /dev/null is how people keep none. The pipe stands for the device here: its
  // permissions are the test's to lose.
  mkfifo(real("pipe").c_str(), 0600);
  fs::permissions(real("pipe"), fs::perms(0666));
  EXPECT_EQ(chat_at_terminal(plan(), home("piped", real("pipe"))), 0);
  EXPECT_TRUE(fs::is_fifo(real("pipe")));
  EXPECT_EQ(fs::status(real("pipe")).permissions(), fs::perms(0666));
}

}  // namespace
}  // namespace ktx::testing
