// Groups steps into stages, whose steps may run in parallel.
//
// The threads of a device share the work of a stage between two barriers. Its steps do not depend
// on each other, or only row by row. In a decoder layer:
//
//   n = rms_norm(x); nq = quantize(n)        one part: rows go through both in turn
//   q = matmul(nq); k = matmul(nq); ...      three parts, items handed out together
//   rope(q); rope(k); kv_store(k, v)         one part
//   a = attention(q)                         one part
//
//   g = matmul(nq); u = matmul(nq)           one part: a run of columns of both, the
//   u = glu(g, u); uq = quantize(u)         glu of them and their int8 form in turn
//
// So decode has one barrier each for qkv, attention, o, gate and up, and down. A part of one row is
// a single item and needs no barrier; the thread that wrote gate and up reads them again. A step
// moves to the earliest stage that its inputs allow (the gate of a shared expert joins the router).
// That does not change the order of operations within an output, and so no bit of it.
//
// The compiler orders steps by stage and keeps their buffers apart within one. The runtime groups
// again by the memory that steps actually touch, so a damaged plan cannot make two threads write
// one buffer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/ops/step_attrs.h"
#include "lib/ops/step_ops.h"

namespace ktx {

// Elements [begin, end) of every row of a value, or a whole KV slot.
struct StepAccess {
  int32_t value = 0;   // equal numbers: the same rows at the same places
  int32_t memory = 0;  // equal numbers, other value: places unknown to each other
  int64_t begin = 0;
  int64_t end = 0;
  bool write = false;
  bool by_row = false;  // row r of the step touches row r of the value only
};

struct StepFacts {
  StepOp op = StepOp::Embed;
  int32_t device = 0;  // steps of different devices are never grouped
  RowKind rows = RowKind::Token;
  std::vector<StepAccess> accesses;
  // How many consecutive input rows form one row of the first output; 0 if output rows are
  // not built from whole input rows.
  int32_t inner_rows = 1;
};

// Steps by their index. The prelude is run by one thread before the parts begin.
// A part of several steps takes a run of rows through all of them, or, when it begins
// with a product, a run of columns (of each inner row).
struct Stage {
  std::vector<int32_t> prelude;
  std::vector<std::vector<int32_t>> parts;
};

// The traits of an op (step_ops.def) as they are asked for: whether row r of its outputs
// depends on row r of its inputs alone; whether it reads them so (gather_rows makes rows
// alone, but reads any).
bool is_row_wise(StepOp op);
bool reads_by_row(StepOp op);
// Whether column c of its outputs depends on column c of its inputs alone, up to groups of
// column_group(op); inputs of products are read whole.
bool is_column_wise(StepOp op);
int64_t column_group(StepOp op);
// Whether its items are runs of columns, after which column-wise steps may come.
bool is_product(StepOp op);

// StepFacts::inner_rows of a step whose first input and output are so many elements wide.
int32_t inner_rows(StepOp op, const StepAttrs& attrs, int64_t x_width, int64_t y_width);
// That of a quantize step.
int32_t quantize_inner_rows(const QuantizeAttrs& attrs, int64_t x_width, int64_t xq_width);

// Every step exactly once; a step comes after all those before it in `steps` whose
// memory it shares (unless both only read).
std::vector<Stage> find_stages(std::span<const StepFacts> steps);

}  // namespace ktx
