// Opens the library with MPI (ktx-mpi.so), which is built where an MPI is installed and lies beside
// the program or in ../lib/ktx. Programs that run plans for one machine never do.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/runtime/hosts/network.h"

namespace ktx::runtime {

// Says that processes were ended, or stand still, before MPI had started; mpirun then ends all of
// them, this one too. On one process of the run, from a thread of its own.
using RanksMissing = std::function<void(const std::vector<int>& ranks)>;

// The network of all processes that mpirun, or another launcher, has started with this one; it has
// one rank where none has. Fails with what to install.
Result<std::unique_ptr<Network>> open_mpi(const RanksMissing& missing);

}  // namespace ktx::runtime

// The library's functions.
extern "C" {
const char* ktx_mpi_build();  // must be KTX_VERSION of the program
// Null on failure; `error` has the reason.
ktx::runtime::Network* ktx_mpi_open(const ktx::runtime::RanksMissing* missing, std::string* error);
}
