#include "lib/runtime/gpu/gpu_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "lib/plan/gpu_reserve.h"
#include "lib/runtime/cache/kv_cache.h"
#include "lib/support/strings.h"
#include "lib/target/gpu_generation.h"

namespace ktx::runtime {
namespace {

std::string row(const char* what, uint64_t bytes, const std::string& why) {
  return fmt::format("  {:<17}{:>9}  {}\n", what, human_bytes(bytes), why);
}

}  // namespace

Status check_gpu_fit(const plan::DeviceMemory& needs, const GpuFacts& gpu,
                     const plan::RunShape& shape, const plan::KvBlocks& kv_blocks) {
  const uint64_t kv = needs.kv_token.times(kv_blocks).value_or(UINT64_MAX / 2);
  const uint64_t windows = needs.kv_token.times(kv_blocks.passing()).value_or(UINT64_MAX / 2);
  const uint64_t reserve = plan::gpu_reserve_bytes(shape.step_tokens);
  const uint64_t states = needs.state_slot_bytes * kv_blocks.states;
  const uint64_t fixed =
      needs.weight_bytes + needs.arena_bytes + needs.stream_bytes + states + reserve;
  if (gpu.free_bytes == 0 || fixed + kv <= gpu.free_bytes) return {};
  std::string text = fmt::format("{} ({}) does not hold what the plan puts there:\n", needs.name,
                                 printable(gpu.name));
  text += row("weights", needs.weight_bytes, "");
  text +=
      row("activations", needs.arena_bytes, fmt::format("chunks of {} tokens", shape.step_tokens));
  if (needs.stream_bytes > 0) {
    text += row("streamed experts", needs.stream_bytes, "");
  }
  text += row("KV cache", kv,
              fmt::format("{} x {} tokens in {}", shape.max_batch, shape.ctx, name(shape.kv_type)));
  if (states > 0) text += row("states", states, fmt::format("{} slots", kv_blocks.states));
  text += row("reserve", reserve, "graphs and partial results");
  text += row("together", fixed + kv, "");
  text += row("free", gpu.free_bytes, fmt::format("of {}", human_bytes(gpu.total_bytes)));
  text += row("missing", fixed + kv - gpu.free_bytes, "");
  text += "ways out:\n";
  const uint64_t taken = fixed + windows;
  const uint64_t left = gpu.free_bytes > taken ? gpu.free_bytes - taken : 0;
  const uint64_t block =
      needs.kv_token.whole * KvCache::kBlockTokens * static_cast<uint64_t>(shape.max_batch);
  const auto ctx = block == 0 ? int64_t{0}
                              : std::min(shape.ctx, static_cast<int64_t>(left / 10 * 9 / block) *
                                                        KvCache::kBlockTokens);
  if (ctx > 0) {
    text += fmt::format(
        "  a shorter context: --ctx {}; or a smaller cache: --kv-type=q8, a lower --max-batch, "
        "--kv-budget\n",
        ctx);
  } else {
    text += "  no context fits beside the weights\n";
  }
  text +=
      "  fewer weights there: `ktx-compile model.ktxplan -o model.ktxplan` places the plan again for "
      "this machine, without its GGUF; with rules/moe-experts-on-cpu.yaml, rules/spread-gpus.yaml "
      "for several GPUs, or without rules for what fits\n";
  text += "  other programs may hold memory of this GPU: nvidia-smi shows them";
  return Error{text};
}

Status check_gpu_generation(const std::string& device, const GpuFacts& gpu) {
  if (!target::too_old(gpu)) return {};
  return Error{fmt::format(
      "{} ({}) has compute capability {}.{}, and kernels exist for {} and newer; compile the "
      "plan for the CPU (rules/cpu-only.yaml) or use another GPU",
      device, printable(gpu.name), gpu.compute_major, gpu.compute_minor, target::oldest_gpu())};
}

}  // namespace ktx::runtime
