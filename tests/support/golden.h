// Compares text with a golden file of the repository.
//
//   expect_golden("ir/llama.ktxir", print(graph));
//
// KTX_UPDATE_GOLDEN=1 in the environment writes the file instead; look at the
// difference before committing it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/paths.h"

namespace ktx::testing {

inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(source_dir() + "/tests/golden/") + name;
  if (std::getenv("KTX_UPDATE_GOLDEN") != nullptr) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  std::ifstream in(path, std::ios::binary);
  ASSERT_TRUE(in) << "no golden file " << path;
  std::stringstream golden;
  golden << in.rdbuf();
  if (golden.str() == text) return;
  std::istringstream a(golden.str()), b(text);
  std::string expected, found;
  for (int line = 1;; ++line) {
    const bool more_a = static_cast<bool>(std::getline(a, expected));
    const bool more_b = static_cast<bool>(std::getline(b, found));
    if (!more_a && !more_b) break;
    if (!more_a) expected = "(end)";
    if (!more_b) found = "(end)";
    if (expected == found) continue;
    FAIL() << path << ":" << line << ": golden and text differ\n  golden: " << expected
           << "\n  text:   " << found << "\n(KTX_UPDATE_GOLDEN=1 rewrites the golden)";
  }
}

}  // namespace ktx::testing
