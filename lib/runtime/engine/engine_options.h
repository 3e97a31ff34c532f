// How a plan is to run: what Engine::open takes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernel_id.h"
#include "lib/plan/memory.h"
#include "lib/plan/plan_reader.h"
#include "lib/runtime/cpu/cpu_op_table.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx {
struct LoraAdapter;
class ThreadPool;
}  // namespace ktx

namespace ktx::runtime {

class Gpu;
struct ExpertCacheOptions;
struct ExpertGuestOptions;
class HostGroup;
using Precision = kernels::Precision;

// What a step of this host wrote: rows of a value, and of them the part that is the step's.
struct StepResult {
  std::string_view value;  // "L3.router"
  int32_t layer = -1;      // of the step; -1: of none
  std::span<const float> rows;
  int64_t stride = 0;  // elements from row to row
  int64_t begin = 0, width = 0;
};

// A step of the CPU that ran twice (cpu/repeated_steps.h).
struct StepRepeat {
  uint32_t step = 0;      // index in PlanView::steps
  double difference = 0;  // |fast - scalar| / |scalar|; of whole numbers, the share that differs
};

// Whether threads stay on their CPUs. Auto: when they are on several NUMA nodes.
enum class Pin { Auto, On, Off };

// Auto: if all of them can; On: if not, startup fails.
enum class GpuLinks { Off, Auto, On };

// Values not given come from the plan's defaults.
struct EngineOptions {
  int threads = 0;  // 0: one per core that this process may use
  Pin pin = Pin::Auto;
  // Those of another engine that the same thread runs, in place of threads of its own.
  std::shared_ptr<ThreadPool> pool;
  std::optional<Precision> precision;
  std::optional<int64_t> ctx;  // tokens per sequence
  bool largest_ctx = false;    // instead: as many as fit (largest_ctx.h)
  // A plan that is going to run beside this one, with the same context and batch (a draft plan):
  // the largest context leaves room for it.
  std::shared_ptr<const plan::PlanFile> beside;
  uint64_t reserved_bytes = 0;             // of the host's memory, that others are going to take
  std::optional<int64_t> max_batch;        // sequences in one step
  std::optional<int64_t> kv_budget_bytes;  // at most so much for the cache; 0: as needed
  std::optional<plan::KvType> kv_type;     // exact precision always takes F32
  std::optional<int64_t> chunk_tokens;     // most tokens in a step
  bool all_logits = false;                 // room for the logits of every token of a step
  int64_t sequence_logits = 1;             // else for so many of each sequence
  int64_t rollback_tokens = 0;             // BatchItem::rollback, where a model has states
  std::optional<Isa> isa;                  // else the best of the machine
  // Adapters that sequences can choose from, by index.
  std::vector<std::shared_ptr<const LoraAdapter>> lora;
  // What they take, which Engine::open sets: their matrices, and A x for each token of a pass.
  uint64_t lora_bytes = 0, lora_token_bytes = 0;
  bool drafter = false;  // open the plan that this one has as its drafter
  bool tower = false;    // open the plan that reads images for this one
  bool verify = false;   // check the hashes of all weights first
  // Main memory for routed experts of the CPU; others are read when they are needed
  // (experts/expert_room.h). Absent: mapped if all fit, else cached; 0: always mapped.
  std::optional<int64_t> expert_memory_bytes;
  bool huge_pages = false;  // copy the plan into huge pages instead of mapping it
  // For plans with GPUs: whether steps of few tokens are captured as graphs, and whether
  // every result is checked for infinity and NaN (slow; names the module).
  bool gpu_graphs = true;
  bool check_finite = false;
  bool count_experts = false;                                 // by layer and expert
  std::function<void(const StepResult&)> on_result;           // receives each F32 result; slow
  std::function<void(const StepRepeat&)> on_repeat;           // runs steps of the CPU twice; slow
  CpuOpTable cpu_op = nullptr;                                // for tests; null: cpu_ops.def's
  const ExpertCacheOptions* expert_cache = nullptr;           // for tests; its slots do not count
  const ExpertGuestOptions* expert_guests = nullptr;          // for tests
  std::function<Result<std::unique_ptr<Gpu>>(int)> open_gpu;  // for tests; empty: this machine's
  // For plans for several hosts: whether GPUs of different hosts have links (gpu/gpu_link.h).
  GpuLinks gpu_links = GpuLinks::Auto;
  // For a plan for several hosts: all of them; this one is the first (hosts/host_group.h).
  std::shared_ptr<HostGroup> hosts;
};

// A GPU by name and the rated GB/s of its memory.
struct GpuUse {
  std::string name;
  double bandwidth_gbps = 0;
};

}  // namespace ktx::runtime
