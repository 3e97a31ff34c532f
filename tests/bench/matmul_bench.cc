// Speed of the products by dtype, layout and number of tokens, one thread.
//
//   tools/dev/build release bench_matmul
//   build-release/tests/bench_matmul --benchmark_filter='panel16_q8/Q4_K'
//
// bytes_per_second: weights read, for few tokens; compare with the line read_memory. TOPS: two
// operations for each weight and token, for many tokens. The weights cycle through 256 MiB, so
// that they come from memory. Time is CPU time, because other programs disturb wall time.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/kernel_id.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/panel16.h"
#include "tests/bench/bench_inputs.h"

namespace ktx::kernels {
namespace {

constexpr int64_t kWeightBytes = 256 << 20;
constexpr int64_t kCols = 4096, kRows = 128, kMostTokens = 192;

struct Memory {
  std::mt19937 random{1};
  AlignedBytes weights = random_weights(random, kWeightBytes + (4 << 20));
  std::vector<float> x = random_floats(random, kMostTokens* kCols);
  AlignedBytes xq = quantised(x, kCols);
  AlignedBytes scratch = AlignedBytes(matmul_scratch_bytes(kCols));
  std::vector<float> y = std::vector<float>(static_cast<size_t>(kMostTokens * kRows));
};

Memory& memory() {
  static Memory all;
  return all;
}

void product(benchmark::State& state, std::string family, DType dtype) {
  const MatmulKernel run = *find_matmul(family, dtype, detect_isa());
  Memory& m = memory();
  MatmulArgs a;
  a.w = {m.weights.data(),        dtype, *find_kernel_family(family)->layout, kRows, kCols,
         *row_bytes(dtype, kCols)};
  a.x = m.x.data();
  a.x_stride = kCols;
  a.xq = m.xq.data();
  a.xq_stride = act_q8_row_bytes(kCols);
  a.tokens = state.range(0);
  a.y = m.y.data();
  a.y_stride = kRows;
  a.row_end = kRows;
  a.scratch = m.scratch.data();
  const int64_t bytes = kRows * a.w.row_bytes;
  int64_t offset = 0;
  for (auto _ : state) {
    a.w.data = m.weights.data() + offset;
    offset = offset + 2 * bytes > kWeightBytes ? 0 : offset + bytes;
    run(a);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * bytes);
  state.counters["TOPS"] = benchmark::Counter(2e-12 * kRows * kCols * static_cast<double>(a.tokens),
                                              benchmark::Counter::kIsIterationInvariantRate);
}

void read_memory(benchmark::State& state) {
  Memory& m = memory();
  uint64_t sum = 0;
  for (auto _ : state) {
    for (int64_t i = 0; i + 8 <= m.weights.size(); i += 8) {
      uint64_t word;
      std::memcpy(&word, m.weights.data() + i, sizeof word);
      sum ^= word;
    }
    benchmark::DoNotOptimize(sum);
  }
  state.SetBytesProcessed(state.iterations() * m.weights.size());
}

void add_all() {
  benchmark::RegisterBenchmark("read_memory", read_memory);
  for (const DTypeInfo& type : all_dtypes()) {
    for (const char* family : {"matmul_rows_f32", "matmul_rows_bf16", "matmul_rows_q8",
                               "matmul_panel16_f32", "matmul_panel16_bf16", "matmul_panel16_q8"}) {
      // What fast precision uses, or of BF16 both.
      const bool coded = find_kernel_family(family)->input == ValueType::Q8;
      if (coded != matmul_q8_takes(type.dtype)) continue;
      if (type.dtype == DType::I32 || !find_matmul(family, type.dtype, Isa::Scalar)) continue;
      const std::string name = fmt::format("{}/{}", family, type.name);
      auto* bench =
          benchmark::RegisterBenchmark(name.c_str(), product, std::string(family), type.dtype);
      for (int64_t tokens : {1, 2, 4, 6, 8, 12, 16, 32, 128}) bench->Arg(tokens);
    }
  }
}

}  // namespace
}  // namespace ktx::kernels

int main(int argc, char** argv) {
  ktx::kernels::add_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
