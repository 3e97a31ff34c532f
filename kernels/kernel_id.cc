#include "kernels/kernel_id.h"

#include <algorithm>

#include "kernels/matmul/matmul.h"
#include "kernels/rows/row_op_list.h"
#include "lib/formats/layout_size.h"

namespace ktx::kernels {
namespace {

// Layouts as the column names them.
struct LayoutColumn {
  static constexpr std::optional<Layout> Rows = Layout::Rows, Panel16 = Layout::Panel16,
                                         Panel16Stream = Layout::Panel16Stream, Any = std::nullopt;
};

template <StepOp... ops>
constexpr StepOp kOps[] = {ops...};

using enum StepOp;
constexpr KernelFamily kFamilies[] = {
#define KTX_KERNEL_FAMILY(name, device, arithmetic, exact, fast, input, layout, sentence, ...) \
  {name,                                                                                       \
   FamilyDevice::device,                                                                       \
   Arithmetic::arithmetic,                                                                     \
   {WeightKinds::exact, WeightKinds::fast},                                                    \
   ValueType::input,                                                                           \
   LayoutColumn::layout,                                                                       \
   sentence,                                                                                   \
   kOps<__VA_ARGS__>},
#include "kernels/kernel_families.def"
#undef KTX_KERNEL_FAMILY
#define KTX_ROW_OP(op, family, arithmetic, sentence) \
  {family,                                           \
   FamilyDevice::Cpu,                                \
   Arithmetic::arithmetic,                           \
   {WeightKinds::All, WeightKinds::All},             \
   ValueType::F32,                                   \
   Layout::Rows,                                     \
   sentence,                                         \
   kOps<op>},
#include "kernels/rows/row_ops.def"
#undef KTX_ROW_OP
    {"gpu_elementwise",  // one family for all of them
     FamilyDevice::Gpu,
     Arithmetic::F32,
     {WeightKinds::All, WeightKinds::All},
     ValueType::F32,
     std::nullopt,
     "row ops on a GPU",
     kRowOps},
};

bool serves(const KernelFamily& family, FamilyDevice device, StepOp op) {
  return (family.device == device || family.device == FamilyDevice::Any) &&
         std::ranges::find(family.ops, op) != family.ops.end();
}

}  // namespace

bool has(WeightKinds kinds, DType dtype) {
  const WeightKinds kind = matmul_q8_takes(dtype) ? WeightKinds::Coded
                           : dtype == DType::BF16 ? WeightKinds::Bf16
                                                  : WeightKinds::Plain;
  return kinds == WeightKinds::All || kinds == kind;
}

std::span<const KernelFamily> all_kernel_families() {
  return kFamilies;
}

const KernelFamily* find_kernel_family(std::string_view name) {
  const auto* found = std::ranges::find(kFamilies, name, &KernelFamily::name);
  return found == std::end(kFamilies) ? nullptr : found;
}

std::string_view gpu_kernel_family(StepOp op) {
  for (const KernelFamily& family : kFamilies) {
    if (serves(family, FamilyDevice::Gpu, op)) return family.name;
  }
  return "";
}

bool fits(const KernelFamily& family, const FamilyQuery& step) {
  const bool transposed = step.transposed && step.op == StepOp::MatmulHeads;
  return serves(family, FamilyDevice::Cpu, step.op) &&
         transposed == (family.arithmetic == Arithmetic::TransposedF32) &&
         has(family.weights[static_cast<int>(step.precision)], step.dtype) &&
         (!family.layout || family.layout == step.layout) &&
         (!is_product_input(family.input) || family.input == step.input);
}

std::string_view kernel_family(StepOp op, Precision precision, DType dtype, bool transposed,
                               Layout layout, ValueType input) {
  const FamilyQuery step = {op, precision, dtype, transposed, layout, input};
  for (const KernelFamily& family : kFamilies) {
    if (fits(family, step)) return family.name;
  }
  return "";
}

bool tile_bf16_takes(DType dtype, Layout layout) {
  return layout == Layout::Panel16 && panel16_form(dtype);
}

}  // namespace ktx::kernels
