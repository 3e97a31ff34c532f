// bench-kernels: the GPU kernels at real shapes, beside what the memory gives.
//
//   bench-kernels            all groups
//   bench-kernels decode     one of: decode batch prefill experts deepseek attention latent rows
//   bench-kernels library    products with and without cuBLAS, for library_products.def
//   bench-kernels product Q4_K 8192 8192 16    one product: format, rows, columns, tokens
//
// Every line is the time of one launch inside a CUDA graph of many, over copies of the
// weights that together are larger than the caches. GB/s counts the bytes of the weights
// (attention: of the cache); `of read` is their share of a plain read of 2 GiB.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/cuda_experts.h"
#include "kernels/cuda/cuda_few_tokens.h"
#include "kernels/cuda/cuda_latent.h"
#include "kernels/cuda/cuda_matmul.h"
#include "kernels/cuda/cuda_one_token.h"
#include "kernels/cuda/cuda_rows.h"
#include "kernels/cuda/library_products.h"
#include "kernels/matmul/marlin_layout.h"

using namespace ktx;
using namespace ktx::kernels;

namespace {

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

// Device memory of random bytes that are no NaN as halves or floats.
class Memory {
 public:
  explicit Memory(int64_t bytes) {
    check(cudaMalloc(&data_, static_cast<size_t>(bytes) + 256), "memory");
    static const std::vector<uint8_t> noise = [] {
      std::vector<uint8_t> out(16 << 20);
      std::mt19937 engine(1);
      for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(engine() % 0x3c);
      return out;
    }();
    for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(noise.size())) {
      const auto part = static_cast<size_t>(std::min<int64_t>(bytes - at, static_cast<int64_t>(noise.size())));
      check(cudaMemcpy(static_cast<uint8_t*>(data_) + at, noise.data(), part, cudaMemcpyHostToDevice), "copy");
    }
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  template <class T>
  T* as() const { return static_cast<T*>(data_); }

 private:
  void* data_ = nullptr;
};

double read_rate = 0;  // bytes a second

// Seconds of one call, as a node of a graph of `count`.
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

void report(const std::string& what, double seconds, double bytes, double operations = 0) {
  std::printf("%-58s %9.2f us %7.0f GB/s %5.2f of read", what.c_str(), seconds * 1e6,
              bytes / seconds / 1e9, bytes / seconds / read_rate);
  if (operations > 0) std::printf(" %7.1f TFLOP/s", operations / seconds / 1e12);
  std::printf("\n");
  std::fflush(stdout);
}

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

void measure_read() {
  const int64_t bytes = int64_t{2} << 30;
  const Memory memory(bytes), out(4);
  const double seconds = seconds_of(4, [&](int, cudaStream_t stream) {
    read_all<<<132 * 16, 512, 0, stream>>>(memory.as<uint4>(), bytes / 16, out.as<uint32_t>());
  });
  read_rate = static_cast<double>(bytes) / seconds;
  std::printf("plain read: %.0f GB/s\n", read_rate / 1e9);
}

// Copies of a weight that exceed the caches together.
struct Rotating {
  CudaWeight weight;
  int64_t bytes, copies;
  std::unique_ptr<Memory> memory;
  Rotating(DType dtype, int64_t rows, int64_t cols, int64_t matrices = 1) {
    weight.dtype = dtype;
    weight.layout = marlin_takes(dtype) ? Layout::Marlin : Layout::Rows;
    weight.rows = rows;
    weight.cols = cols;
    weight.matrix_bytes = marlin_takes(dtype) ? marlin_matrix_bytes(dtype, rows, cols)
                                              : rows * *row_bytes(dtype, cols);
    bytes = weight.matrix_bytes * matrices;
    copies = std::max<int64_t>(1, (int64_t{400} << 20) / bytes);
    memory = std::make_unique<Memory>(bytes * copies);
  }
  CudaWeight at(int64_t i) const {
    CudaWeight w = weight;
    w.data = memory->as<std::byte>() + i % copies * bytes;
    return w;
  }
};

// One product of dense activations.
class Product {
 public:
  Product(DType dtype, int64_t rows, int64_t cols, int64_t tokens)
      : w_(dtype, rows, cols), x_(tokens * cols * 4), y_(tokens * rows * 4) {
    args_.w = w_.at(0);
    args_.x = x_.as<float>();
    args_.x_stride = cols;
    args_.tokens = tokens;
    args_.y = y_.as<float>();
    args_.y_stride = rows;
  }
  CudaMatmulArgs& args() { return args_; }
  int64_t bytes() const { return w_.bytes; }
  // Of one launch, in a workspace of so many bytes.
  double seconds(int64_t workspace_bytes, Status (*launch)(const CudaMatmulArgs&, CudaStream)) {
    const Memory workspace(workspace_bytes + 1);
    args_.workspace = workspace.as<std::byte>();
    args_.workspace_bytes = workspace_bytes;
    const int count = static_cast<int>(std::clamp<int64_t>(w_.copies, 4, 40));
    return seconds_of(count, [&](int i, cudaStream_t stream) {
      args_.w = w_.at(i);
      check(launch(args_, stream));
    });
  }

 private:
  Rotating w_;
  Memory x_, y_;
  CudaMatmulArgs args_;
};

void product(DType dtype, int64_t rows, int64_t cols, int64_t tokens) {
  Product product(dtype, rows, cols, tokens);
  const double seconds = product.seconds(cuda_matmul_workspace(product.args()), launch_matmul);
  report("matmul " + std::string(name(dtype)) + " " + std::to_string(rows) + "x" +
             std::to_string(cols) + " tokens " + std::to_string(tokens),
         seconds, static_cast<double>(product.bytes()), 2.0 * rows * cols * tokens);
}

// One product by our kernels and by cuBLAS.
void both_ways(DType dtype, int64_t rows, int64_t cols, int64_t tokens) {
  Product product(dtype, rows, cols, tokens);
  product.args().library = false;
  const double ours = product.seconds(cuda_matmul_workspace(product.args()), launch_matmul);
  const double library = product.seconds(library_product_workspace(tokens, product.args().w),
                                         launch_library_product);
  std::printf("%-6s %6lldx%-6lld tokens %5lld: ours %8.1f us, library %8.1f us, ours / library %.2f\n",
              std::string(name(dtype)).c_str(), static_cast<long long>(rows), static_cast<long long>(cols),
              static_cast<long long>(tokens), ours * 1e6, library * 1e6, ours / library);
  std::fflush(stdout);
}

void dequantize(DType dtype, int64_t rows, int64_t cols) {
  const Rotating w(dtype, rows, cols);
  const Memory out(rows * cols * 2);
  const double seconds = seconds_of(4, [&](int i, cudaStream_t stream) {
    check(launch_dequantize({w.at(i), out.as<uint16_t>()}, stream));
  });
  report("dequantize " + std::string(name(dtype)) + " " + std::to_string(rows) + "x" +
             std::to_string(cols),
         seconds, static_cast<double>(w.bytes) + 2.0 * rows * cols);
}

void gate_up(DType dtype, int64_t rows, int64_t cols, int64_t tokens) {
  const Rotating w(dtype, 2 * rows, cols);
  const Memory x(tokens * cols * 4), y(tokens * rows * 4);
  CudaGateUpArgs args;
  args.gate = w.at(0);
  args.gate.rows = rows;
  args.up = args.gate;
  args.x = x.as<float>();
  args.x_stride = cols;
  args.tokens = tokens;
  args.y = y.as<float>();
  args.y_stride = rows;
  args.workspace_bytes = cuda_gate_up_workspace(args);
  const Memory workspace(args.workspace_bytes + 1);
  args.workspace = workspace.as<std::byte>();
  const int count = static_cast<int>(std::clamp<int64_t>(w.copies, 4, 40));
  const double seconds = seconds_of(count, [&](int i, cudaStream_t stream) {
    args.gate.data = w.at(i).data;
    args.up.data = args.gate.data + w.bytes / 2;
    check(launch_gate_up(args, stream));
  });
  report("gate_up " + std::string(name(dtype)) + " 2x" + std::to_string(rows) + "x" +
             std::to_string(cols) + " tokens " + std::to_string(tokens),
         seconds, static_cast<double>(w.bytes), 4.0 * rows * cols * tokens);
}

// q, k and v of a normed batch.
void few_products(std::vector<DType> types, std::vector<int64_t> rows, int64_t cols, int64_t tokens) {
  std::vector<std::unique_ptr<Rotating>> w;
  std::vector<std::unique_ptr<Memory>> y;
  const Memory x(tokens * cols * 4), norm(cols * 4), workspace(few_tokens_workspace(tokens, cols));
  CudaFewProductsArgs args;
  args.x = {x.as<float>(), cols, tokens, norm.as<float>(), 1e-5f};
  args.workspace = workspace.as<std::byte>();
  args.workspace_bytes = few_tokens_workspace(tokens, cols);
  double bytes = 0, operations = 0;
  for (size_t i = 0; i < types.size(); ++i) {
    w.push_back(std::make_unique<Rotating>(types[i], rows[i], cols));
    y.push_back(std::make_unique<Memory>(tokens * rows[i] * 4));
    args.outputs[args.count++] = {w[i]->at(0), y[i]->as<float>(), rows[i], nullptr, false};
    bytes += static_cast<double>(w[i]->bytes);
    operations += 2.0 * static_cast<double>(rows[i] * cols * tokens);
  }
  const double seconds = seconds_of(30, [&](int i, cudaStream_t stream) {
    for (size_t k = 0; k < w.size(); ++k) args.outputs[k].w = w[k]->at(i);
    check(launch_few_products(args, stream));
  });
  report("norm, q, k, v of " + std::string(name(types[0])) + ", " + std::string(name(types.back())) +
             " tokens " + std::to_string(tokens),
         seconds, bytes, operations);
}

void experts(const char* what, DType gate_type, DType down_type, int32_t count_experts,
             int32_t top_k, int64_t hidden, int64_t width, int64_t tokens) {
  const Rotating gate(gate_type, width, hidden, count_experts), up(gate_type, width, hidden, count_experts);
  const Rotating down(down_type, hidden, width, count_experts);
  const int64_t pairs = tokens * top_k;
  const Memory x(tokens * hidden * 4), h(pairs * width * 4), y(tokens * hidden * 4), weights(pairs * 4);
  // Several choices, so that no launch meets the experts of the one before in the caches.
  constexpr int kSets = 12;
  std::mt19937 engine(2);
  std::vector<int32_t> ids;
  double used = 0;  // experts, on average
  for (int set = 0; set < kSets; ++set) {
    const size_t begin = ids.size();
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<int32_t> chosen;
      while (static_cast<int32_t>(chosen.size()) < top_k) {
        const auto e = static_cast<int32_t>(engine() % static_cast<uint32_t>(count_experts));
        if (std::find(chosen.begin(), chosen.end(), e) == chosen.end()) chosen.push_back(e);
      }
      ids.insert(ids.end(), chosen.begin(), chosen.end());
    }
    std::vector<int32_t> distinct(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.end());
    std::sort(distinct.begin(), distinct.end());
    used += static_cast<double>(std::unique(distinct.begin(), distinct.end()) - distinct.begin()) / kSets;
  }
  const int64_t set_offsets = count_experts + 1;
  const Memory gpu_ids(pairs * kSets * 4), order(pairs * kSets * 4), offsets(set_offsets * kSets * 4);
  check(cudaMemcpy(gpu_ids.as<int32_t>(), ids.data(), ids.size() * 4, cudaMemcpyHostToDevice), "ids");
  CudaGroupExpertsArgs group;
  group.tokens = tokens;
  group.attrs.experts = count_experts;
  group.attrs.top_k = top_k;
  const std::string label = std::string(what) + " tokens " + std::to_string(tokens) + " ";
  report(label + "group_experts", seconds_of(2 * kSets, [&](int i, cudaStream_t s) {
           group.ids = gpu_ids.as<int32_t>() + i % kSets * pairs;
           group.order = order.as<int32_t>() + i % kSets * pairs;
           group.offsets = offsets.as<int32_t>() + i % kSets * set_offsets;
           check(launch_group_experts(group, s));
         }), 0);

  CudaExpertsGateUpArgs first;
  first.gate = gate.at(0);
  first.up = up.at(0);
  first.attrs.experts = count_experts;
  first.attrs.top_k = top_k;
  first.x = x.as<float>();
  first.x_stride = hidden;
  first.tokens = tokens;
  first.h = h.as<float>();
  first.h_stride = width;
  first.workspace_bytes = cuda_experts_gate_up_workspace(first);
  const Memory workspace1(first.workspace_bytes + 1);
  first.workspace = workspace1.as<std::byte>();
  const auto set_of = [&](auto& args, int i) {
    args.order = order.as<int32_t>() + i % kSets * pairs;
    args.offsets = offsets.as<int32_t>() + i % kSets * set_offsets;
  };
  report(label + "gate_up " + std::string(name(gate_type)),
         seconds_of(2 * kSets, [&](int i, cudaStream_t s) {
           set_of(first, i);
           first.gate = gate.at(i);
           first.up = up.at(i);
           check(launch_experts_gate_up(first, s));
         }),
         2.0 * used * gate.weight.matrix_bytes, 4.0 * pairs * hidden * width);
  CudaExpertsDownArgs second;
  second.down = down.at(0);
  second.attrs = first.attrs;
  second.weights = weights.as<float>();
  second.h = first.h;
  second.h_stride = width;
  second.tokens = tokens;
  second.y = y.as<float>();
  second.y_stride = hidden;
  second.workspace_bytes = cuda_experts_down_workspace(second);
  const Memory workspace2(second.workspace_bytes + 1);
  second.workspace = workspace2.as<std::byte>();
  report(label + "down " + std::string(name(down_type)),
         seconds_of(2 * kSets, [&](int i, cudaStream_t s) {
           set_of(second, i);
           second.down = down.at(i);
           check(launch_experts_down(second, s));
         }),
         1.0 * used * down.weight.matrix_bytes, 2.0 * pairs * hidden * width);
}

// One token as decode has it: the choice with gate and up, then down with its sum.
void one_token_experts(const char* what, DType gate_type, DType down_type, int32_t count_experts,
                       int32_t top_k, int32_t groups, int64_t hidden, int64_t width) {
  const Rotating gate(gate_type, width, hidden, count_experts), up(gate_type, width, hidden, count_experts);
  const Rotating down(down_type, hidden, width, count_experts);
  constexpr int kSets = 12;
  std::mt19937 engine(3);
  std::vector<float> scores;
  for (int i = 0; i < kSets * count_experts; ++i) scores.push_back(static_cast<float>(engine() % 4096) / 1024);
  const Memory logits(kSets * count_experts * 4), x(hidden * 4), h(top_k * width * 4), y(hidden * 4);
  const Memory ids(kSets * top_k * 4), weights(kSets * top_k * 4);
  check(cudaMemcpy(logits.as<float>(), scores.data(), scores.size() * 4, cudaMemcpyHostToDevice), "logits");
  CudaOneChoicesArgs first;
  first.router.logits_stride = count_experts;
  first.router.attrs.experts = count_experts;
  first.router.attrs.top_k = top_k;
  first.router.attrs.groups = groups;
  first.router.attrs.groups_used = (groups + 1) / 2;
  first.router.attrs.normalize = 1;
  first.router.tokens = 1;
  first.x = x.as<float>();
  first.h = h.as<float>();
  first.h_stride = width;
  CudaOneSumArgs second;
  second.attrs.experts = count_experts;
  second.attrs.top_k = top_k;
  second.h = first.h;
  second.h_stride = width;
  second.y = y.as<float>();
  const auto run = [&](bool choose, bool sum) {
    return seconds_of(2 * kSets, [&](int i, cudaStream_t s) {
      first.router.logits = logits.as<float>() + i % kSets * count_experts;
      second.ids = first.router.ids = ids.as<int32_t>() + i % kSets * top_k;
      second.weights = first.router.weights = weights.as<float>() + i % kSets * top_k;
      first.gate = gate.at(i);
      first.up = up.at(i);
      second.down = down.at(i);
      if (choose && sum) return check(launch_one_experts(first, second, s));
      check(choose ? launch_one_choices(first, s) : launch_one_sum(second, s));
    });
  };
  const std::string label = std::string(what) + " one token ";
  const double bytes = 2.0 * top_k * gate.weight.matrix_bytes, more = 1.0 * top_k * down.weight.matrix_bytes;
  report(label + "choice, gate, up", run(true, false), bytes);
  report(label + "down, sum", run(false, true), more);
  report(label + "both", run(true, true), bytes + more);
}

// Sequences of equal length in copies of a cache that together exceed the caches of the GPU.
class Cache {
 public:
  static constexpr int64_t kCopies = 8;
  Cache(const KvLayout& layout, int64_t sequences, int64_t tokens_each, int64_t length) {
    view_.layout = layout;
    view_.block_bytes = layout.slot_bytes();
    view_.table_stride = (length + 63) / 64;
    bytes_ = sequences * view_.table_stride * view_.block_bytes;
    std::vector<int32_t> table, sequence, position;
    for (int64_t i = 0; i < sequences * view_.table_stride; ++i) table.push_back(static_cast<int32_t>(i));
    for (int64_t s = 0; s < sequences; ++s) {
      for (int64_t t = 0; t < tokens_each; ++t) {
        sequence.push_back(static_cast<int32_t>(s));
        position.push_back(static_cast<int32_t>(length - tokens_each + t));
      }
    }
    pool_ = std::make_unique<Memory>(bytes_ * kCopies);
    view_.table = numbers(table);
    view_.sequence = numbers(sequence);
    view_.position = numbers(position);
  }
  int64_t bytes() const { return bytes_; }
  CudaKvView at(int64_t i) const {
    CudaKvView view = view_;
    view.pool = pool_->as<std::byte>() + i % kCopies * bytes_;
    return view;
  }

 private:
  const int32_t* numbers(const std::vector<int32_t>& from) {
    numbers_.push_back(std::make_unique<Memory>(static_cast<int64_t>(from.size()) * 4));
    check(cudaMemcpy(numbers_.back()->as<void>(), from.data(), from.size() * 4, cudaMemcpyHostToDevice),
          "numbers");
    return numbers_.back()->as<int32_t>();
  }
  CudaKvView view_;
  int64_t bytes_ = 0;
  std::unique_ptr<Memory> pool_;
  std::vector<std::unique_ptr<Memory>> numbers_;
};

void attention(const char* what, AttentionAttrs attrs, KvType type, int64_t sequences,
               int64_t tokens_each, int64_t length) {
  CudaAttentionArgs args;
  args.attrs = attrs;
  args.attrs.scale = 0.1f;
  const Cache cache({type, 64, attrs.kv_heads, attrs.key_dim, attrs.value_in_key ? 0 : attrs.value_dim},
                    sequences, tokens_each, length);
  args.tokens = sequences * tokens_each;
  const Memory q(args.tokens * attrs.heads * attrs.key_dim * 4),
      y(args.tokens * attrs.heads * attrs.value_dim * 4);
  args.kv = cache.at(0);
  args.q = q.as<float>();
  args.q_stride = attrs.heads * attrs.key_dim;
  args.y = y.as<float>();
  args.y_stride = attrs.heads * attrs.value_dim;
  args.max_positions = length;
  args.one_token_per_sequence = tokens_each == 1;
  args.workspace_bytes = cuda_attention_workspace(args);
  const Memory workspace(args.workspace_bytes + 1);
  args.workspace = workspace.as<std::byte>();
  const double seconds = seconds_of(16, [&](int i, cudaStream_t s) {
    args.kv = cache.at(i);
    check(launch_attention(args, s));
  });
  report(std::string(what) + " sequences " + std::to_string(sequences) + " tokens " +
             std::to_string(tokens_each) + " length " + std::to_string(length),
         seconds, static_cast<double>(cache.bytes()),
         2.0 * args.tokens * attrs.heads * (attrs.key_dim + attrs.value_dim) *
             (length - tokens_each / 2.0));
}

AttentionAttrs gqa(int32_t heads, int32_t kv_heads, int32_t dim) {
  AttentionAttrs a;
  a.heads = heads;
  a.kv_heads = kv_heads;
  a.key_dim = a.value_dim = dim;
  return a;
}
AttentionAttrs mla(int32_t heads) {
  AttentionAttrs a;
  a.heads = heads;
  a.key_dim = 576;
  a.value_dim = 512;
  a.value_in_key = 1;
  return a;
}

// MLA of DeepSeek's shape for `tokens` of one sequence behind `past`, absorbed (two products and
// attention between them) and expanded.
class LatentForms {
 public:
  LatentForms(int32_t heads, int64_t tokens, int64_t past)
      : key_(DType::Q8_0, 512, 128, heads),
        value_(DType::Q4_K, 128, 512, heads),
        cache_({KvType::F16, 64, 1, 576, 0}, 1, tokens, past + tokens),
        q_(tokens * heads * 192 * 4),
        q_latent_(tokens * heads * 576 * 4),
        sums_(tokens * heads * 512 * 4),
        y_(tokens * heads * 128 * 4),
        halves_(tokens * heads * latent_query_halves(128) * 2) {
    absorb_.w = key_.at(0);
    absorb_.attrs = {heads, 0, 0, 512, 192, 576};
    absorb_.x = q_.as<float>();
    absorb_.x_stride = heads * 192;
    absorb_.y = q_latent_.as<float>();
    absorb_.y_stride = heads * 576;
    values_.w = value_.at(0);
    values_.attrs = {heads, 0, 0, 128, 512, 128};
    values_.x = sums_.as<float>();
    values_.x_stride = heads * 512;
    values_.y = y_.as<float>();
    values_.y_stride = heads * 128;
    absorb_.tokens = values_.tokens = attention_.tokens = expanded_.tokens = tokens;
    attention_.attrs = mla(heads);
    attention_.attrs.scale = 0.1f;
    attention_.q = q_latent_.as<float>();
    attention_.q_stride = heads * 576;
    attention_.y = sums_.as<float>();
    attention_.y_stride = heads * 512;
    attention_.max_positions = expanded_.positions = past + tokens;
    attention_.kv = expanded_.kv = cache_.at(0);
    queries_ = {absorb_.x, heads * 192, 192, attention_.q + 512, heads * 576, 576, tokens, heads, 128, 64,
                0.1f, halves_.as<uint16_t>()};
    expanded_.queries = queries_.queries;
    expanded_.y = values_.y;
    expanded_.y_stride = values_.y_stride;
    expanded_.key = absorb_.w;
    expanded_.key_heads = absorb_.attrs;
    expanded_.value = values_.w;
    expanded_.value_heads = values_.attrs;
    expanded_.heads = heads;
    expanded_.head_dim = 128;
    expanded_.latent_dim = 512;
    expanded_.rope_dim = 64;
    const int64_t expanded = latent_expanded_takes(expanded_) ? latent_expanded_workspace(expanded_) : 0;
    bytes_ = std::max(cuda_attention_workspace(attention_), expanded);
    workspace_ = std::make_unique<Memory>(bytes_ + 1);
    attention_.workspace = expanded_.workspace = workspace_->as<std::byte>();
    attention_.workspace_bytes = expanded_.workspace_bytes = bytes_;
  }
  double absorbed() {
    return seconds_of(4, [&](int i, cudaStream_t s) {
      attention_.kv = cache_.at(i);
      check(launch_matmul_heads(absorb_, s));
      check(launch_attention(attention_, s));
      check(launch_matmul_heads(values_, s));
    });
  }
  double expanded() {
    if (!latent_expanded_takes(expanded_)) return NAN;
    return seconds_of(4, [&](int i, cudaStream_t s) {
      expanded_.kv = cache_.at(i);
      check(launch_latent_queries(queries_, s));
      check(launch_latent_expanded(expanded_, s));
    });
  }

 private:
  Rotating key_, value_;
  Cache cache_;
  Memory q_, q_latent_, sums_, y_, halves_;
  CudaMatmulHeadsArgs absorb_, values_;
  CudaAttentionArgs attention_;
  CudaLatentQueriesArgs queries_;
  CudaLatentArgs expanded_;
  int64_t bytes_ = 0;
  std::unique_ptr<Memory> workspace_;
};

void latent(int32_t heads, int64_t tokens, int64_t past) {
  LatentForms forms(heads, tokens, past);
  const double absorbed = forms.absorbed(), expanded = forms.expanded();
  const double seen = tokens * (past + tokens / 2.0) * heads;
  const double operations = seen * 640 + 262144.0 * (past + tokens) * heads;
  std::printf("MLA %3d heads, %4lld tokens behind %5lld: absorbed %8.1f us, expanded %8.1f us (%.0f TFLOP/s), "
              "absorbed / expanded %.2f\n",
              heads, static_cast<long long>(tokens), static_cast<long long>(past), absorbed * 1e6,
              expanded * 1e6, operations / expanded / 1e12, absorbed / expanded);
  std::fflush(stdout);
}

void rows() {
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
           seconds_of(40, [&](int, cudaStream_t s) { check(launch_rms_norm(norm, s)); }), 8.0 * tokens * width);
    norm.attrs.groups = 32;
    report("rms_norm 32 heads of 128 tokens " + std::to_string(tokens),
           seconds_of(40, [&](int, cudaStream_t s) { check(launch_rms_norm(norm, s)); }), 8.0 * tokens * width);
    CudaRopeArgs rope;
    rope.x = rope.y = x.as<float>();
    rope.x_stride = rope.y_stride = width;
    rope.inv_freq = freq.as<float>();
    rope.position = position.as<int32_t>();
    rope.tokens = tokens;
    rope.attrs.heads = 32;
    rope.attrs.head_dim = rope.attrs.y_head_dim = rope.attrs.rotary_dim = 128;
    report("rope 32 heads of 128 tokens " + std::to_string(tokens),
           seconds_of(40, [&](int, cudaStream_t s) { check(launch_rope(rope, s)); }), 8.0 * tokens * width);
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
           seconds_of(40, [&](int, cudaStream_t s) { check(launch_router(router, s)); }), 512.0 * tokens);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "bench-kernels: no GPU here\n");
    return 1;
  }
  const std::string only = argc > 1 ? argv[1] : "";
  const auto wanted = [&](const char* group) { return only.empty() || only == group; };
  measure_read();
  if (only == "product" && argc == 6) {
    for (DType dtype : {DType::Q4_0, DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::Q8_0, DType::IQ4_XS, DType::MXFP4}) {
      if (name(dtype) == std::string(argv[2])) product(dtype, std::atoll(argv[3]), std::atoll(argv[4]), std::atoll(argv[5]));
    }
    return 0;
  }
  if (wanted("decode")) {
    for (DType dtype : {DType::Q4_K, DType::Q6_K, DType::Q8_0, DType::Q5_K, DType::Q5_0, DType::IQ4_XS, DType::MXFP4}) {
      product(dtype, 8192, 8192, 1);
    }
    product(DType::Q4_K, 4096, 4096, 1);
    product(DType::Q4_K, 1024, 4096, 1);
    product(DType::Q6_K, 1024, 4096, 1);
    product(DType::Q4_K, 4096, 14336, 1);
    product(DType::Q6_K, 4096, 14336, 1);
    product(DType::Q6_K, 128256, 4096, 1);
    product(DType::Q4_K, 4096, 2048, 1);
    product(DType::Q4_K, 512, 2048, 1);
    product(DType::Q4_K, 2048, 4096, 1);
    product(DType::F32, 128, 2048, 1);
    gate_up(DType::Q4_K, 14336, 4096, 1);
  }
  if (wanted("batch")) {
    for (int64_t tokens : {1, 2, 4, 8, 16, 17, 32, 64, 128, 256}) product(DType::Q4_K, 8192, 8192, tokens);
    for (DType dtype : {DType::Q5_K, DType::Q6_K, DType::Q8_0}) {
      for (int64_t tokens : {8, 16}) product(dtype, 8192, 8192, tokens);
    }
    for (int64_t tokens : {1, 2, 16}) {
      product(DType::Q4_K, 4096, 4096, tokens);
      product(DType::Q4_K, 1024, 4096, tokens);
      product(DType::Q4_K, 14336, 4096, tokens);
      product(DType::Q4_K, 4096, 14336, tokens);
      product(DType::Q6_K, 4096, 14336, tokens);
    }
    product(DType::Q6_K, 128256, 4096, 16);
    for (int64_t tokens : {2, 16}) {
      few_products({DType::Q4_K, DType::Q4_K, DType::Q4_K}, {4096, 1024, 1024}, 4096, tokens);
      few_products({DType::Q4_K, DType::Q4_K, DType::Q6_K}, {4096, 1024, 1024}, 4096, tokens);
    }
    for (int64_t tokens : {4, 16}) gate_up(DType::Q4_K, 14336, 4096, tokens);
    for (int64_t tokens : {16, 512}) product(DType::F32, 128, 2048, tokens);
  }
  if (wanted("prefill")) {
    for (int64_t tokens : {512, 2048}) {
      product(DType::Q4_K, 4096, 4096, tokens);
      product(DType::Q4_K, 1024, 4096, tokens);
      product(DType::Q4_K, 14336, 4096, tokens);
      gate_up(DType::Q4_K, 14336, 4096, tokens);
      product(DType::Q6_K, 4096, 14336, tokens);
    }
    for (DType dtype : {DType::Q4_K, DType::Q6_K}) dequantize(dtype, 14336, 4096);
  }
  if (only == "library") {
    for (int64_t tokens : {64, 128, 256, 512, 1024, 2048}) {
      for (DType dtype : {DType::Q4_K, DType::Q6_K}) {
        for (int64_t rows : {512, 1024, 2048, 4096, 14336}) both_ways(dtype, rows, 4096, tokens);
        both_ways(dtype, 4096, 14336, tokens);
        both_ways(dtype, 2048, 2048, tokens);
        both_ways(dtype, 5120, 1536, tokens);
      }
      both_ways(DType::Q8_0, 4096, 4096, tokens);
      both_ways(DType::Q8_0, 14336, 4096, tokens);
    }
  }
  if (wanted("experts")) {
    for (int64_t tokens : {1, 4, 16, 64, 512, 2048}) {
      experts("Qwen3-30B", DType::Q4_K, DType::Q6_K, 128, 8, 2048, 768, tokens);
    }
    one_token_experts("Qwen3-30B", DType::Q4_K, DType::Q6_K, 128, 8, 1, 2048, 768);
  }
  if (wanted("experts") || only == "deepseek") {
    experts("DeepSeek-V3", DType::Q4_K, DType::Q4_K, 256, 8, 7168, 2048, 1);
    one_token_experts("DeepSeek-V3", DType::Q4_K, DType::Q4_K, 256, 8, 8, 7168, 2048);
  }
  if (only == "qwen") one_token_experts("Qwen3-30B", DType::Q4_K, DType::Q6_K, 128, 8, 1, 2048, 768);
  if (wanted("attention")) {
    attention("8B F16", gqa(32, 8, 128), KvType::F16, 1, 1, 512);
    attention("8B F16", gqa(32, 8, 128), KvType::F16, 1, 1, 8192);
    attention("8B Q8_0", gqa(32, 8, 128), KvType::Q8_0, 1, 1, 8192);
    attention("8B F16", gqa(32, 8, 128), KvType::F16, 16, 1, 2048);
    attention("8B F16", gqa(32, 8, 128), KvType::F16, 1, 512, 512);
    attention("8B F16", gqa(32, 8, 128), KvType::F16, 1, 2048, 2048);
    attention("30B F16", gqa(32, 4, 128), KvType::F16, 1, 1, 512);
    attention("MLA 128 heads F16", mla(128), KvType::F16, 1, 1, 4096);
    attention("MLA 16 heads F16", mla(16), KvType::F16, 1, 1, 4096);
    attention("MLA 16 heads F16", mla(16), KvType::F16, 1, 512, 512);
    attention("MLA 128 heads F16", mla(128), KvType::F16, 16, 1, 4096);
    attention("MLA 16 heads Q8_0", mla(16), KvType::Q8_0, 1, 1, 4096);
  }
  if (wanted("latent")) {
    for (int32_t heads : {16, 128}) {
      for (int64_t past : {0, 2048, 8192}) latent(heads, 512, past);
      for (int64_t past : {0, 2048, 8192}) {
        for (int64_t tokens : {32, 64, 128, 256}) latent(heads, tokens, past);
      }
    }
    latent(128, 2048, 0);
  }
  if (wanted("rows")) rows();
  return 0;
}
