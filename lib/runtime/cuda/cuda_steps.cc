#include "lib/runtime/cuda/cuda_steps.h"

#include <fmt/format.h>

#include "kernels/kernel_id.h"
#include "kernels/matmul/row_decode.h"
#include "lib/formats/layout.h"
#include "lib/support/strings.h"

namespace ktx::runtime {
namespace {

struct Row {
  StepOp op;
  const MakeCudaStep* make;
};
constexpr Row kOps[] = {
#define KTX_CUDA_OP(op, make) {StepOp::op, &make},
#include "lib/runtime/cuda/cuda_ops.def"
#undef KTX_CUDA_OP
#define KTX_ROW_OP(op, family, arithmetic, sentence) {StepOp::op, &make_cuda_rows},
#include "kernels/rows/row_ops.def"
#undef KTX_ROW_OP
};

}  // namespace

Result<std::unique_ptr<GpuStep>> make_cuda_step(CudaGpu& gpu, const GpuBindContext& context) {
  const StepOp op = context.step.op;
  for (const std::string& family : context.step.kernels) {
    if (family == kernels::gpu_kernel_family(op) || context.streamed) continue;
    return Error{fmt::format("no GPU kernel '{}'; compile the plan again", printable(family))};
  }
  for (const Row& row : kOps) {
    if (row.op == op) return (*row.make)(CudaBind(gpu, context));
  }
  return Error{"GPUs do not have this op"};
}

Status require_whole(const CudaView& view, const char* name) {
  if (view.whole()) return {};
  return Error{fmt::format("operand '{}' is a part of a value, and must be a whole one", name)};
}

kernels::GpuKernel CudaBind::kernel() const {
  // The plan's reader has looked the name up.
  return *kernels::gpu_kernel_from_name(context_.launch.kernel);
}

CudaView CudaBind::view(const std::vector<program::View>& operands, int i) const {
  CudaView view;
  const auto number = static_cast<size_t>(i);
  if (number >= operands.size() || operands[number].value == program::kAbsent) return view;
  const program::View& operand = operands[number];
  const program::Value& value = context_.plan.program->values[operand.value];
  view.data = context_.arena + context_.buffer_offsets[value.buffer] + operand.offset * 4;
  view.stride = program::row_bytes(value) / 4;
  view.width = operand.width;
  view.rows_per_row = value.rows_per_row;
  view.rows = value.rows;
  return view;
}

const program::Blob* CudaBind::blob(int i) const {
  return context_.plan.program->weight(context_.step, static_cast<size_t>(i));
}

std::byte* CudaBind::memory(int i) const {
  return context_.blobs[context_.step.weights[static_cast<size_t>(i)]];
}

Result<kernels::CudaWeight> CudaBind::weight(int i) const {
  const program::Blob* const own = blob(i);
  if (own == nullptr) return Error{fmt::format("weight {} is missing", i)};
  kernels::CudaWeight weight;
  weight.data = memory(i);
  weight.dtype = own->dtype;
  weight.layout = context_.layout_of(*own);
  weight.rows = own->rows;
  weight.cols = own->cols;
  weight.matrix_bytes =
      matrix_bytes(weight.layout, weight.dtype, weight.rows, weight.cols).value_or(0);
  return weight;
}

Result<kernels::CudaWeight> CudaBind::product_weight(int i) const {
  kernels::CudaWeight w = KTX_TRY(weight(i));
  if (kernels::cuda_matmul_takes(w.dtype, w.layout)) return w;
  return Error{
      fmt::format("weight '{}' is {} in layout {}, which no GPU kernel reads; compile the "
                  "plan again, or put the module on the CPU by a rule",
                  printable(blob(i)->name), name(w.dtype), name(w.layout))};
}

Result<const float*> CudaBind::vector(int i, GpuMemory& keep) const {
  const program::Blob* const own = blob(i);
  if (own == nullptr) return static_cast<const float*>(nullptr);
  if (own->layout != Layout::Rows) return Error{"a vector weight that is not in rows"};
  if (own->dtype == DType::F32) return reinterpret_cast<const float*>(memory(i));
  const int64_t rows = own->rows * own->matrices;
  std::vector<float> floats(static_cast<size_t>(rows * own->cols));
  const auto bytes = context_.plan.blob_bytes(context_.step.weights[static_cast<size_t>(i)]);
  const int64_t row = *row_bytes(own->dtype, own->cols);
  for (int64_t r = 0; r < rows; ++r) {
    dequantize_row(own->dtype, bytes.data() + r * row, own->cols, floats.data() + r * own->cols);
  }
  keep = KTX_TRY(gpu_.allocate(floats.size() * 4, "vectors"));
  KTX_TRY(gpu_.upload(keep.data(), reinterpret_cast<const std::byte*>(floats.data()),
                      floats.size() * 4));
  KTX_TRY(gpu_.finish());
  return reinterpret_cast<const float*>(keep.data());
}

bool CudaBind::has_weight(int i) const {
  return i < weight_count() && blob(i) != nullptr;
}

std::span<const std::byte> CudaBind::weight_in_plan(int i) const {
  return context_.plan.blob_bytes(context_.step.weights[static_cast<size_t>(i)]);
}

kernels::CudaStates CudaBind::states(int32_t state) const {
  const plan::StateLayout& layout = context_.states.layout;
  return {context_.states.slots + layout.offset(state), layout.floats()};
}

kernels::CudaKvView CudaBind::kv_view(int32_t slot) const {
  kernels::CudaKvView view;
  const SequenceKind kind = context_.kv.kind_of(slot);
  view.layout = context_.kv.layout(slot);
  view.pool = context_.kv_memory[kind];
  view.block_bytes = context_.kv.of(kind).block_bytes();
  view.slot_offset = context_.kv.slot_offset(slot);
  view.table = context_.batch.tables[kind];
  view.table_stride = context_.batch.table_stride;
  view.sequence = context_.batch.sequence;
  view.position = context_.batch.position;
  return view;
}

}  // namespace ktx::runtime
