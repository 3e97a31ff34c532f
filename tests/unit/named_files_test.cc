// Files of the project that comments and documents name exist: a file that moves takes its name in
// them along. Results in bench/ are dated and keep the names of their day.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "tests/support/paths.h"

namespace ktx {
namespace {

namespace fs = std::filesystem;

// Files of others, and names that stand for any file.
const std::set<std::string> kOthers = {"common.h", "cublas_api.h", "landlock.h", "x.cc",
                                       "x_test.cc"};

// Calls visit(path) for each regular file of the project's folders.
template <class Visit>
void visit_files(const Visit& visit) {
  for (const char* top : {"lib", "kernels", "tools", "include", "tests", "docs"}) {
    for (const auto& entry : fs::recursive_directory_iterator(source_dir() + "/" + top)) {
      if (entry.is_regular_file()) visit(entry.path());
    }
  }
}

// The part of a line that people read: all of a document's, the comment of a source's.
std::string text_of(const fs::path& path, const std::string& line) {
  if (path.extension() == ".md") return line;
  const size_t comment = line.find("//");
  return comment == std::string::npos ? "" : line.substr(comment);
}

TEST(NamedFiles, Exist) {
  std::set<std::string> names = kOthers;
  visit_files([&](const fs::path& path) { names.insert(path.filename()); });
  const std::set<std::string> read = {".h", ".cc", ".cu", ".cuh", ".def", ".md"};
  const std::regex file(R"((^|[^\w./*<{-])([\w-]+/)*([a-z][a-z0-9_]*\.(h|cc|cu|cuh|def))\b)");
  int found = 0;
  visit_files([&](const fs::path& path) {
    if (!read.contains(path.extension())) return;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
      const std::string text = text_of(path, line);
      if (text.find('.') == std::string::npos) continue;
      for (std::sregex_iterator it(text.begin(), text.end(), file), end; it != end; ++it) {
        ++found;
        EXPECT_TRUE(names.contains((*it)[3])) << path << ": no file " << (*it)[3] << ": " << line;
      }
    }
  });
  EXPECT_GT(found, 500);
}

}  // namespace
}  // namespace ktx
