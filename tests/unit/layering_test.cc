// Which folder may include which (docs/architecture.md), and which folder may use which
// third-party library. Reads the sources; a new folder needs a row here.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/paths.h"

namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

// Folder -> folders it may include directly. What those may include, it may too.
const std::map<std::string, Names> kMayInclude = {
    {"lib/support", {}},
    {"lib/formats", {"lib/support"}},
    {"lib/ops", {"lib/formats"}},
    {"lib/target", {"lib/support"}},
    {"lib/text", {"lib/support"}},
    {"lib/ir", {"lib/ops"}},
    {"lib/families", {"lib/ir"}},
    {"lib/input", {"lib/formats", "lib/text", "lib/families"}},
    {"kernels", {"lib/ops", "lib/target"}},
    {"lib/program", {"lib/ops", "kernels"}},
    {"lib/plan", {"lib/ops", "lib/target", "lib/program"}},
    {"lib/trust", {"lib/plan"}},
    {"lib/plan_cache", {"lib/support"}},
    {"lib/arch", {"lib/ir", "lib/input", "lib/families"}},
    {"lib/rules", {"lib/ir", "lib/target", "lib/families"}},
    {"lib/reference", {"lib/ir", "lib/input", "lib/ops"}},
    {"lib/passes",
     {"lib/ir", "lib/arch", "lib/program", "lib/reference", "lib/input", "lib/rules", "lib/target",
      "kernels", "lib/plan", "lib/lora"}},
    {"lib/runtime", {"lib/plan", "kernels", "lib/target"}},
    {"lib/lora", {"lib/input"}},
    {"lib/images", {"lib/plan"}},
    {"lib/vision", {"lib/runtime", "lib/images", "lib/text"}},
    {"lib/server", {"lib/vision", "lib/runtime", "lib/text"}},
    {"lib/c_api", {"lib/runtime", "lib/images", "lib/text"}},
    {"tools/ktx-compile",
     {"lib/passes", "lib/rules", "lib/arch", "lib/input", "lib/lora", "lib/text"}},
    {"tools/ktx-pull", {"lib/plan_cache", "lib/input"}},
    {"tools/ktx-run",
     {"lib/runtime", "lib/server", "lib/lora", "lib/images", "lib/vision", "lib/text", "lib/trust",
      "lib/plan_cache", "lib/plan", "lib/target"}},
};

// Folders of lib/passes: each may include those before it, and the headers of lib/passes itself,
// which include none of them. Passes beside these headers may include all.
const std::vector<std::string> kPassFolders = {"lower", "cost", "placement", "lint"};

// Folders of lib/server (lib/server/README.md): a header of one may include those before it. The
// files of lib/server itself put them together.
const std::vector<std::string> kServerFolders = {
    "http", "filters", "models", "request", "answer", "native", "openai", "ollama", "anthropic"};

// Third-party header prefix -> the only places that may include it.
const std::map<std::string, Names> kKnownOnlyIn = {
    {"yaml-cpp/", {"lib/rules/"}},
    {"pcre2.h", {"lib/support/"}},
    {"xxhash.h", {"lib/support/"}},
    {"utf8proc.h", {"lib/text/"}},
    {"boost/", {"lib/server/http/"}},
    {"openssl/", {"lib/server/", "lib/support/sha256", "lib/trust/"}},
    {"seccomp.h", {"lib/support/sandbox"}},
    {"liburing.h", {"lib/runtime/experts/ring_reader"}},
    {"curl/", {"tools/ktx-pull/"}},
    {"mpi.h", {"lib/runtime/hosts/mpi_network"}},
};

void add_reachable(const std::string& folder, Names& reached) {
  if (!reached.insert(folder).second) return;
  for (const std::string& next : kMayInclude.at(folder)) add_reachable(next, reached);
}

// "lib/plan" for "lib/plan/plan_reader.h", "kernels" for anything below it.
std::string folder_of(const std::string& path) {
  const size_t first = path.find('/');
  const std::string top = path.substr(0, first);
  if (top == "kernels") return top;
  return path.substr(0, path.find('/', first + 1));
}

struct Include {
  std::string file;
  std::string target;
};

std::vector<std::string> source_files() {
  std::vector<std::string> files;
  for (const char* top :
       {"lib", "kernels", "tools/ktx-compile", "tools/ktx-run", "tools/ktx-pull"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(ktx::source_dir()) / top)) {
      const std::string extension = entry.path().extension();
      if (extension == ".h" || extension == ".cc" || extension == ".def" || extension == ".cu" ||
          extension == ".cuh") {
        files.push_back(fs::relative(entry.path(), ktx::source_dir()));
      }
    }
  }
  return files;
}

// The path in `#include "PATH"` or `#include <PATH>`, else "".
std::string included_path(const std::string& line) {
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string::npos || line.compare(begin, 8, "#include") != 0) return "";
  const size_t open = line.find_first_of("<\"", begin);
  const size_t close = open == std::string::npos ? open : line.find_first_of(">\"", open + 1);
  return close == std::string::npos ? "" : line.substr(open + 1, close - open - 1);
}

std::vector<Include> includes() {
  std::vector<Include> found;
  for (const std::string& file : source_files()) {
    std::ifstream in(fs::path(ktx::source_dir()) / file);
    for (std::string line; std::getline(in, line);) {
      const std::string target = included_path(line);
      if (!target.empty()) found.push_back({file, target});
    }
  }
  return found;
}

TEST(Layering, FoldersIncludeOnlyWhatTheTableAllows) {
  for (const Include& include : includes()) {
    const std::string from = folder_of(include.file);
    const std::string to = folder_of(include.target);
    if (include.target.find('/') == std::string::npos || !kMayInclude.count(to)) continue;
    ASSERT_TRUE(kMayInclude.count(from)) << "no row for folder " << from;
    Names allowed;
    add_reachable(from, allowed);
    EXPECT_TRUE(allowed.count(to)) << include.file << " includes " << include.target;
  }
}

std::string text_of(const fs::path& file) {
  std::ifstream in(fs::path(ktx::source_dir()) / file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The last column of docs/architecture.md's table of folders, in its short names: "lib/ir" is "ir".
TEST(Layering, TheMapSaysTheSame) {
  const std::string map = text_of("docs/architecture.md");
  for (const auto& [folder, allowed] : kMayInclude) {
    const size_t begin = map.find("\n| `" + folder + "`");
    ASSERT_NE(begin, std::string::npos) << "docs/architecture.md has no row for " << folder;
    const std::string row = map.substr(begin + 1, map.find('\n', begin + 1) - begin - 1);
    const size_t column = row.rfind('|', row.size() - 2);
    const std::regex name("[a-z_]+");
    Names said;
    for (std::sregex_iterator at(row.begin() + static_cast<ptrdiff_t>(column), row.end(), name),
         end;
         at != end; ++at) {
      said.insert(at->str() == "kernels" ? "kernels" : "lib/" + at->str());
    }
    EXPECT_EQ(said, allowed) << row;
  }
}

TEST(Layering, MapsNameAllFoldersAndOnlyFilesThatExist) {
  std::string files;
  for (const std::string& file : source_files()) files += "/" + file + "\n";
  const std::pair<const char*, const char*> maps[] = {{"lib", "docs/architecture.md"},
                                                      {"kernels", "kernels/README.md"},
                                                      {"lib/server", "lib/server/README.md"},
                                                      {"lib/text", "lib/text/README.md"},
                                                      {"kernels/cuda", "kernels/cuda/README.md"}};
  const std::regex file("`([a-z0-9_/-]+\\.(h|cc|def|cu|cuh))`");
  for (const auto& [house, name] : maps) {
    const std::string map = text_of(name);
    for (const auto& entry : fs::directory_iterator(fs::path(ktx::source_dir()) / house)) {
      const std::string folder = entry.path().filename();
      const bool named = std::regex_search(map, std::regex("[`/]" + folder + "[`/]"));
      EXPECT_TRUE(named || !entry.is_directory()) << name << " does not name " << folder;
    }
    for (std::sregex_iterator at(map.begin(), map.end(), file), end; at != end; ++at) {
      const std::string path = (*at)[1];
      EXPECT_TRUE(files.find("/" + path + "\n") != std::string::npos ||
                  fs::exists(fs::path(ktx::source_dir()) / path))
          << name << " names " << path;
    }
  }
}

// 1 for "lib/passes/lower/lowering.h", 0 for "lib/passes/pass.h", -1 outside of lib/passes.
ptrdiff_t floor_of(const std::string& path, const std::string& house,
                   const std::vector<std::string>& folders) {
  if (!path.starts_with(house + "/")) return -1;
  const std::string folder = fs::path(path).parent_path().filename();
  const auto found = std::ranges::find(folders, folder);
  return found == folders.end() ? 0 : found - folders.begin() + 1;
}

TEST(Layering, FoldersOfPassesIncludeOnlyThoseBefore) {
  for (const Include& include : includes()) {
    const ptrdiff_t floor = floor_of(include.file, "lib/passes", kPassFolders);
    const bool free = floor < 0 || (floor == 0 && include.file.ends_with(".cc"));
    EXPECT_TRUE(free || floor_of(include.target, "lib/passes", kPassFolders) <= floor)
        << include.file << " includes " << include.target;
  }
}

TEST(Layering, HeadersOfServerFoldersIncludeOnlyThoseBefore) {
  size_t checked = 0;
  for (const Include& include : includes()) {
    const ptrdiff_t floor = floor_of(include.file, "lib/server", kServerFolders);
    if (floor <= 0 || !include.file.ends_with(".h")) continue;
    ++checked;
    EXPECT_LE(floor_of(include.target, "lib/server", kServerFolders), floor)
        << include.file << " includes " << include.target;
  }
  EXPECT_GT(checked, 100u) << "too little was read";
}

TEST(Layering, ThirdPartyLibrariesStayWhereTheyBelong) {
  for (const Include& include : includes()) {
    for (const auto& [prefix, places] : kKnownOnlyIn) {
      if (include.target.rfind(prefix, 0) != 0) continue;
      bool allowed = false;
      for (const std::string& place : places) allowed |= include.file.rfind(place, 0) == 0;
      EXPECT_TRUE(allowed) << include.file << " includes " << include.target;
    }
  }
}

// What the tables of a plan file say of steps stands in a Program for all others.
TEST(Layering, RecordsOfStepsStayInThePlan) {
  const std::regex record("\\b(Step|Value|Operand|Buffer|KvSlot|Part|Launch)Record\\b");
  size_t in_plan = 0;
  for (const std::string& file : source_files()) {
    std::ifstream in(fs::path(ktx::source_dir()) / file);
    for (std::string line; std::getline(in, line);) {
      if (line.find("Record") == std::string::npos || !std::regex_search(line, record)) continue;
      if (file.starts_with("lib/plan/")) {
        ++in_plan;
      } else {
        ADD_FAILURE() << file << " names a record: " << line;
      }
    }
  }
  EXPECT_GT(in_plan, 50u) << "too little was read";
}

TEST(Layering, FileNamesAreUniqueButForEachToolsMainAndOptions) {
  std::map<std::string, std::string> seen;
  for (const std::string& file : source_files()) {
    const std::string name = fs::path(file).filename();
    if (name == "main.cc" || name == "options.cc" || name == "options.h") continue;
    const auto [it, added] = seen.emplace(name, file);
    EXPECT_TRUE(added) << file << " and " << it->second;
  }
}

}  // namespace
