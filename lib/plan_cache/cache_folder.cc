#include "lib/plan_cache/cache_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "lib/support/env.h"

namespace ktx::plan_cache {

Result<std::string> cache_folder() {
  if (const auto own = env("KTX_CACHE")) return *own;
  const auto base = env("XDG_CACHE_HOME");
  if (base && base->front() == '/') return *base + "/ktx";
  if (const auto home = env("HOME")) return *home + "/.cache/ktx";
  return Error{fmt::format("no folder for compiled plans: HOME is not set; {}", kOtherCache)};
}

Status make_private_folder(const std::string& path) {
  const std::filesystem::path above = std::filesystem::path(path).parent_path();
  std::error_code failed;
  if (!above.empty()) std::filesystem::create_directories(above, failed);
  if (!failed && mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    failed = std::error_code(errno, std::generic_category());
  }
  if (failed) {
    return Error{fmt::format("{}: cannot make the folder of compiled plans: {}; {}", path,
                             failed.message(), kOtherCache)};
  }
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return Error{fmt::format("{}: a file stands where the folder of compiled plans belongs; {}",
                             path, kOtherCache)};
  }
  if (info.st_uid != geteuid()) {
    return Error{fmt::format(
        "{}: the folder of compiled plans belongs to another user, who could replace them; {}",
        path, kOtherCache)};
  }
  if ((info.st_mode & 022) != 0) {
    return Error{
        fmt::format("{}: other users may write to the folder of compiled plans and replace them; "
                    "chmod 700 it, or {}",
                    path, kOtherCache)};
  }
  return {};
}

}  // namespace ktx::plan_cache
