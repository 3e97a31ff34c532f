// Speed of the packers of layouts and of unpacking, one thread, in GB of weights a second.
//
//   tools/dev/build release bench_pack
//   build-release/tests/bench_pack --benchmark_filter='marlin/.*'
//
// The matrix is 1024 x 4096: source and result fit no first-level cache, and usually no
// second-level one. Time is CPU time.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "kernels/matmul/marlin_blob.h"
#include "kernels/matmul/marlin_layout.h"
#include "kernels/matmul/panel16.h"
#include "lib/formats/layout_size.h"

namespace ktx::kernels {
namespace {

constexpr int64_t kRows = 1024, kCols = 4096;

std::vector<std::byte> random_bytes(size_t count) {
  std::mt19937 random(1);
  std::vector<std::byte> out(count);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

template <class Blob, class Pack>
void bench(benchmark::State& state, Layout layout, DType dtype, bool back, Pack pack, auto unpack) {
  const Blob blob{dtype, kRows, kCols, 1};
  std::vector<std::byte> source =
      random_bytes(static_cast<size_t>(kRows * *row_bytes(dtype, kCols)));
  std::vector<std::byte> packed(static_cast<size_t>(*matrix_bytes(layout, dtype, kRows, kCols)));
  const std::span<const std::byte> slice(source);
  pack(blob, std::span(&slice, 1), 0, packed);
  for (auto _ : state) {
    if (back) {
      benchmark::DoNotOptimize(unpack(blob, packed, 0, source));
    } else {
      pack(blob, std::span(&slice, 1), 0, packed);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * source.size()));
}

void add(const char* layout, DType dtype, bool back, auto body) {
  const std::string name =
      std::string(layout) + "/" + std::string(ktx::name(dtype)) + (back ? "/back" : "");
  benchmark::RegisterBenchmark(name.c_str(), body);
}

}  // namespace
}  // namespace ktx::kernels

int main(int argc, char** argv) {
  using namespace ktx;
  using namespace ktx::kernels;
  for (const DTypeInfo& row : all_dtypes()) {
    for (const bool back : {false, true}) {
      const DType dtype = row.dtype;
      if (marlin_takes(dtype)) {
        add("marlin", dtype, back, [=](benchmark::State& state) {
          bench<MarlinBlob>(state, Layout::Marlin, dtype, back, pack_marlin_range,
                            unpack_marlin_range);
        });
      }
      if (panel16_form(dtype)) {
        add("panel16", dtype, back, [=](benchmark::State& state) {
          bench<Panel16Blob>(state, Layout::Panel16, dtype, back, pack_panel16_range,
                             unpack_panel16_range);
        });
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
