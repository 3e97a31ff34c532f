#include "tests/bench/cuda/cuda_bench.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "kernels/matmul/marlin_layout.h"
#include "lib/formats/layout.h"

namespace ktx::bench {

using namespace kernels;

namespace {

double read_rate = 0;  // bytes a second

__global__ void read_all(const uint4* p, int64_t count, uint32_t* out) {
  uint32_t v = 0;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step) {
    const uint4 a = p[i], b = p[i + step], c = p[i + 2 * step], d = p[i + 3 * step];
    v ^= a.x ^ b.y ^ c.z ^ d.w;
  }
  if (v == 0x12345678) *out = v;
}

}  // namespace

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "bench-kernels: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
void check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "bench-kernels: %s\n", status.error().message.c_str());
  std::exit(1);
}

Memory::Memory(int64_t bytes) {
  check(cudaMalloc(&data_, static_cast<size_t>(bytes) + 256), "memory");
  static const std::vector<uint8_t> noise = [] {
    std::vector<uint8_t> out(16 << 20);
    std::mt19937 engine(1);
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(engine() % 0x3c);
    return out;
  }();
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(noise.size())) {
    const auto part =
        static_cast<size_t>(std::min<int64_t>(bytes - at, static_cast<int64_t>(noise.size())));
    check(cudaMemcpy(static_cast<uint8_t*>(data_) + at, noise.data(), part, cudaMemcpyHostToDevice),
          "copy");
  }
}
Memory::~Memory() {
  cudaFree(data_);
}

double seconds_of(int count, const std::function<void(int, cudaStream_t)>& call) {
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "stream");
  call(0, stream);
  check(cudaStreamSynchronize(stream), "first run");
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < count; ++i) call(i, stream);
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "graph");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int round = 0; round < 7; ++round) {
    check(cudaEventRecord(begin, stream), "event");
    check(cudaGraphLaunch(exec, stream), "graph launch");
    check(cudaEventRecord(end, stream), "event");
    check(cudaStreamSynchronize(stream), "run");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "time");
    times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  return times[times.size() / 2] / 1e3 / count;
}

void report(const std::string& what, double seconds, double bytes, double operations) {
  std::printf("%-58s %9.2f us %7.0f GB/s %5.2f of read", what.c_str(), seconds * 1e6,
              bytes / seconds / 1e9, bytes / seconds / read_rate);
  if (operations > 0) std::printf(" %7.1f TFLOP/s", operations / seconds / 1e12);
  std::printf("\n");
  std::fflush(stdout);
}

void measure_read() {
  const int64_t bytes = int64_t{2} << 30;
  const Memory memory(bytes), out(4);
  const double seconds = seconds_of(4, [&](int, cudaStream_t stream) {
    read_all<<<132 * 16, 512, 0, stream>>>(memory.as<uint4>(), bytes / 16, out.as<uint32_t>());
  });
  read_rate = static_cast<double>(bytes) / seconds;
  std::printf("plain read: %.0f GB/s\n", read_rate / 1e9);
}

Rotating::Rotating(DType dtype, int64_t rows, int64_t cols, int64_t matrices) {
  weight.dtype = dtype;
  weight.layout = marlin_takes(dtype) ? Layout::Marlin : Layout::Rows;
  weight.rows = rows;
  weight.cols = cols;
  weight.matrix_bytes =
      marlin_takes(dtype) ? marlin_matrix_bytes(dtype, rows, cols) : rows * *row_bytes(dtype, cols);
  bytes = weight.matrix_bytes * matrices;
  copies = std::max<int64_t>(1, (int64_t{400} << 20) / bytes);
  memory = std::make_unique<Memory>(bytes * copies);
}
CudaWeight Rotating::at(int64_t i) const {
  CudaWeight w = weight;
  w.data = memory->as<std::byte>() + i % copies * bytes;
  return w;
}

}  // namespace ktx::bench
