// A hub of models on this machine (tests/e2e/hub/fake_hub.py).
//
//   const FakeHub from(folder, {"--slow", "0.01"});
//   run_program(..., "", {"HF_ENDPOINT=" + from.url()});
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/http_client.h"

namespace ktx::testing {

class FakeHub {
 public:
  explicit FakeHub(const std::string& folder, std::vector<std::string> options = {}) {
    const std::string out = dir_.path("port"), log = dir_.write("log", "");
    options.insert(options.begin(),
                   {"python3", source_dir() + "/tests/e2e/hub/fake_hub.py", folder, "--log", log});
    pid_ = fork();
    if (pid_ == 0) {
      dup2(open(out.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
      std::vector<char*> argv;
      for (const std::string& word : options) argv.push_back(strdup(word.c_str()));
      argv.push_back(nullptr);
      execvp(argv[0], argv.data());
      _exit(127);
    }
    await([&] {
      std::error_code missing;
      return std::filesystem::exists(out, missing) && read_file(out).ends_with('\n');
    });
    port_ = std::stoi(read_file(out));
  }
  ~FakeHub() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}", port_); }
  std::vector<nlohmann::json> requests() const {
    std::vector<nlohmann::json> all;
    std::istringstream lines(read_file(dir_.path("log")));
    for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }

 private:
  TempDir dir_;
  pid_t pid_ = -1;
  int port_ = 0;
};

}  // namespace ktx::testing
