// docs/glossary.md leads a reader to files that exist.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/paths.h"

namespace ktx {
namespace {

TEST(Glossary, EveryFileThatItNamesExists) {
  std::ifstream in(source_dir() + "/docs/glossary.md");
  std::stringstream stream;
  stream << in.rdbuf();
  const std::string text = stream.str();
  int n_files = 0;
  // What stands between two back quotes and begins with a folder of the repository.
  for (size_t at = 0, end = 0; (at = text.find('`', end)) != text.npos; ++end) {
    end = std::min(text.find('`', at + 1), text.size() - 1);
    const std::string path = text.substr(at + 1, end - at - 1);
    const std::string folder = path.substr(0, path.find('/') + 1);
    if (folder != "lib/" && folder != "kernels/" && folder != "docs/" && folder != "tools/")
      continue;
    ++n_files;
    EXPECT_TRUE(std::filesystem::exists(source_dir() + "/" + path)) << path;
  }
  EXPECT_GE(n_files, 50);
}

}  // namespace
}  // namespace ktx
