// Calls of the NVIDIA driver's library (libcuda.so.1), found by name: for measurements that need no
// CUDA library.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include "lib/support/result.h"

namespace ktx::target {

// Null where there is none. Never closed: gpu_driver.cc.
inline void* open_driver() {
  return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

template <class Fn>
bool find_call(void* library, const char* symbol, Fn& out) {
  out = reinterpret_cast<Fn>(dlsym(library, symbol));
  return out != nullptr;
}

inline Status check_call(int code, const char* what) {
  return code == 0 ? Status() : Error{fmt::format("{}: the driver says {}", what, code)};
}

}  // namespace ktx::target
