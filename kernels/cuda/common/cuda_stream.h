// The CUDA stream type by its forward declaration, so that callers of the launchers
// need no CUDA headers: CudaStream is cudaStream_t.
//
// Rules common to all launchers of this folder:
//   * `Status launch_<op>(const Cuda<Op>Args&, CudaStream)`. Pointers are device
//     pointers, strides count elements; counts of tokens and rows are fixed by the
//     launch (a CUDA graph keeps them), what changes from step to step lies in device
//     memory: token ids, positions, sequences, block tables, wanted rows.
//   * No allocation and no synchronisation, so every launcher can be captured. Memory
//     for partial results is the caller's: `workspace` of cuda_<op>_workspace(args)
//     bytes, 256-byte aligned, not shared by launches that may run at once.
//   * A token whose position is negative is padding of a bucket: nothing is stored for
//     it, it is routed to no expert, and its outputs are unspecified but finite for
//     finite inputs.
//   * The error of a launch is the failure to launch; what goes wrong on the device
//     shows at the next synchronisation.
//   * Numerics: accumulation in F32 in an order fixed by the shapes of the launch;
//     no atomics, the same bits at every run.
#pragma once

struct CUstream_st;

namespace ktx::kernels {

using CudaStream = CUstream_st*;

}  // namespace ktx::kernels
