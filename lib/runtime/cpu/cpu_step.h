// A step of a plan, bound to memory and to a kernel: the unit that the executor runs.
//
//   bind:     program::Step -> BindContext -> make_matmul() -> CpuStep with filled-in Args
//   per step: StepWork work = step.begin(batch);      one thread
//             step.run(item, scratch);                any thread, any order
//
// Everything known when the plan is opened (pointers, strides, weights, kernel functions) is in
// the object; begin() reads the batch and cuts the work into items. One small class per op is
// in ops/<op>.cc, behind a function of the table in cpu_ops.def; none of them depends on
// the model.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/attention/kv_layout.h"
#include "kernels/matmul/matmul.h"
#include "lib/ops/step_attrs.h"
#include "lib/plan/plan_reader.h"
#include "lib/program/program.h"
#include "lib/runtime/cache/kv_pools.h"
#include "lib/runtime/cpu/cpu_op_table.h"
#include "lib/runtime/engine/arena.h"
#include "lib/runtime/engine/batch.h"
#include "lib/support/result.h"
#include "lib/target/isa.h"

namespace ktx::runtime {

// How many rows of `width` elements make an item: about 16 Ki elements, which take
// some microseconds, so that small steps stay on one thread.
constexpr int64_t rows_per_item(int64_t width) {
  constexpr int64_t kItemElems = 16384;
  return width <= 0 || width >= kItemElems ? 1 : kItemElems / width;
}
constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Item number -> rows [begin, end) for steps whose items are runs of rows.
struct RowSplit {
  int64_t rows = 0;
  int64_t grain = 1;
  int64_t items() const { return ceil_div(rows, grain); }
  int64_t begin(int64_t item) const { return item * grain; }
  int64_t end(int64_t item) const { return std::min(rows, (item + 1) * grain); }
};

struct StepWork {
  int64_t items = 0;
  int64_t weight_bytes = 0;     // of weights and states that this step reads or writes, for GB/s
  const char* fault = nullptr;  // the step cannot run: a damaged plan
  RowSplit rows = {};           // of row-wise steps: what their items are
};

// What the steps behind a product may read after an item of it: columns [col_begin, col_end) of
// rows[i], or of row i itself, for i in [begin, end). Rows are inner ones (StepFacts::inner_rows);
// columns begin and end at groups that lead_part names, or at the end of the row. None are left
// to an item whose groups other items have yet to complete.
struct OutputRegion {
  const int32_t* rows = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t col_begin = 0;
  int64_t col_end = 0;
};

class CpuStep {
 public:
  virtual ~CpuStep() = default;
  // Called by one thread when all earlier stages are done; of steps that run one
  // after the other on a few rows, before the first of them. `batch` stays alive and
  // unchanged until the step is over.
  virtual StepWork begin(const Batch& batch) = 0;
  // One item; scratch is this thread's own, scratch_bytes() long, 64-byte aligned.
  virtual void run(int64_t item, std::byte* scratch) = 0;
  // Row-wise steps (is_row_wise): any run of rows instead of an item.
  virtual void run_rows(int64_t /*begin*/, int64_t /*end*/, std::byte* /*scratch*/) {}
  // Products (is_product): what the steps behind it in its part may read after run(item), taken
  // once for each item; and how many products such a part has and in what groups of columns
  // its steps work, given once, before the first step.
  virtual OutputRegion done(int64_t /*item*/) { return {}; }
  virtual void lead_part(int64_t /*products*/, int64_t /*column_group*/) {}
  // Products: the weight, and whose rows this thread reads after this step's; given once.
  // `later`: those of a later item, not of the same region.
  virtual const kernels::WeightMatrix* weight() const { return nullptr; }
  virtual void followed_by(const kernels::WeightMatrix& /*weight*/, bool /*later*/) {}
  // Steps that may stand behind a product: matmul, and those by columns.
  virtual void run_region(const OutputRegion& /*region*/, std::byte* /*scratch*/) {}
  virtual int64_t scratch_bytes() const { return 0; }
};

// An activation in the form that kernels take.
struct BoundView {
  std::byte* data = nullptr;  // the view's first element in row 0; null: absent
  int64_t stride_bytes = 0;   // from one whole row to the next
  int64_t width = 0;          // elements of the view
  int64_t rows_per_row = 1;
  RowKind rows = RowKind::Token;
  ValueType type = ValueType::F32;

  float* f32() const { return reinterpret_cast<float*>(data); }
  int32_t* i32() const { return reinterpret_cast<int32_t*>(data); }
  int64_t stride() const { return stride_bytes / 4; }       // in elements of F32 and I32
  bool whole() const { return width * 4 == stride_bytes; }  // of F32 and I32
};

// For kernels that need rows without gaps.
Status require_whole(const BoundView& view, const char* name);

// A weight blob: the first of its matrices, and how to reach the others.
struct BoundWeight {
  kernels::WeightMatrix matrix;
  int64_t matrices = 0;  // 0: absent
  int64_t matrix_bytes = 0;
  const float* f32() const { return reinterpret_cast<const float*>(matrix.data); }
  int64_t bytes() const { return matrices * matrix_bytes; }
};

// Fails where kernels of that family read another layout, which a plan may say of any weight.
Status require_layout(std::string_view family, const BoundWeight& weight);

// Where attention puts the parts of long rows that threads share, and where the choice of positions
// puts the best of each part: one for all such steps, as no two of them are in one stage.
struct AttentionPartials {
  Arena memory;                            // floats
  std::vector<std::atomic<int64_t>> left;  // parts that a row still waits for
  float* floats() const { return reinterpret_cast<float*>(memory.data()); }
  int64_t float_count() const { return static_cast<int64_t>(memory.size() / sizeof(float)); }
};

// For a choice of positions: the parts of a token's context that threads score at once, and the
// floats of that memory that one token needs.
constexpr int64_t kChoicePart = 512;  // positions, at least
constexpr int64_t kMaxChoiceParts = 64;
constexpr int64_t choice_partial_floats(int64_t lists, int64_t top_k, int64_t ctx) {
  const int64_t parts = std::min(kMaxChoiceParts, ceil_div(ctx, kChoicePart));
  return parts * lists * (top_k + 1) * 2;  // candidates and their number, of 8 bytes each
}

// Points a slot's view to the tokens of a pass and to the tables of its kind.
void use_batch(kernels::KvView& kv, const Batch& batch, SequenceKind kind);

class ExpertCounts;
class ExpertCache;
class ExpertGuests;
struct LoraProduct;

// What binding one step may look at.
struct BindContext {
  const plan::PlanView& plan;
  const program::Step& step;
  std::byte* arena = nullptr;
  std::span<const uint64_t> buffer_offsets;
  const KvPools& kv;
  Isa isa = Isa::Scalar;
  int precision = 0;  // first index of Step::kernels
  int threads = 1;
  int shares = 1;                         // of the thread pool: NUMA nodes
  AttentionPartials* partials = nullptr;  // null: threads do not share rows
  ExpertCounts* expert_counts = nullptr;  // null: activations are not counted
  ExpertCache* experts = nullptr;         // null: all are in the mapping
  ExpertGuests* guests = nullptr;         // null: experts stay where the plan has them
  const LoraProduct* lora = nullptr;      // of a product; null: it has no low-rank terms

  BoundView input(int i) const { return view(step.inputs, i); }
  BoundView output(int i) const { return view(step.outputs, i); }
  Result<BoundWeight> weight(int i) const;  // fails when it is not there
  Result<BoundWeight> optional_weight(int i) const;
  kernels::KvView kv_view(int32_t slot) const;
  std::string_view family() const { return step.kernels[precision]; }
  template <class Attrs>
  Attrs attrs() const {
    return std::get<Attrs>(step.attrs);
  }

 private:
  BoundView view(const std::vector<program::View>& operands, int i) const;
};

// The function of cpu_ops.def for an op; null when this device has none.
MakeStep cpu_op(StepOp op);

}  // namespace ktx::runtime
