#include "lib/runtime/cuda/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace ktx::runtime {
namespace {

constexpr int kOldest = 21800;

Result<Nccl> load() {
  void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);  // never closed
  if (library == nullptr) return Error{fmt::format("NCCL is not there: {}", dlerror())};
  Nccl nccl;
  int (*version)(int*) = nullptr;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  const bool all =
      find(version, "ncclGetVersion") && find(nccl.get_unique_id, "ncclGetUniqueId") &&
      find(nccl.comm_init, "ncclCommInitRankConfig") && find(nccl.send, "ncclSend") &&
      find(nccl.receive, "ncclRecv") && find(nccl.async_error, "ncclCommGetAsyncError") &&
      find(nccl.abort, "ncclCommAbort") && find(nccl.error_text, "ncclGetErrorString") &&
      find(nccl.last_error, "ncclGetLastError");
  int number = 0;
  if (!all || version(&number) != Nccl::kSuccess || number < kOldest) {
    return Error{fmt::format("NCCL {}.{} is too old, 2.18 or newer is needed", number / 10000,
                             number / 100 % 100)};
  }
  return nccl;
}

}  // namespace

Error Nccl::error(int code, const std::string& what) const {
  const char* const more = last_error(nullptr);
  return Error{fmt::format("{}: NCCL says: {}{}{}", what, error_text(code),
                           more && *more ? "; " : "", more ? more : "")};
}

Result<const Nccl*> open_nccl() {
  static const Result<Nccl> nccl = load();
  if (!nccl) return nccl.error();
  return &*nccl;
}

}  // namespace ktx::runtime
