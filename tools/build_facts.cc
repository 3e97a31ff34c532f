#include "tools/build_facts.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>

#include <algorithm>
#include <string>
#include <vector>

#include "build_commit.h"  // KTX_COMMIT, made by cmake/build_commit.cmake
#include "lib/support/strings.h"
#include "lib/target/isa.h"

namespace ktx::tools {
namespace {

#ifdef __clang__
constexpr std::string_view kCompiler = "clang " __clang_version__;
#else
constexpr std::string_view kCompiler = "g++ " __VERSION__;
#endif

}  // namespace

std::string gpu_generations() {
  const std::string_view list = KTX_GPU_GENERATIONS;  // "75;80;90"
  std::string out;
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(';', at), list.size());
    const std::string_view one = list.substr(at, end - at);
    const size_t whole = one.empty() ? 0 : one.size() - 1;
    out += fmt::format("{}{}.{}", out.empty() ? "" : " ", one.substr(0, whole), one.substr(whole));
    at = end + 1;
  }
  return out;
}

int cuda_version() {
  return KTX_CUDA_MAJOR * 1000;
}

std::string_view build_commit() {
  return KTX_COMMIT;
}

std::string version_text(std::string_view program) {
  const std::string gpus = gpu_generations();
  std::vector<std::string> isas;
  for (const IsaInfo& row : all_isas()) {
    if (is_of_this_kind(row.kind)) isas.emplace_back(row.name);
  }
  return fmt::format(
      "{} {}\ncommit    {}\ncompiler  {}, {}\nkernels   {}; GPUs: {}\nC library glibc {} here\n",
      program, KTX_VERSION, KTX_COMMIT, kCompiler, KTX_BUILD_TYPE, join(isas, " "),
      gpus.empty() ? "none in this build" : fmt::format("{} (CUDA {})", gpus, KTX_CUDA_MAJOR),
      gnu_get_libc_version());
}

}  // namespace ktx::tools
