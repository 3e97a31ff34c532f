#include "lib/runtime/hosts/open_mpi.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

namespace ktx::runtime {
namespace {

namespace fs = std::filesystem;

// Where the library may be, by the place of the program.
std::vector<fs::path> library_places() {
  std::error_code none;
  const fs::path folder = fs::read_symlink("/proc/self/exe", none).parent_path();
  return {folder / "ktx-mpi.so", folder / ".." / "lib" / "ktx" / "ktx-mpi.so"};
}

}  // namespace

Result<std::unique_ptr<Network>> open_mpi(const RanksMissing& missing) {
  std::error_code none;
  for (const fs::path& place : library_places()) {
    if (!fs::exists(place, none)) continue;
    // Parts of MPI that it opens itself look for its names among those of all libraries.
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      return Error{
          fmt::format("{}: {}; install the MPI that it was built with (libopenmpi3, "
                      "openmpi-bin)",
                      place.string(), dlerror())};
    }
    const auto build = reinterpret_cast<decltype(&ktx_mpi_build)>(dlsym(library, "ktx_mpi_build"));
    const auto open = reinterpret_cast<decltype(&ktx_mpi_open)>(dlsym(library, "ktx_mpi_open"));
    if (build == nullptr || open == nullptr || std::string_view(build()) != KTX_VERSION) {
      return Error{fmt::format("{} is of another version than this ktx-run; install both together",
                               place.string())};
    }
    std::string error;
    std::unique_ptr<Network> network(open(&missing, &error));
    if (network == nullptr) return Error{fmt::format("{}: {}", place.string(), error)};
    return network;
  }
  return Error{
      "this ktx-run was built without MPI, which plans for several hosts need; install libopenmpi-dev "
      "and openmpi-bin (or those of MPICH) and build ktx again"};
}

}  // namespace ktx::runtime
