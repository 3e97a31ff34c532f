// The CPU as a device: its table of ops, and the conversion of records to pointers.
#include <fmt/format.h>

#include "lib/formats/layout_size.h"
#include "lib/plan/memory.h"
#include "lib/runtime/cpu/cpu_step.h"
#include "lib/runtime/cpu/ops/cpu_ops.h"

namespace ktx::runtime {
namespace {

struct Row {
  StepOp op;
  MakeStep make;
};
constexpr Row kOps[] = {
#define KTX_CPU_OP(op, make) {StepOp::op, make},
#include "lib/runtime/cpu/cpu_ops.def"
#undef KTX_CPU_OP
#define KTX_ROW_OP(op, family, arithmetic, sentence) {StepOp::op, make_rows},
#include "kernels/rows/row_ops.def"
#undef KTX_ROW_OP
};

}  // namespace

MakeStep cpu_op(StepOp op) {
  for (const Row& row : kOps) {
    if (row.op == op) return row.make;
  }
  return nullptr;
}

Status require_whole(const BoundView& view, const char* name) {
  if (view.whole()) return {};
  return Error{fmt::format("operand '{}' is a part of a value, and must be a whole one", name)};
}

BoundView BindContext::view(const plan::OperandRecord& operand) const {
  BoundView view;
  if (operand.value == plan::kNone) return view;
  const plan::ValueRecord& value = plan.values[operand.value];
  view.data = arena + buffer_offsets[value.buffer];
  view.type = static_cast<ValueType>(value.type);
  if (!is_product_input(view.type)) view.data += uint64_t{operand.offset} * 4;
  view.stride_bytes = static_cast<int64_t>(plan::value_row_bytes(value));
  view.width = operand.width;
  view.rows_per_row = value.rows_per_row;
  view.rows = static_cast<RowKind>(value.rows);
  return view;
}

BoundView BindContext::input(int i) const {
  const auto all = plan.inputs(step);
  return static_cast<size_t>(i) < all.size() ? view(all[i]) : BoundView();
}

BoundView BindContext::output(int i) const {
  const auto all = plan.outputs(step);
  return static_cast<size_t>(i) < all.size() ? view(all[i]) : BoundView();
}

Result<BoundWeight> BindContext::optional_weight(int i) const {
  BoundWeight weight;
  const auto all = plan.weights(step);
  if (static_cast<size_t>(i) >= all.size() || all[i] == plan::kNone) return weight;
  const plan::BlobRecord& blob = plan.blobs[all[i]];
  const auto layout = static_cast<Layout>(blob.layout);
  if (layout != Layout::Rows && !in_panels(layout)) {
    return Error{
        fmt::format("weight '{}' has layout {}, which the CPU does not read; "
                    "compile for the CPU",
                    plan.string(blob.name), name(layout))};
  }
  kernels::WeightMatrix& matrix = weight.matrix;
  matrix.data = plan.blob_bytes(all[i]).data();
  matrix.dtype = static_cast<DType>(blob.dtype);
  matrix.rows = blob.rows;
  matrix.cols = blob.cols;
  const auto row = row_bytes(matrix.dtype, blob.cols);
  if (!row) {
    return Error{fmt::format("weight '{}' has {} columns, no multiple of the {} of a {} block",
                             plan.string(blob.name), blob.cols, info(matrix.dtype).block_elems,
                             name(matrix.dtype))};
  }
  matrix.layout = layout;
  matrix.row_bytes = *row;
  weight.matrices = blob.matrices;
  weight.matrix_bytes = matrix.row_bytes * stored_rows(layout, blob.rows);
  return weight;
}

Result<BoundWeight> BindContext::weight(int i) const {
  BoundWeight weight = KTX_TRY(optional_weight(i));
  if (weight.matrices == 0) return Error{fmt::format("weight {} is missing", i)};
  return weight;
}

kernels::KvView BindContext::kv_view(int32_t slot) const {
  kernels::KvView view;
  view.layout = kv.layout(slot);
  view.slot_offset = kv.slot_offset(slot);
  return view;
}

std::string_view BindContext::family() const {
  return plan.string_or_empty(step.kernel[precision]);
}

}  // namespace ktx::runtime
