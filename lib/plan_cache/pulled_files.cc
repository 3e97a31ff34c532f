#include "lib/plan_cache/pulled_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <map>

#include "lib/plan_cache/model_files.h"
#include "lib/support/moved_file.h"
#include "lib/support/shard_names.h"
#include "lib/support/write_failure.h"

namespace ktx::plan_cache {
namespace {

constexpr std::array<const char*, 3> kEnds = {"", ".work", kMovingSuffix};

// "a.gguf.work" -> "a.gguf"; "": no model's.
std::string whole_name(const std::string& path) {
  for (const char* end : kEnds) {
    const std::string all = std::string(".gguf") + end;
    if (path.ends_with(all)) return path.substr(0, path.size() - all.size() + 5);
  }
  return "";
}

// The first one of several shards.
std::string first_file(const std::string& path) {
  const auto shard = parse_shard_name(path);
  return shard ? shard_path(*shard, 1) : path;
}

// A process that fetches or moves a file holds its lock.
bool is_locked(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  const bool locked = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return locked;
}

Status remove_file(const std::string& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return Error{fmt::format("{}: cannot remove: {}", path, write_failure(errno))};
}

}  // namespace

std::vector<PulledModel> pulled_models(const std::string& folder) {
  namespace fs = std::filesystem;
  std::map<std::string, PulledModel> models;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const std::string path = at->path().string(), whole = whole_name(path);
    struct stat info = {};
    if (whole.empty() || lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    const std::string first = first_file(whole);
    PulledModel& model = models[first];
    if (model.files.empty()) {
      model.files = files_of_model(first);
      model.name = name_of_model(first);
    }
    model.bytes += static_cast<uint64_t>(info.st_blocks) * 512;
    model.last_use =
        std::max({model.last_use, int64_t{info.st_mtim.tv_sec}, int64_t{info.st_atim.tv_sec}});
  }
  std::vector<PulledModel> all;
  for (auto& [first, model] : models) all.push_back(std::move(model));
  std::ranges::stable_sort(all, std::ranges::greater(), &PulledModel::last_use);
  return all;
}

Result<bool> remove_pulled(const PulledModel& model) {
  for (const std::string& file : model.files) {
    for (const char* end : kEnds) {
      if (is_locked(file + end)) return false;
    }
  }
  for (const std::string& file : model.files) {
    for (const char* end : kEnds) KTX_TRY(remove_file(file + end));
  }
  return true;
}

Result<bool> remove_rest(const std::string& file) {
  const std::string rest = file + kMovingSuffix;
  if (is_locked(rest)) return false;
  KTX_TRY(remove_file(rest));
  return true;
}

}  // namespace ktx::plan_cache
