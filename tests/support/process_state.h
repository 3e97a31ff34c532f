// What a process holds, from /proc: for tests that look for what is left over.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

namespace ktx::testing {

namespace process {

inline std::string file_of(pid_t pid, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline int64_t entries_of(pid_t pid, const std::string& folder) {
  std::error_code gone;
  std::filesystem::directory_iterator it("/proc/" + std::to_string(pid) + "/" + folder, gone);
  return gone ? 0 : std::distance(begin(it), std::filesystem::directory_iterator());
}

}  // namespace process

// Memory that is there.
inline int64_t rss_bytes_of(pid_t pid) {
  const std::string text = process::file_of(pid, "status");
  const size_t at = text.find("VmRSS:");
  return at == text.npos ? 0 : std::atoll(text.c_str() + at + 6) * 1024;
}

inline int64_t descriptors_of(pid_t pid) {
  return process::entries_of(pid, "fd");
}
inline int64_t threads_of(pid_t pid) {
  return process::entries_of(pid, "task");
}

// Children of all threads, and theirs.
inline std::vector<pid_t> descendants_of(pid_t pid) {
  std::vector<pid_t> found;
  std::error_code gone;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  for (std::filesystem::directory_iterator it(tasks, gone), end; !gone && it != end;
       it.increment(gone)) {
    std::ifstream children(it->path() / "children");
    for (pid_t child = 0; children >> child;) {
      found.push_back(child);
      const std::vector<pid_t> more = descendants_of(child);
      found.insert(found.end(), more.begin(), more.end());
    }
  }
  return found;
}

}  // namespace ktx::testing
