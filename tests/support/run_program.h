// Runs a program as a user would and keeps what it printed.
//
//   Finished run = run_program({ktx_run(), "generate", plan, "--prompt", "Hi"});
//   EXPECT_EQ(run.status, 0) << run.err;
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/temp_dir.h"

namespace ktx::testing {

struct Finished {
  int status = -1;  // exit status; 128 + signal when a signal ended it
  std::string out;
  std::string err;
};

// `input` is the program's standard input; `environment` adds NAME=VALUE.
inline Finished run_program(const std::vector<std::string>& args, const std::string& input = "",
                            const std::vector<std::string>& environment = {}) {
  const TempDir dir;
  dir.write("in", input);
  const pid_t child = fork();
  if (child == 0) {
    const auto redirect = [&](const std::string& name, int flags, int target) {
      const int fd = open(dir.path(name).c_str(), flags, 0600);
      dup2(fd, target);
    };
    redirect("in", O_RDONLY, STDIN_FILENO);
    redirect("out", O_WRONLY | O_CREAT, STDOUT_FILENO);
    redirect("err", O_WRONLY | O_CREAT, STDERR_FILENO);
    for (const std::string& item : environment) putenv(strdup(item.c_str()));
    std::vector<char*> argv;
    for (const std::string& arg : args) argv.push_back(strdup(arg.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  int wait_status = 0;
  waitpid(child, &wait_status, 0);
  Finished run;
  run.status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
  run.out = read_file(dir.path("out"));
  run.err = read_file(dir.path("err"));
  return run;
}

inline std::string ktx_compile() {
  return binary_dir() + "/ktx-compile";
}
inline std::string ktx_run() {
  return binary_dir() + "/ktx-run";
}

// A test model: its folder, or its Q4_K_M GGUF.
inline std::string model_dir(const std::string& name) {
  const std::string bundled = source_dir() + "/tests/models/" + name;
  const std::string shared = shared_dir() + "/models/" + name;
  return std::filesystem::exists(bundled) || !std::filesystem::exists(shared) ? bundled : shared;
}
inline std::string model_gguf(const std::string& name) {
  return model_dir(name) + "/" + name + "-q4_k_m.gguf";
}

}  // namespace ktx::testing
