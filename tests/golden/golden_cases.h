// Shared by the golden tests: the cases, and ktx-compile run as a user would.
//
//   const Ran ran = run("--check R001.yaml --hf-config ../../configs/Qwen3-8B.json");
//   EXPECT_EQ(ran.status, 1) << ran.output;
#pragma once

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"

namespace ktx::golden {

namespace fs = std::filesystem;

inline const fs::path kCases = source_dir() + "/tests/golden/rules";

inline std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline bool updating() {
  return std::getenv("KTX_UPDATE_GOLDEN") != nullptr;
}

inline void expect_same(const std::string& actual, const fs::path& golden) {
  if (updating()) {
    std::ofstream(golden, std::ios::binary) << actual;
    return;
  }
  EXPECT_EQ(actual, read_file(golden)) << golden << " differs; KTX_UPDATE_GOLDEN=1 rewrites it";
}

struct Ran {
  int status = -1;
  std::string output;
};

// stdout, then stderr, each as the program wrote it.
inline Ran run(const std::string& arguments, const fs::path& folder = kCases) {
  const fs::path err = fs::temp_directory_path() / fmt::format("ktx_golden_{}.err", ::getpid());
  const std::string command = fmt::format("cd '{}' && NO_COLOR=1 '{}/ktx-compile' {} 2>'{}'",
                                          folder.string(), binary_dir(), arguments, err.string());
  Ran ran;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) return ran;
  char buffer[4096];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    ran.output.append(buffer, n);
  }
  const int status = ::pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ran.output += read_file(err);
  fs::remove(err);
  return ran;
}

inline std::vector<fs::path> cases() {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(kCases)) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// The processor's seconds and the memory that a command takes, of it and its children.
struct Cost {
  int status = -1;
  double seconds = 0;
  int64_t kib = 0;
};

inline Cost cost_of(const std::string& command) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  struct rusage usage = {};
  ::wait4(child, &status, 0, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_maxrss};
}

// Which of these files, JSON or YAML, a JSON Schema refuses, a line each; nothing when
// there is no python3 that could tell.
inline std::optional<std::string> refused_by(const std::string& schema,
                                             const std::vector<std::string>& files) {
  if (std::system("python3 -c 'import jsonschema, yaml' 2>/dev/null") != 0) return std::nullopt;
  const fs::path folder = fs::temp_directory_path() / fmt::format("ktx_schema_{}", ::getpid());
  fs::create_directories(folder);
  std::ofstream(folder / "validate.py")
      << "import json, sys, yaml, jsonschema\n"
         "schema = json.load(open(sys.argv[1]))\n"
         "check = jsonschema.validators.validator_for(schema)(schema)\n"
         "for path in sys.argv[2:]:\n"
         "    text = open(path).read()\n"
         "    value = json.loads(text) if path.endswith('.sarif') else yaml.safe_load(text)\n"
         "    if not check.is_valid(value): print(path)\n";
  std::string command = fmt::format("python3 '{}' '{}'", (folder / "validate.py").string(), schema);
  for (const std::string& file : files) command += fmt::format(" '{}'", file);
  const fs::path out = folder / "out";
  const int status = std::system(fmt::format("{} >'{}'", command, out.string()).c_str());
  const std::string refused = status == 0 ? read_file(out) : "the validator failed";
  fs::remove_all(folder);
  return refused;
}

}  // namespace ktx::golden
