// The real rule files and configs of the shared folder, checked: for tests.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "lib/arch/build_graph.h"
#include "lib/input/hf_config.h"
#include "lib/passes/pass.h"
#include "lib/support/strings.h"
#include "tests/support/paths.h"

namespace ktx::passes {

struct CheckedFile {
  DiagSink diags;
  input::HfConfig config;
  CompileState state;
};

inline std::string shared_config(const std::string& name) {
  return std::string(shared_dir() + "/configs/") + name + ".json";
}
inline std::string shared_rules(const std::string& name) {
  return std::string(shared_dir() + "/ktransformers-rules/") + name + ".yaml";
}
inline bool shared_is_here() {
  return std::ifstream(shared_rules("Mixtral")).good() &&
         std::ifstream(shared_config("Qwen3-8B")).good();
}

// Builds the graph of a config; `rules` is read by the caller.
inline void build(CheckedFile& file, const std::string& config_path) {
  auto config = input::HfConfig::read(config_path);
  ASSERT_TRUE(config) << config.error().message;
  file.config = config.take();
  auto graph = arch::build_graph(file.config, file.diags);
  ASSERT_TRUE(graph) << graph.error().message;
  file.state.modules = graph.take();
  file.state.config = &file.config;
  file.state.diags = &file.diags;
  file.state.check.only = true;
  file.state.check.has_gguf = false;
}

inline void walk(CheckedFile& file, const std::string& up_to = "check-memory") {
  PassOptions options;
  options.stop_after = up_to;
  options.verify_each = false;
  (void)run_passes(file.state, options);
}

// Lines of "a | b | c" without comments.
inline std::vector<std::vector<std::string>> read_rows(const std::string& path) {
  std::vector<std::vector<std::string>> rows;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string>& row = rows.emplace_back();
    for (std::string_view cell : split(line, '|')) row.emplace_back(trim(cell));
  }
  return rows;
}

}  // namespace ktx::passes
