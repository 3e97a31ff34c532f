// Benchmarks of norms, rope and the router.
#include "kernels/cuda/experts/cuda_experts.h"
#include "kernels/cuda/rows/cuda_rows.h"
#include "tests/bench/cuda/cuda_bench.h"

namespace ktx::bench {

using namespace kernels;

void bench_rows() {
  const int64_t width = 4096;
  const Memory x(64 * width * 4), w(width * 4), position(256), freq(256);
  check(cudaMemset(position.as<void>(), 0, 256), "memset");
  for (int64_t tokens : {1, 64}) {
    CudaRmsNormArgs norm;
    norm.x = norm.y = x.as<float>();
    norm.x_stride = norm.y_stride = norm.width = width;
    norm.weight = w.as<float>();
    norm.tokens = tokens;
    report("rms_norm 4096 tokens " + std::to_string(tokens),
           seconds_of(40, [&](int, cudaStream_t s) { check(launch_rms_norm(norm, s)); }),
           8.0 * tokens * width);
    norm.attrs.groups = 32;
    report("rms_norm 32 heads of 128 tokens " + std::to_string(tokens),
           seconds_of(40, [&](int, cudaStream_t s) { check(launch_rms_norm(norm, s)); }),
           8.0 * tokens * width);
    CudaRopeArgs rope;
    rope.x = rope.y = x.as<float>();
    rope.x_stride = rope.y_stride = width;
    rope.inv_freq = freq.as<float>();
    rope.position[0] = position.as<int32_t>();
    rope.tokens = tokens;
    rope.attrs.heads = 32;
    rope.attrs.head_dim = rope.attrs.y_head_dim = rope.attrs.rotary_dim = 128;
    report("rope 32 heads of 128 tokens " + std::to_string(tokens),
           seconds_of(40, [&](int, cudaStream_t s) { check(launch_rope(rope, s)); }),
           8.0 * tokens * width);
    CudaRouterArgs router;
    const Memory ids(64 * 8 * 4), weights(64 * 8 * 4);
    router.logits = x.as<float>();
    router.logits_stride = 128;
    router.attrs.experts = 128;
    router.attrs.top_k = 8;
    router.tokens = tokens;
    router.ids = ids.as<int32_t>();
    router.weights = weights.as<float>();
    report("router 128 experts top 8 tokens " + std::to_string(tokens),
           seconds_of(40, [&](int, cudaStream_t s) { check(launch_router(router, s)); }),
           512.0 * tokens);
  }
}

}  // namespace ktx::bench
