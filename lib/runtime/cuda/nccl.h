// NCCL, opened at run time: the part that links of two GPUs need. Machines without it have none.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include "lib/support/result.h"

namespace ktx::runtime {

// As nccl.h has them, from 2.14 on; a library that is newer reads the older configuration.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21700;  // whose fields these are
  int blocking = 0;
  int cga_cluster_size = INT32_MIN;  // as it likes
  int min_blocks = 1;
  int max_blocks = 4;  // a message waits in as many blocks until the other end takes it
  const char* network = nullptr;
};
struct NcclId {
  char bytes[128];
};
using NcclComm = void*;  // ncclComm_t

struct Nccl {
  static constexpr int kSuccess = 0, kInProgress = 7, kBytes = 0;  // ncclResult_t, ncclInt8

  int (*get_unique_id)(NcclId*) = nullptr;
  int (*comm_init)(NcclComm*, int ranks, NcclId, int rank, NcclConfig*) = nullptr;
  int (*send)(const void*, size_t, int type, int peer, NcclComm, cudaStream_t) = nullptr;
  int (*receive)(void*, size_t, int type, int peer, NcclComm, cudaStream_t) = nullptr;
  int (*async_error)(NcclComm, int*) = nullptr;
  int (*abort)(NcclComm) = nullptr;
  const char* (*error_text)(int) = nullptr;
  const char* (*last_error)(NcclComm) = nullptr;

  // "making a link: NCCL says: ..."
  Error error(int code, const std::string& what) const;
};

// Opened once; an error where there is no libnccl.so.2, or one older than 2.18.
Result<const Nccl*> open_nccl();

}  // namespace ktx::runtime
