// bench-kernels: the GPU kernels at real shapes, beside the memory bandwidth.
//
//   bench-kernels            all groups but those that are named alone
//   bench-kernels decode     one of them
//   bench-kernels product Q4_K 8192 8192 16    one product: format, rows, columns, tokens
//
// Every line is the time of one launch inside a CUDA graph of many, over copies of the
// weights that together are larger than the caches. GB/s counts the bytes of the weights
// (attention: of the cache); `of read` is their share of a plain read of 2 GiB.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "kernels/matmul/marlin_layout.h"
#include "tests/bench/cuda/cuda_bench.h"

namespace ktx::bench {
namespace {

struct Group {
  std::string_view name;
  const char* what;
  void (*run)();
  bool alone = false;  // only when named
};
constexpr Group kGroups[] = {
    {"decode", "products of one token", bench_decode},
    {"batch", "products of 1 to 256 tokens", bench_batch},
    {"prefill", "products of 512 and 2048 tokens", bench_prefill},
    {"experts", "experts of Qwen3-30B's shape, 1 to 2048 tokens", bench_experts},
    {"deepseek", "experts of DeepSeek-V3's shape, one token", bench_deepseek},
    {"attention", "attention and MLA", bench_attention},
    {"latent", "MLA of prompts, absorbed beside expanded", bench_latent},
    {"delta", "the delta rule of prompts, token by token beside chunks", bench_delta},
    {"rows", "norms, rope, router", bench_rows},
    {"library", "products with and without cuBLAS, for cublas_products.def", bench_library, true},
};

int usage() {
  std::fprintf(stderr,
               "usage: bench-kernels [GROUP]\n"
               "       bench-kernels product FORMAT ROWS COLUMNS TOKENS\n\n");
  for (const Group& group : kGroups) {
    std::fprintf(stderr, "  %-10s %s%s\n", group.name.data(), group.what,
                 group.alone ? " (only when named)" : "");
  }
  return 2;
}

int run(int argc, char** argv) {
  const std::string_view only = argc > 1 ? argv[1] : "";
  const bool one_product = only == "product" && argc == 6;
  bool known = only.empty() || one_product;
  for (const Group& group : kGroups) known = known || (only == group.name && argc == 2);
  const auto dtype = one_product ? dtype_from_name(argv[2]) : std::optional<DType>();
  if (!known || (one_product && (!dtype || !kernels::marlin_takes(*dtype)))) return usage();
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "bench-kernels: no GPU here\n");
    return 1;
  }
  measure_read();
  if (one_product) {
    bench_product(*dtype, std::atoll(argv[3]), std::atoll(argv[4]), std::atoll(argv[5]));
    return 0;
  }
  for (const Group& group : kGroups) {
    if (only.empty() ? !group.alone : only == group.name) group.run();
  }
  return 0;
}

}  // namespace
}  // namespace ktx::bench

int main(int argc, char** argv) {
  return ktx::bench::run(argc, argv);
}
