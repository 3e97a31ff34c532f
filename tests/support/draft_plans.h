// What tests of drafters within plans share: programs that compile, and engines.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "lib/runtime/engine/engine.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ktx::testing {

inline void compile_with(const std::string& gguf, const std::string& plan,
                         const std::vector<std::string>& more) {
  std::vector<std::string> line = {ktx_compile(), "-q", gguf, "-o", plan};
  line.insert(line.end(), more.begin(), more.end());
  const Finished run = run_program(line);
  ASSERT_EQ(run.status, 0) << run.err;
}

// By one of the repository's rule files, with a GPU to place on.
inline std::vector<std::string> placed(const char* rules) {
  return {source_dir() + "/rules/" + rules, "--prefer=stream-experts=no",
          "--target=" + source_dir() + "/targets/h200.yaml"};
}

inline std::unique_ptr<runtime::Engine> open_engine(const std::string& plan,
                                                    runtime::EngineOptions options) {
  options.threads = 2;
  auto engine = runtime::Engine::open(plan, options);
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return engine.ok() ? engine.take() : nullptr;
}

}  // namespace ktx::testing
