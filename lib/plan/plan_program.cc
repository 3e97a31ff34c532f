#include "lib/plan/plan_program.h"

#include <fmt/format.h>

#include <cstring>

#include "lib/plan/check_step_records.h"
#include "lib/plan/plan_hosts.h"
#include "lib/program/launch_choice.h"
#include "lib/program/verify_launches.h"

namespace ktx::plan {
namespace {

int32_t index_of(uint32_t number) {
  return number == kNone ? program::kAbsent : static_cast<int32_t>(number);
}

std::vector<program::View> views(std::span<const OperandRecord> records) {
  std::vector<program::View> out;
  out.reserve(records.size());
  for (const OperandRecord& r : records) out.push_back({index_of(r.value), r.offset, r.width});
  return out;
}

Status check_launch_fields(const PlanView& plan) {
  const auto is_string = [&](uint32_t i) { return i < plan.string_entries.size(); };
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const PartRecord& part = plan.parts[i];
    const auto kind = static_cast<program::Part::Kind>(part.kind);
    const bool copies = kind == program::Part::Kind::Peer || kind == program::Part::Kind::Network;
    if (part.kind <= static_cast<uint32_t>(program::Part::Kind::Reduce) && is_string(part.device) &&
        (copies ? is_string(part.from) : part.from == kNone)) {
      continue;
    }
    return Error{
        fmt::format("part {}: kind {}, device {}, from {}", i, part.kind, part.device, part.from)};
  }
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    const LaunchRecord& launch = plan.launches[i];
    const uint64_t count = plan.launch_steps.size();
    if ((launch.fused_op == kNone || launch.fused_op < all_fused_ops().size()) &&
        is_string(launch.kernel) && launch.first_step <= count &&
        launch.step_count <= count - launch.first_step) {
      continue;
    }
    return Error{fmt::format("launch {}: fused op {}, kernel {}, steps {} to {} of {}", i,
                             launch.fused_op, launch.kernel, launch.first_step,
                             uint64_t{launch.first_step} + launch.step_count, count)};
  }
  return {};
}

std::vector<program::Part> parts_of(const PlanView& plan) {
  std::vector<program::Part> parts;
  for (const PartRecord& part : plan.parts) {
    parts.push_back({.kind = static_cast<program::Part::Kind>(part.kind),
                     .device = std::string(plan.string(part.device)),
                     .from = std::string(plan.string_or_empty(part.from)),
                     .first_step = static_cast<int32_t>(part.first_step),
                     .step_count = static_cast<int32_t>(part.step_count)});
  }
  return parts;
}

std::vector<program::Launch> launches_of(const PlanView& plan) {
  std::vector<program::Launch> all;
  for (const LaunchRecord& record : plan.launches) {
    program::Launch& launch = all.emplace_back();
    if (record.fused_op != kNone) launch.op = static_cast<FusedOp>(record.fused_op);
    for (uint32_t step : plan.launch_steps.subspan(record.first_step, record.step_count)) {
      launch.steps.push_back(static_cast<int32_t>(step));
    }
    launch.kernel = std::string(plan.string(record.kernel));
    launch.least_tokens = record.least_tokens;
    launch.most_tokens = record.most_tokens;
    launch.least_sm = record.least_sm;
    launch.most_sm = record.most_sm;
    launch.needs = record.needs;
    launch.least_run = record.least_run;
  }
  return all;
}

void add_weights(const PlanView& plan, program::Program& program) {
  program.blobs.reserve(plan.blobs.size());
  for (const BlobRecord& record : plan.blobs) {
    program::Blob& blob = program.blobs.emplace_back();
    blob.name = plan.string(record.name);
    blob.dtype = static_cast<DType>(record.dtype);
    blob.layout = static_cast<Layout>(record.layout);
    blob.rows = record.rows;
    blob.cols = record.cols;
    blob.matrices = record.matrices;
    for (const SliceRecord& slice : plan.slices.subspan(record.first_slice, record.slice_count)) {
      const GgufTensorRecord& tensor = plan.gguf_tensors[slice.tensor];
      const bool all = slice.row_count == tensor.rows * tensor.row_elems / record.cols;
      blob.sources.push_back(
          {std::string(plan.string(tensor.name)), slice.first_row, all ? -1 : slice.row_count});
    }
  }
  for (const SegmentRecord& segment : plan.segments) {
    const bool carried = segment.kind == static_cast<uint32_t>(SegmentKind::Carried);
    for (uint32_t i = 0; i < segment.blob_count; ++i) {
      program.blobs[segment.first_blob + i].device =
          carried ? program::kNoDevice : plan.string(segment.device);
    }
  }
}

uint32_t add_operands(PlanContents& contents, const std::vector<program::View>& views) {
  std::vector<OperandRecord> records;
  for (const program::View& view : views) {
    if (view.value == program::kAbsent) {
      records.push_back({kNone, 0, 0});
    } else {
      records.push_back({static_cast<uint32_t>(view.value), static_cast<uint32_t>(view.offset),
                         static_cast<uint32_t>(view.width)});
    }
  }
  return contents.add_operands(records);
}

void add_step(PlanContents& contents, const program::Step& step, std::span<const uint32_t> blobs) {
  StepRecord record = {};
  record.op = static_cast<uint32_t>(step.op);
  record.module = contents.strings.intern(step.module);
  record.layer = step.layer;
  record.device = contents.strings.intern(step.device);
  record.first_input = add_operands(contents, step.inputs);
  record.input_count = static_cast<uint32_t>(step.inputs.size());
  record.first_output = add_operands(contents, step.outputs);
  record.output_count = static_cast<uint32_t>(step.outputs.size());
  std::vector<uint32_t> weights;
  for (const program::BlobId blob : step.weights) {
    weights.push_back(blob == program::kAbsent ? kNone : blobs[blob]);
  }
  record.first_weight = contents.add_weight_uses(weights);
  record.weight_count = static_cast<uint32_t>(weights.size());
  record.attrs_offset = contents.add_attrs(step.attrs);
  record.attrs_size = stored_bytes(step.attrs);
  for (int p = 0; p < program::kPrecisions; ++p) {
    const std::string& kernel = step.kernels[p];
    record.kernel[p] = kernel.empty() ? kNone : contents.strings.intern(kernel);
  }
  contents.steps.push_back(record);
}

void add_launches(PlanContents& contents, const program::Program& program) {
  for (const program::Part& part : program.parts) {
    contents.parts.push_back(
        {.kind = static_cast<uint32_t>(part.kind),
         .device = contents.strings.intern(part.device),
         .from = part.from.empty() ? kNone : contents.strings.intern(part.from),
         .first_step = static_cast<uint32_t>(part.first_step),
         .step_count = static_cast<uint32_t>(part.step_count)});
  }
  for (const program::Launch& launch : program.launches) {
    contents.launches.push_back({.fused_op = launch.op ? static_cast<uint32_t>(*launch.op) : kNone,
                                 .kernel = contents.strings.intern(launch.kernel),
                                 .first_step = static_cast<uint32_t>(contents.launch_steps.size()),
                                 .step_count = static_cast<uint32_t>(launch.steps.size()),
                                 .least_tokens = static_cast<uint32_t>(launch.least_tokens),
                                 .most_tokens = static_cast<uint32_t>(launch.most_tokens),
                                 .least_sm = static_cast<uint16_t>(launch.least_sm),
                                 .most_sm = static_cast<uint16_t>(launch.most_sm),
                                 .needs = launch.needs,
                                 .least_run = static_cast<uint32_t>(launch.least_run)});
    contents.launch_steps.insert(contents.launch_steps.end(), launch.steps.begin(),
                                 launch.steps.end());
  }
}

program::Step step_of(const PlanView& plan, const StepRecord& record) {
  program::Step step;
  step.op = static_cast<StepOp>(record.op);
  step.module = plan.string(record.module);
  step.layer = record.layer;
  step.device = plan.string(record.device);
  step.inputs = views(plan.inputs(record));
  step.outputs = views(plan.outputs(record));
  for (const uint32_t blob : plan.weights(record)) step.weights.push_back(index_of(blob));
  step.attrs = attrs_from_bytes(step.op, plan.attrs_bytes(record));
  for (int p = 0; p < program::kPrecisions; ++p) {
    step.kernels[p] = plan.string_or_empty(record.kernel[p]);
  }
  return step;
}

}  // namespace

void add_program(PlanContents& contents, const program::Program& program,
                 std::span<const uint32_t> blobs) {
  for (const program::Value& value : program.values) {
    contents.values.push_back({.name = contents.strings.intern(value.name),
                               .type = static_cast<uint8_t>(value.type),
                               .rows = static_cast<uint8_t>(value.rows),
                               .reserved = 0,
                               .rows_per_row = static_cast<uint32_t>(value.rows_per_row),
                               .buffer = static_cast<uint32_t>(value.buffer),
                               .width = value.width});
  }
  for (const program::Buffer& buffer : program.buffers) {
    contents.buffers.push_back(
        {buffer.fixed_bytes, buffer.bytes_per_token, buffer.bytes_per_output});
  }
  for (const program::KvSlot& slot : program.kv_slots) {
    contents.kv_slots.push_back(
        {.layer = slot.layer,
         .kv_heads = slot.kv_heads,
         .key_dim = slot.key_dim,
         .value_dim = slot.value_dim,
         .device = contents.strings.intern(slot.device),
         .window = slot.window | static_cast<int32_t>(slot.named) << kSlotKindShift});
  }
  for (const program::Step& step : program.steps) add_step(contents, step, blobs);
  add_launches(contents, program);
}

program::Program steps_of(const PlanView& plan) {
  program::Program program;
  add_weights(plan, program);
  for (const ValueRecord& value : plan.values) {
    program.values.push_back({.name = std::string(plan.string(value.name)),
                              .type = static_cast<ValueType>(value.type),
                              .rows = static_cast<RowKind>(value.rows),
                              .rows_per_row = static_cast<int32_t>(value.rows_per_row),
                              .width = value.width,
                              .buffer = static_cast<int32_t>(value.buffer)});
  }
  for (const BufferRecord& buffer : plan.buffers) {
    program.buffers.push_back(
        {buffer.fixed_bytes, buffer.bytes_per_token, buffer.bytes_per_output});
  }
  for (const KvSlotRecord& slot : plan.kv_slots) {
    program.kv_slots.push_back({slot.layer, slot.kv_heads, slot.key_dim, slot.value_dim,
                                std::string(plan.string(slot.device)),
                                slot.window & kSlotWindowMask,
                                static_cast<program::SequenceKind>(slot.window >> kSlotKindShift)});
  }
  program.steps.reserve(plan.steps.size());
  for (const StepRecord& record : plan.steps) program.steps.push_back(step_of(plan, record));
  return program;
}

program::Program program_of(const PlanView& plan) {
  program::Program program = steps_of(plan);
  program.parts = parts_of(plan);
  program.launches = launches_of(plan);
  program.groups = program::groups_of(program.launches);
  return program;
}

std::string program_text(const PlanView& plan) {
  program::Program program = *plan.program;
  for (const SegmentRecord& segment : plan.segments) {
    if (!has_weights(plan, segment)) continue;
    for (uint32_t i = segment.first_blob; i < segment.first_blob + segment.blob_count; ++i) {
      if (plan.blobs[i].slice_count > 0) continue;
      const std::span<const std::byte> bytes = plan.blob_bytes(i);
      program.blobs[i].constant.resize(bytes.size() / sizeof(float));
      std::memcpy(program.blobs[i].constant.data(), bytes.data(), bytes.size());
    }
  }
  return program::print(program);
}

Result<program::Program> load_program(const PlanView& plan) {
  KTX_TRY(check_step_fields(plan));
  KTX_TRY(check_launch_fields(plan));
  program::Program program = program_of(plan);
  KTX_TRY(check_steps(plan, program));
  KTX_TRY(program::verify_parts(program));
  KTX_TRY(program::verify_launches(program));
  return program;
}

}  // namespace ktx::plan
