// Benchmarks of experts: grouped GEMM, and one token as in decode.
#include <algorithm>
#include <random>
#include <vector>

#include "kernels/cuda/experts/cuda_experts.h"
#include "kernels/cuda/gemv/cuda_fused_gemv.h"
#include "tests/bench/cuda/cuda_bench.h"

namespace ktx::bench {

using namespace kernels;

namespace {

void experts(const char* what, DType gate_type, DType down_type, int32_t count_experts,
             int32_t top_k, int64_t hidden, int64_t width, int64_t tokens, GpuKernel kernel) {
  const Rotating gate(gate_type, width, hidden, count_experts),
      up(gate_type, width, hidden, count_experts);
  const Rotating down(down_type, hidden, width, count_experts);
  const int64_t pairs = tokens * top_k;
  const Memory x(tokens * hidden * 4), h(pairs * width * 4), y(tokens * hidden * 4),
      weights(pairs * 4);
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
    used += static_cast<double>(std::unique(distinct.begin(), distinct.end()) - distinct.begin()) /
            kSets;
  }
  const int64_t set_offsets = count_experts + 1;
  const Memory gpu_ids(pairs * kSets * 4), order(pairs * kSets * 4),
      offsets(set_offsets * kSets * 4);
  check(cudaMemcpy(gpu_ids.as<int32_t>(), ids.data(), ids.size() * 4, cudaMemcpyHostToDevice),
        "ids");
  CudaGroupExpertsArgs group;
  group.tokens = tokens;
  group.attrs.experts = count_experts;
  group.attrs.top_k = top_k;
  const std::string label = std::string(what) + " tokens " + std::to_string(tokens) + " " +
                            std::string(info(kernel).name) + " ";
  report(label + "group_experts",
         seconds_of(2 * kSets,
                    [&](int i, cudaStream_t s) {
                      group.ids = gpu_ids.as<int32_t>() + i % kSets * pairs;
                      group.order = order.as<int32_t>() + i % kSets * pairs;
                      group.offsets = offsets.as<int32_t>() + i % kSets * set_offsets;
                      check(launch_group_experts(group, s));
                    }),
         0);

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
  first.kernel = kernel;
  first.workspace_bytes = cuda_experts_gate_up_workspace(first);
  const Memory workspace1(first.workspace_bytes + 1);
  first.workspace = workspace1.as<std::byte>();
  const auto set_of = [&](auto& args, int i) {
    args.order = order.as<int32_t>() + i % kSets * pairs;
    args.offsets = offsets.as<int32_t>() + i % kSets * set_offsets;
  };
  report(label + "gate_up " + std::string(name(gate_type)),
         seconds_of(2 * kSets,
                    [&](int i, cudaStream_t s) {
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
  second.kernel = kernel;
  second.workspace_bytes = cuda_experts_down_workspace(second);
  const Memory workspace2(second.workspace_bytes + 1);
  second.workspace = workspace2.as<std::byte>();
  report(label + "down " + std::string(name(down_type)),
         seconds_of(2 * kSets,
                    [&](int i, cudaStream_t s) {
                      set_of(second, i);
                      second.down = down.at(i);
                      check(launch_experts_down(second, s));
                    }),
         1.0 * used * down.weight.matrix_bytes, 2.0 * pairs * hidden * width);
}

// One token as decode has it: the choice with gate and up, then down with its sum.
void one_token_experts(const char* what, DType gate_type, DType down_type, int32_t count_experts,
                       int32_t top_k, int32_t groups, int64_t hidden, int64_t width) {
  const Rotating gate(gate_type, width, hidden, count_experts),
      up(gate_type, width, hidden, count_experts);
  const Rotating down(down_type, hidden, width, count_experts);
  constexpr int kSets = 12;
  std::mt19937 engine(3);
  std::vector<float> scores;
  for (int i = 0; i < kSets * count_experts; ++i)
    scores.push_back(static_cast<float>(engine() % 4096) / 1024);
  const Memory logits(kSets * count_experts * 4), x(hidden * 4), h(top_k * width * 4),
      y(hidden * 4);
  const Memory ids(kSets * top_k * 4), weights(kSets * top_k * 4);
  check(cudaMemcpy(logits.as<float>(), scores.data(), scores.size() * 4, cudaMemcpyHostToDevice),
        "logits");
  CudaOneChoicesArgs first;
  first.router.logits_stride = count_experts;
  first.router.attrs.experts = count_experts;
  first.router.attrs.top_k = top_k;
  first.router.attrs.groups = groups;
  first.router.attrs.groups_used = (groups + 1) / 2;
  first.router.attrs.normalize = 1;
  first.router.tokens = 1;
  first.x = x.as<float>();
  first.x_stride = hidden;
  first.h = h.as<float>();
  first.h_stride = width;
  CudaOneSumArgs second;
  second.attrs.experts = count_experts;
  second.attrs.top_k = top_k;
  second.h = first.h;
  second.h_stride = width;
  second.y = y.as<float>();
  second.y_stride = hidden;
  second.tokens = 1;
  const auto run = [&](bool choose, bool sum) {
    return seconds_of(2 * kSets, [&](int i, cudaStream_t s) {
      first.router.logits = logits.as<float>() + i % kSets * count_experts;
      second.ids = first.router.ids = ids.as<int32_t>() + i % kSets * top_k;
      second.weights = first.router.weights = weights.as<float>() + i % kSets * top_k;
      first.gate = gate.at(i);
      first.up = up.at(i);
      second.down = down.at(i);
      if (choose && sum) return check(launch_one_experts(first, second, nullptr, s));
      check(choose ? launch_one_choices(first, s) : launch_one_sum(second, s));
    });
  };
  const std::string label = std::string(what) + " one token ";
  const double bytes = 2.0 * top_k * gate.weight.matrix_bytes,
               more = 1.0 * top_k * down.weight.matrix_bytes;
  report(label + "choice, gate, up", run(true, false), bytes);
  report(label + "down, sum", run(false, true), more);
  report(label + "both", run(true, true), bytes + more);
}

}  // namespace

void bench_experts() {
  for (int64_t tokens : {2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}) {
    for (GpuKernel kernel :
         {GpuKernel::MarlinGemv, GpuKernel::MarlinFewGemm, GpuKernel::MarlinGemmWgmma}) {
      if (kernel == GpuKernel::MarlinGemv && tokens > 4) continue;
      experts("Qwen3-30B", DType::Q4_K, DType::Q6_K, 128, 8, 2048, 768, tokens, kernel);
    }
  }
  one_token_experts("Qwen3-30B", DType::Q4_K, DType::Q6_K, 128, 8, 1, 2048, 768);
}

void bench_deepseek() {
  experts("DeepSeek-V3", DType::Q4_K, DType::Q4_K, 256, 8, 7168, 2048, 1, GpuKernel::MarlinGemv);
  one_token_experts("DeepSeek-V3", DType::Q4_K, DType::Q4_K, 256, 8, 8, 7168, 2048);
}

}  // namespace ktx::bench
