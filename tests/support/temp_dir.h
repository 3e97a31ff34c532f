// A directory for one test, removed with all that is in it.
//
//   TempDir dir;
//   const std::string path = dir.write("a.gguf", bytes);
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace ktx::testing {

class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "ktx-test-XXXXXX").string();
    path_ = mkdtemp(name.data()) ? name : "";
    EXPECT_FALSE(path_.empty()) << "cannot make a temporary directory " << name;
  }
  ~TempDir() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string path(std::string_view name) const { return path_ + "/" + std::string(name); }
  // Writes a file and returns its path.
  std::string write(std::string_view name, std::string_view bytes) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    // Unlinked first: ext4 flushes a file that is truncated and written again.
    std::filesystem::remove(path(name));
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace ktx::testing
