// The step program: what runs, in order.
//
// Lowered from the module graph after placement. One ragged program serves decode
// and prefill: values have rows per token, per wanted logits row, or one in all,
// and the numbers of both are known only when a step runs. Each step names the
// module it came from. The text form (print, parse) round-trips exactly:
//
//   value name=n rows=token type=f32 width=256 buffer=0
//   blob name=blk.0.attn_q.weight dtype=Q4_K layout=rows rows=256 ...
//   from=blk.0.attn_q.weight:0:256
//
//   step op=matmul module=model.layers.0.self_attn.q_proj layer=0 device=cpu in=n:0:256 ...
//
// The ops are in lib/ops/step_ops.def, their attributes in step_attrs.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/formats/dtype.h"
#include "lib/formats/layout.h"
#include "lib/formats/tensor_slice.h"
#include "lib/ops/step_attrs.h"
#include "lib/ops/step_ops.h"
#include "lib/program/launch.h"
#include "lib/program/sequence_kind.h"
#include "lib/support/diag.h"
#include "lib/support/result.h"

namespace ktx::program {

using ValueId = int32_t;
using BlobId = int32_t;
inline constexpr int32_t kAbsent = -1;  // an operand or weight that is not there

// An activation. A whole row is rows_per_row * width elements.
struct Value {
  std::string name;
  ValueType type = ValueType::F32;
  RowKind rows = RowKind::Token;
  int32_t rows_per_row = 1;
  int64_t width = 0;
  int32_t buffer = kAbsent;  // set by plan_memory
};

// Elements [offset, offset + width) of each whole row of a value.
struct View {
  ValueId value = kAbsent;
  int64_t offset = 0;
  int64_t width = 0;
  bool operator==(const View&) const = default;
};

// A packing unit: `matrices` matrices of rows x cols weights. Either rows of GGUF
// tensors or a constant that the compiler made (F32).
struct Blob {
  std::string name;
  DType dtype = DType::F32;
  Layout layout = Layout::Rows;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t matrices = 1;
  std::vector<TensorSlice> sources;
  std::vector<float> constant;
  std::string device;
};

// The device of weights that no step reads, kept for export alone.
inline constexpr std::string_view kNoDevice = "none";

inline constexpr int kPrecisions = 2;  // exact, fast
using Kernels = std::array<std::string, kPrecisions>;

struct Step {
  StepOp op = StepOp::Embed;
  std::string module;
  int32_t layer = -1;
  std::string device;
  std::vector<View> inputs;  // in the order of step_ops.def; kAbsent where missing
  std::vector<View> outputs;
  std::vector<BlobId> weights;
  StepAttrs attrs;
  Kernels kernels;  // set by choose_kernels; empty: nothing to do
  // For routed experts: the share of the layer's activations that these are expected to get.
  float use = 1;
};

struct KvSlot {
  int32_t layer = 0;
  int32_t kv_heads = 0;
  int32_t key_dim = 0;
  int32_t value_dim = 0;  // 0: values live in the key
  std::string device;
  int32_t window = 0;  // a token reads so many positions at most, its own included; 0: all
  SequenceKind named = SequenceKind::Whole;  // its kind, unless `window` says Window

  SequenceKind kind() const {
    return named == SequenceKind::Whole && window > 0 ? SequenceKind::Window : named;
  }
};

// An arena buffer: fixed + per_token * T + per_output * R bytes.
struct Buffer {
  uint64_t fixed_bytes = 0;
  uint64_t bytes_per_token = 0;
  uint64_t bytes_per_output = 0;
};

struct Program {
  std::vector<Value> values;
  std::vector<Blob> blobs;
  std::vector<KvSlot> kv_slots;
  std::vector<Step> steps;
  std::vector<Buffer> buffers;
  std::vector<Part> parts;         // set by cut_parts
  std::vector<FusedGroup> groups;  // set by fuse_steps
  std::vector<Launch> launches;    // set by choose_launches

  View whole(ValueId value) const;  // all elements of its rows

  // The value of an operand of a step; kAbsent where it is missing.
  ValueId input(size_t step, size_t operand) const;
  ValueId output(size_t step, size_t operand = 0) const;
  // The kind of rows that a step has: that of its first output, or of what it stores.
  RowKind rows(const Step& step) const;
  // A weight of a step; null where it is missing.
  const Blob* weight(const Step& step, size_t number) const;
  // What the last step writes; kAbsent without steps.
  ValueId logits() const { return steps.empty() ? kAbsent : output(steps.size() - 1); }
  // The last step before `end` that writes a value; steps.size() where none does.
  size_t last_writer(ValueId value, size_t end = SIZE_MAX) const;
  // The product that the logits come from, or their first part where GPUs divide the vocabulary;
  // steps.size() where they come from another step.
  size_t head() const;
};

// Elements and bytes of one whole row of a value.
inline int64_t row_elements(const Value& value) {
  return value.width * value.rows_per_row;
}
int64_t row_bytes(const Value& value);

// The bytes of all matrices of a blob, stored in `layout` or in its own layout.
uint64_t blob_bytes(const Blob& blob, Layout layout);
inline uint64_t blob_bytes(const Blob& blob) {
  return blob_bytes(blob, blob.layout);
}

std::string print(const Program& program);
// The lines of parts, groups and launches alone.
std::string print_launches(const Program& program);

// The program that print wrote; errors as "FILE:LINE: what". Safe for untrusted text.
Result<Program> parse(std::string_view text, const std::string& file);

// Every violation of the rules that the runtime relies on (step_verifier.h). `devices`: of those
// about devices, too, which hold from insert-transfers on.
void verify(const Program& program, DiagSink& sink, bool devices = false);

// By value: the device of the first step that writes it; "" when none does.
std::vector<std::string> value_devices(const Program& program);
// By buffer: that of the first step that writes a value in it; "cpu" when none does.
std::vector<std::string> buffer_devices(const Program& program);
// The buffers of a device; the others take no bytes.
std::vector<Buffer> buffers_on(const Program& program, std::string_view device);

}  // namespace ktx::program
