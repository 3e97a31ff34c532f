#include "kernels/gpu/gpu_kernels.h"

#include <algorithm>

#include "kernels/gpu/gpu_ranges.h"
#include "kernels/rows/row_op_list.h"

namespace ktx::kernels {
namespace {

constexpr int Newest = kNewestSm;  // NOLINT: as the rows have it

template <StepOp... kOps>
constexpr StepOp kOpList[] = {kOps...};
// Those that a row names; none: the row ops.
template <StepOp... kOps>
constexpr std::span<const StepOp> ops_of() {
  if constexpr (sizeof...(kOps) == 0) {
    return kRowOps;
  } else {
    return kOpList<kOps...>;
  }
}
using enum StepOp;

#define KTX_GPU_KERNEL(id, name, least, most, needs, range, launcher, sentence, ...)            \
  {GpuKernel::id,         name,        least, most, kNeeds##needs, gpu_ranges::range, sentence, \
   ops_of<__VA_ARGS__>(), std::nullopt},
#define KTX_GPU_FUSED_KERNEL(id, name, least, most, needs, range, sentence, fused) \
  {GpuKernel::id,     name,     least, most,          kNeeds##needs,               \
   gpu_ranges::range, sentence, {},    FusedOp::fused},
constexpr GpuKernelInfo kKernels[] = {
#include "kernels/gpu/gpu_kernels.def"
};
#undef KTX_GPU_FUSED_KERNEL
#undef KTX_GPU_KERNEL

constexpr int64_t kKiB = 1024;
constexpr GpuMachine kGenerations[] = {
    {75, 72, 64 * kKiB},   {80, 108, 163 * kKiB},  {86, 84, 99 * kKiB},   {89, 128, 99 * kKiB},
    {90, 132, 227 * kKiB}, {100, 148, 227 * kKiB}, {120, 170, 99 * kKiB},
};

struct NeedName {
  KernelNeed need;
  std::string_view name;
};
constexpr NeedName kNeedNames[] = {
    {kNeedsCublas, "cublas"}, {kNeedsWgmma, "wgmma"}, {kNeedsHalfCache, "half_cache"}};

// `rows` without what `taken` has, rising.
std::vector<RowRange> without(RowRange rows, std::vector<RowRange> taken) {
  std::sort(taken.begin(), taken.end(),
            [](const RowRange& a, const RowRange& b) { return a.least < b.least; });
  std::vector<RowRange> left;
  for (const RowRange& other : taken) {
    if (rows.empty() || other.most < rows.least) continue;
    if (other.least > rows.most) break;
    if (other.least > rows.least) left.push_back({rows.least, other.least - 1});
    rows.least = other.most + 1;
  }
  if (!rows.empty()) left.push_back(rows);
  return left;
}

}  // namespace

std::string needs_text(uint32_t needs) {
  std::string out;
  for (const NeedName& row : kNeedNames) {
    if ((needs & row.need) == 0) continue;
    out += out.empty() ? "" : ",";
    out += row.name;
  }
  return out;
}

std::optional<uint32_t> needs_from_text(std::string_view text) {
  uint32_t needs = 0;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    const auto* const row = std::ranges::find(kNeedNames, word, &NeedName::name);
    if (row == std::end(kNeedNames)) return std::nullopt;
    needs |= row->need;
    text.remove_prefix(std::min(word.size() + 1, text.size()));
  }
  return needs;
}

std::span<const GpuMachine> gpu_generations() {
  return kGenerations;
}

GpuMachine gpu_machine(int sm) {
  GpuMachine found = kGenerations[0];
  for (const GpuMachine& machine : kGenerations) {
    if (machine.sm <= sm) found = machine;
  }
  return found;
}

bool GpuKernelInfo::serves(const GpuForm& form) const {
  if (form.fused) return fused == form.fused;
  return !fused && std::find(ops.begin(), ops.end(), form.op) != ops.end();
}

std::span<const GpuKernelInfo> all_gpu_kernels() {
  return kKernels;
}

const GpuKernelInfo& info(GpuKernel kernel) {
  return kKernels[static_cast<size_t>(kernel)];
}

std::optional<GpuKernel> gpu_kernel_from_name(std::string_view name) {
  const auto* const row = std::ranges::find(kKernels, name, &GpuKernelInfo::name);
  return row == std::end(kKernels) ? std::nullopt : std::optional(row->kernel);
}

std::vector<GpuChoice> choose_gpu_kernels(const GpuForm& form, const GpuMachine& machine) {
  std::vector<GpuChoice> choices;
  std::vector<RowRange> taken;  // by kernels that need nothing
  for (const GpuKernelInfo& row : kKernels) {
    if (!row.serves(form) || machine.sm < row.least_sm || machine.sm > row.most_sm) continue;
    const RowRange rows = row.range(form, machine);
    for (const RowRange& left : without(rows, taken)) {
      choices.push_back({row.kernel, left, row.needs});
    }
    if (row.needs == kNeedsNothing && !rows.empty()) taken.push_back(rows);
  }
  return choices;
}

std::optional<GpuKernel> first_choice(std::span<const GpuChoice> choices, int64_t rows,
                                      uint32_t has) {
  for (const GpuChoice& choice : choices) {
    if (choice.rows.has(rows) && (choice.needs & ~has) == 0) return choice.kernel;
  }
  return std::nullopt;
}

}  // namespace ktx::kernels
