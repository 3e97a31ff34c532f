// The CPU as a device: its table of ops, and the conversion of operands to pointers.
#include <fmt/format.h>

#include "kernels/kernel_id.h"
#include "lib/formats/layout_size.h"
#include "lib/runtime/cpu/cpu_step.h"
#include "lib/runtime/cpu/ops/cpu_ops.h"

namespace ktx::runtime {
namespace {

struct Row {
  StepOp op;
  const MakeStep* make;
};
constexpr Row kOps[] = {
#define KTX_CPU_OP(op, make) {StepOp::op, &make},
#include "lib/runtime/cpu/cpu_ops.def"
#undef KTX_CPU_OP
#define KTX_ROW_OP(op, family, arithmetic, sentence) {StepOp::op, &make_rows},
#include "kernels/rows/row_ops.def"
#undef KTX_ROW_OP
};

}  // namespace

MakeStep cpu_op(StepOp op) {
  for (const Row& row : kOps) {
    if (row.op == op) return *row.make;
  }
  return nullptr;
}

Status require_whole(const BoundView& view, const char* name) {
  if (view.whole()) return {};
  return Error{fmt::format("operand '{}' is a part of a value, and must be a whole one", name)};
}

Status require_layout(std::string_view family, const BoundWeight& weight) {
  const kernels::KernelFamily* const row = kernels::find_kernel_family(family);
  const Layout layout = weight.matrix.layout;
  if (!row || row->layout == layout) return {};
  return Error{fmt::format("kernel {} does not read weights in layout {}", family, name(layout))};
}

BoundView BindContext::view(const std::vector<program::View>& operands, int i) const {
  BoundView view;
  const auto number = static_cast<size_t>(i);
  if (number >= operands.size() || operands[number].value == program::kAbsent) return view;
  const program::View& operand = operands[number];
  const program::Value& value = plan.program->values[operand.value];
  view.data = arena + buffer_offsets[value.buffer];
  view.type = value.type;
  if (!is_product_input(view.type)) view.data += operand.offset * 4;
  view.stride_bytes = program::row_bytes(value);
  view.width = operand.width;
  view.rows_per_row = value.rows_per_row;
  view.rows = value.rows;
  return view;
}

Result<BoundWeight> BindContext::optional_weight(int i) const {
  BoundWeight weight;
  const program::Blob* const blob = plan.program->weight(step, static_cast<size_t>(i));
  if (blob == nullptr) return weight;
  if (blob->layout != Layout::Rows && !in_panels(blob->layout)) {
    return Error{
        fmt::format("weight '{}' has layout {}, which the CPU does not read; "
                    "compile for the CPU",
                    blob->name, name(blob->layout))};
  }
  kernels::WeightMatrix& matrix = weight.matrix;
  matrix.data = plan.blob_bytes(step.weights[i]).data();
  matrix.dtype = blob->dtype;
  matrix.rows = blob->rows;
  matrix.cols = blob->cols;
  const auto row = row_bytes(matrix.dtype, blob->cols);
  if (!row) {
    return Error{fmt::format("weight '{}' has {} columns, no multiple of the {} of a {} block",
                             blob->name, blob->cols, info(matrix.dtype).block_elems,
                             name(matrix.dtype))};
  }
  matrix.layout = blob->layout;
  matrix.row_bytes = *row;
  weight.matrices = blob->matrices;
  weight.matrix_bytes = matrix.row_bytes * stored_rows(blob->layout, blob->rows);
  return weight;
}

Result<BoundWeight> BindContext::weight(int i) const {
  BoundWeight weight = KTX_TRY(optional_weight(i));
  if (weight.matrices == 0) return Error{fmt::format("weight {} is missing", i)};
  return weight;
}

void use_batch(kernels::KvView& kv, const Batch& batch, SequenceKind kind) {
  kv.tables = batch.tables[kind].data();
  kv.sequence = batch.sequence.data();
  kv.position = batch.position.data();
}

kernels::KvView BindContext::kv_view(int32_t slot) const {
  kernels::KvView view;
  view.layout = kv.layout(slot);
  view.slot_offset = kv.slot_offset(slot);
  return view;
}

}  // namespace ktx::runtime
