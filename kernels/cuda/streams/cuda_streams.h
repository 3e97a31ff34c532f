// Hyper-connections on a GPU: weights, sums and mixes of residual streams. Equations and arguments,
// with pointers to the GPU's memory: kernels/streams/residual_streams.h, the scalar reference.
// Sums are F32 here, those of weights too.
#pragma once

#include "kernels/cuda/common/cuda_stream.h"
#include "kernels/streams/residual_streams.h"
#include "lib/support/result.h"

namespace ktx::kernels {

Status launch_stream_weights(const StreamWeightsArgs& args, CudaStream stream);
Status launch_altup_weights(const AltUpWeightsArgs& args, CudaStream stream);
Status launch_collapse_streams(const CollapseStreamsArgs& args, CudaStream stream);
Status launch_mix_streams(const MixStreamsArgs& args, CudaStream stream);

}  // namespace ktx::kernels
