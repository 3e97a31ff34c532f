// Plain English: help texts, messages, documents and comments have none of these words, and no
// sentence that begins with "Of", "Who" or "What of". A new word is a row of kAvoided.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "tests/support/paths.h"

namespace ktx {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAvoided[] = {
    "nobody", "whoever", "whomever", "told", "tells", "in the place of", "waits for nothing",
};

// What a text should not say; "" where it is plain.
std::string unplain(const std::string& text) {
  static const std::regex pattern = [] {
    std::string words;
    for (const char* word : kAvoided) words += (words.empty() ? "" : "|") + std::string(word);
    return std::regex("\\b(?:" + words + ")\\b", std::regex::icase);
  }();
  static const std::regex begin("(?:^|[.:;|>] |[*-] )(?:Of|Who|What of) [a-z]");
  std::smatch found;
  const bool any = std::regex_search(text, found, pattern) || std::regex_search(text, found, begin);
  return any ? found.str() : "";
}

// The parts of a line of C++ in quotes, if it is no comment.
std::string quoted(const std::string& line) {
  static const std::regex literal("\"((?:\\\\.|[^\"\\\\])*)\"");
  static const std::regex comment("^\\s*//|^#include");
  if (std::regex_search(line, comment)) return "";
  std::string all;
  for (std::sregex_iterator it(line.begin(), line.end(), literal), end; it != end; ++it) {
    all += (*it)[1].str() + "\n";
  }
  return all;
}

// The comment of a line of C++ or CUDA, or of a table; a // within quotes is none.
std::string commented(const std::string& line) {
  static const std::regex code("^(?:[^\"/]|\"(?:\\\\.|[^\"\\\\])*\"|/(?!/))*//[/ ]*(.*)$");
  std::smatch found;
  return std::regex_search(line, found, code) ? found[1].str() : "";
}

// Reports each line of a file that is not plain. Returns the number of lines.
template <class Part>
int check(const fs::path& path, const Part& part) {
  std::ifstream in(path);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::string what = unplain(part(line));
    EXPECT_EQ(what, "") << path.string() << ":" << number << ": " << line;
  }
  return number;
}

std::string whole(const std::string& line) {
  return line;
}

std::vector<fs::path> files_below(const std::string& folder, const std::string& extensions) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(source_dir() + "/" + folder)) {
    const std::string extension = entry.path().extension().string();
    if (!extension.empty() && extensions.find(extension + " ") != std::string::npos) {
      files.push_back(entry.path());
    }
  }
  return files;
}

TEST(PlainEnglish, WordsAndBeginningsAreFound) {
  EXPECT_EQ(unplain("Nobody reads it."), "Nobody");
  EXPECT_EQ(unplain("the number that the message tells"), "tells");
  EXPECT_EQ(unplain("It is done. Of these, two."), ". Of t");
  EXPECT_EQ(unplain("* Who asks for it waits."), "* Who a");
  EXPECT_EQ(unplain("two of these; who knows: hotels untold"), "");
  EXPECT_EQ(quoted(R"(  fail("nobody", 1);  // "told")"), "nobody\ntold\n");
  EXPECT_EQ(quoted("  // \"nobody\""), "");
  EXPECT_EQ(commented(R"(  fail("a // b");  // Of shards the first.)"), "Of shards the first.");
  EXPECT_EQ(unplain(commented("// Of shards the first.")), "Of s");
}

TEST(PlainEnglish, Documents) {
  int lines = check(source_dir() + "/README.md", whole);
  for (const fs::path& path : files_below("docs", ".md ")) lines += check(path, whole);
  EXPECT_GT(lines, 2000) << "too little was read";
}

// Help texts are quoted in tables, messages in code.
TEST(PlainEnglish, HelpTextsAndMessages) {
  int lines = 0;
  for (const char* folder : {"lib", "tools"}) {
    for (const fs::path& path : files_below(folder, ".cc .h .def ")) lines += check(path, quoted);
  }
  EXPECT_GT(lines, 50'000) << "too little was read";
}

TEST(PlainEnglish, Comments) {
  int lines = 0;
  for (const char* folder : {"include", "kernels", "lib", "tests", "tools"}) {
    for (const fs::path& path : files_below(folder, ".cc .cu .cuh .def .h ")) {
      if (path.filename() != "plain_english_test.cc") lines += check(path, commented);
    }
  }
  EXPECT_GT(lines, 150'000) << "too little was read";
}

}  // namespace
}  // namespace ktx
