// The pages for users of other programs: every option in the first column of their tables is one
// that the programs answer with advice (tools/foreign_flags.def), or one of their own.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "tests/support/paths.h"

namespace ktx {
namespace {

std::set<std::string> known_flags() {
  std::set<std::string> names;
#define KTX_FOREIGN_FLAG(tool, flag, advice) names.insert(flag);
#include "tools/foreign_flags.def"
#undef KTX_FOREIGN_FLAG
#define KTX_OPTION(name, value, commands, group, reader, field, help) names.insert(name);
#include "tools/ktx-run/run_options.def"
  return names;
}

// The options of the rows behind "## Options": "`-ctk q8_0`, `-ctv q8_0`" -> ctk ctv.
std::set<std::string> options_of(const std::string& page) {
  std::ifstream in(source_dir() + "/" + page);
  std::set<std::string> names;
  bool table = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("## ")) table = line == "## Options";
    if (!table || !line.starts_with("| `")) continue;
    const std::string cell = line.substr(0, line.find(" | "));
    for (size_t at = 0; (at = cell.find("`-", at)) != cell.npos; ++at) {
      const size_t begin = cell.find_first_not_of('-', at + 1);
      names.insert(cell.substr(begin, cell.find_first_of(" `", begin) - begin));
    }
  }
  return names;
}

TEST(NewcomerDocs, OptionsOfOtherProgramsAreAnswered) {
  const std::set<std::string> known = known_flags();
  for (const char* page : {"docs/from-llama-cpp.md", "docs/from-ktransformers.md"}) {
    const std::set<std::string> options = options_of(page);
    EXPECT_GE(options.size(), 8u) << page;
    for (const std::string& name : options) EXPECT_TRUE(known.count(name)) << page << ": " << name;
  }
}

}  // namespace
}  // namespace ktx
