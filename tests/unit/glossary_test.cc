// docs/glossary.md leads a reader to files that exist.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace ktx {
namespace {

TEST(Glossary, EveryFileThatItNamesExists) {
  std::ifstream in(KTX_SOURCE_DIR "/docs/glossary.md");
  std::stringstream stream;
  stream << in.rdbuf();
  const std::string text = stream.str();
  const std::regex file("`((?:lib|kernels|docs|tools)/[a-z0-9_/.-]+)`");
  int n_files = 0;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), file);
       it != std::sregex_iterator(); ++it, ++n_files) {
    const std::string path = (*it)[1];
    EXPECT_TRUE(std::filesystem::exists(KTX_SOURCE_DIR "/" + path)) << path;
  }
  EXPECT_GE(n_files, 50);
}

}  // namespace
}  // namespace ktx
