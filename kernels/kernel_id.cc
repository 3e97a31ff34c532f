#include "kernels/kernel_id.h"

#include <array>

#include "kernels/matmul/matmul.h"
#include "lib/formats/layout_size.h"

namespace ktx::kernels {
namespace {

constexpr KernelFamily kFamilies[] = {
#define KTX_KERNEL_FAMILY(name, sentence) {name, sentence},
#include "kernels/kernel_families.def"
#undef KTX_KERNEL_FAMILY
};

// Family of each op in exact and in fast precision; "*" marks a product, whose fast
// family depends on the weights.
struct OpFamily {
  StepOp op;
  std::string_view exact, fast;
};
constexpr OpFamily kOpFamilies[] = {
    {StepOp::Embed, "embed_rows", "embed_rows"},
    {StepOp::RmsNorm, "rms_norm", "rms_norm"},
    {StepOp::Quantize, "", "quantize_q8"},
    {StepOp::Matmul, "matmul_rows_f32", "*"},
    {StepOp::MatmulHeads, "matmul_rows_f32", "*"},
    {StepOp::Rope, "rope", "rope"},
    {StepOp::KvStore, "kv_store", "kv_store"},
    {StepOp::Attention, "attention", "attention"},
    {StepOp::Swiglu, "swiglu", "swiglu"},
    {StepOp::Router, "router", "router"},
    {StepOp::GroupExperts, "group_experts", "group_experts"},
    {StepOp::ExpertsGateUp, "matmul_rows_f32", "*"},
    {StepOp::ExpertsDown, "matmul_rows_f32", "*"},
    {StepOp::Add, "add", "add"},
    {StepOp::SigmoidScale, "sigmoid_scale", "sigmoid_scale"},
    {StepOp::GatherRows, "gather_rows", "gather_rows"},
    {StepOp::Transfer, "transfer", "transfer"},
};

struct GpuFamily {
  StepOp op;
  std::string_view family;
};
constexpr GpuFamily kGpuFamilies[] = {
    {StepOp::Embed, "gpu_embed"},
    {StepOp::RmsNorm, "gpu_rms_norm"},
    {StepOp::Matmul, "gpu_matmul"},
    {StepOp::MatmulHeads, "gpu_matmul"},
    {StepOp::Rope, "gpu_rope"},
    {StepOp::KvStore, "gpu_kv_store"},
    {StepOp::Attention, "gpu_attention"},
    {StepOp::Swiglu, "gpu_elementwise"},
    {StepOp::Router, "gpu_router"},
    {StepOp::GroupExperts, "gpu_router"},
    {StepOp::ExpertsGateUp, "gpu_matmul"},
    {StepOp::ExpertsDown, "gpu_matmul"},
    {StepOp::Add, "gpu_elementwise"},
    {StepOp::SigmoidScale, "gpu_elementwise"},
    {StepOp::GatherRows, "gpu_elementwise"},
    {StepOp::Transfer, "transfer"},
};

}  // namespace

std::string_view gpu_kernel_family(StepOp op) {
  for (const GpuFamily& row : kGpuFamilies) {
    if (row.op == op) return row.family;
  }
  return "";
}

std::span<const KernelFamily> all_kernel_families() {
  return kFamilies;
}

bool is_kernel_family(std::string_view name) {
  for (const KernelFamily& family : kFamilies) {
    if (family.name == name) return true;
  }
  return false;
}

std::string_view kernel_family(StepOp op, Precision precision, DType dtype, bool transposed,
                               Layout layout, ValueType input) {
  const bool panels = in_panels(layout), stream = layout == Layout::Panel16Stream;
  for (const OpFamily& row : kOpFamilies) {
    if (row.op != op) continue;
    if (op == StepOp::Embed && panels) return stream ? "embed_panel16s" : "embed_panel16";
    if (op == StepOp::MatmulHeads && transposed) return "matmul_transposed_f32";
    if (op == StepOp::Quantize && precision == Precision::Fast && input == ValueType::BF16) {
      return "quantize_bf16";
    }
    if (row.fast != "*") return precision == Precision::Exact ? row.exact : row.fast;
    const bool int8 = precision == Precision::Fast && matmul_q8_takes(dtype);
    if (precision == Precision::Fast && dtype == DType::BF16) {
      return panels ? "matmul_panel16_bf16" : "matmul_rows_bf16";
    }
    if (stream) return int8 ? "matmul_panel16s_q8" : "matmul_panel16s_f32";
    if (int8 && input == ValueType::BF16) return "matmul_panel16_tile_bf16";
    if (panels) return int8 ? "matmul_panel16_q8" : "matmul_panel16_f32";
    return int8 ? "matmul_rows_q8" : row.exact;
  }
  return "";
}

bool tile_bf16_takes(DType dtype, Layout layout) {
  return layout == Layout::Panel16 && panel16_form(dtype);
}

std::optional<ValueType> family_input(std::string_view family) {
  if (family == "quantize_bf16" || family == "matmul_panel16_tile_bf16") return ValueType::BF16;
  if (family.ends_with("_q8")) return ValueType::Q8;
  return std::nullopt;
}

Layout family_layout(std::string_view family) {
  if (family.find("_panel16s") != family.npos) return Layout::Panel16Stream;
  return family.find("_panel16") == family.npos ? Layout::Rows : Layout::Panel16;
}

}  // namespace ktx::kernels
