#include "lib/runtime/cuda/cuda_steps.h"

#include <fmt/format.h>

#include "kernels/kernel_id.h"
#include "kernels/matmul/row_decode.h"
#include "lib/formats/layout.h"
#include "lib/plan/memory.h"
#include "lib/support/strings.h"

namespace ktx::runtime {
namespace {

struct Row {
  StepOp op;
  MakeCudaStep make;
};
constexpr Row kOps[] = {
#define KTX_CUDA_OP(op, make) {StepOp::op, make},
#include "lib/runtime/cuda/cuda_ops.def"
#undef KTX_CUDA_OP
#define KTX_ROW_OP(op, family, arithmetic, sentence) {StepOp::op, make_cuda_rows},
#include "kernels/rows/row_ops.def"
#undef KTX_ROW_OP
};

}  // namespace

Result<std::unique_ptr<GpuStep>> make_cuda_step(CudaGpu& gpu, const GpuBindContext& context) {
  const auto op = static_cast<StepOp>(context.step.op);
  for (uint32_t kernel : context.step.kernel) {
    const std::string_view family = context.plan.string_or_empty(kernel);
    if (family == kernels::gpu_kernel_family(op) || context.streamed) continue;
    return Error{fmt::format("no GPU kernel '{}'; compile the plan again", printable(family))};
  }
  for (const Row& row : kOps) {
    if (row.op == op) return row.make(CudaBind(gpu, context));
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

CudaView CudaBind::view(const plan::OperandRecord& operand) const {
  CudaView view;
  if (operand.value == plan::kNone) return view;
  const plan::ValueRecord& value = context_.plan.values[operand.value];
  view.data = context_.arena + context_.buffer_offsets[value.buffer] + uint64_t{operand.offset} * 4;
  view.stride = static_cast<int64_t>(plan::value_row_bytes(value)) / 4;
  view.width = operand.width;
  view.rows_per_row = value.rows_per_row;
  view.rows = static_cast<RowKind>(value.rows);
  return view;
}

CudaView CudaBind::input(int i) const {
  const auto all = context_.plan.inputs(context_.step);
  return static_cast<size_t>(i) < all.size() ? view(all[i]) : CudaView();
}

CudaView CudaBind::output(int i) const {
  const auto all = context_.plan.outputs(context_.step);
  return static_cast<size_t>(i) < all.size() ? view(all[i]) : CudaView();
}

uint32_t CudaBind::blob(int i) const {
  const auto all = context_.plan.weights(context_.step);
  return static_cast<size_t>(i) < all.size() ? all[i] : plan::kNone;
}

Result<kernels::CudaWeight> CudaBind::weight(int i) const {
  const uint32_t number = blob(i);
  if (number == plan::kNone) return Error{fmt::format("weight {} is missing", i)};
  const plan::BlobRecord& record = context_.plan.blobs[number];
  kernels::CudaWeight weight;
  weight.data = context_.blobs[number];
  weight.dtype = static_cast<DType>(record.dtype);
  weight.layout = static_cast<Layout>(record.layout);
  weight.rows = record.rows;
  weight.cols = record.cols;
  weight.matrix_bytes = static_cast<int64_t>(record.size) / record.matrices;
  return weight;
}

Result<kernels::CudaWeight> CudaBind::product_weight(int i) const {
  kernels::CudaWeight w = KTX_TRY(weight(i));
  if (kernels::cuda_matmul_takes(w.dtype, w.layout)) return w;
  return Error{
      fmt::format("weight '{}' is {} in layout {}, which no GPU kernel reads; compile the "
                  "plan again, or put the module on the CPU by a rule",
                  printable(context_.plan.string(context_.plan.blobs[blob(i)].name)), name(w.dtype),
                  name(w.layout))};
}

Result<const float*> CudaBind::vector(int i, GpuMemory& keep) const {
  const uint32_t number = blob(i);
  if (number == plan::kNone) return static_cast<const float*>(nullptr);
  const plan::BlobRecord& record = context_.plan.blobs[number];
  const auto dtype = static_cast<DType>(record.dtype);
  if (record.layout != static_cast<uint16_t>(Layout::Rows)) {
    return Error{"a vector weight that is not in rows"};
  }
  if (dtype == DType::F32) return reinterpret_cast<const float*>(context_.blobs[number]);
  const int64_t rows = record.rows * record.matrices;
  std::vector<float> floats(static_cast<size_t>(rows * record.cols));
  const auto bytes = context_.plan.blob_bytes(number);
  const int64_t row = *row_bytes(dtype, record.cols);
  for (int64_t r = 0; r < rows; ++r) {
    dequantize_row(dtype, bytes.data() + r * row, record.cols, floats.data() + r * record.cols);
  }
  keep = KTX_TRY(gpu_.allocate(floats.size() * 4, "vectors"));
  KTX_TRY(gpu_.upload(keep.data(), reinterpret_cast<const std::byte*>(floats.data()),
                      floats.size() * 4));
  KTX_TRY(gpu_.finish());
  return reinterpret_cast<const float*>(keep.data());
}

kernels::CudaStates CudaBind::states(int32_t state) const {
  const plan::StateLayout& layout = context_.states.layout;
  return {context_.states.slots + layout.offset(state), layout.floats()};
}

kernels::CudaKvView CudaBind::kv_view(int32_t slot) const {
  kernels::CudaKvView view;
  const KvPool pool = context_.kv.pool_of(slot);
  view.layout = context_.kv.layout(slot);
  view.pool = context_.kv_memory.in(pool);
  view.block_bytes = context_.kv.of(pool).block_bytes();
  view.slot_offset = context_.kv.slot_offset(slot);
  view.table = pool == KvPool::Whole ? context_.batch.tables : context_.batch.window_tables;
  view.table_stride = context_.batch.table_stride;
  view.sequence = context_.batch.sequence;
  view.position = context_.batch.position;
  return view;
}

}  // namespace ktx::runtime
