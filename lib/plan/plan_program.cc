#include "lib/plan/plan_program.h"

#include <fmt/format.h>

#include "lib/formats/layout.h"
#include "lib/launches/verify_launches.h"
#include "lib/plan/memory.h"

namespace ktx::plan {
namespace {

int32_t index_of(uint32_t number) {
  return number == kNone ? launches::kNone : static_cast<int32_t>(number);
}

std::vector<launches::ListedOperand> operands(std::span<const OperandRecord> records) {
  std::vector<launches::ListedOperand> out;
  out.reserve(records.size());
  for (const OperandRecord& r : records) out.push_back({index_of(r.value), r.offset, r.width});
  return out;
}

Status check_indices(const PlanView& plan) {
  const auto is_string = [&](uint32_t i) { return i < plan.string_entries.size(); };
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const PartRecord& part = plan.parts[i];
    const auto kind = static_cast<launches::Part::Kind>(part.kind);
    const bool copies = kind == launches::Part::Kind::Peer || kind == launches::Part::Kind::Network;
    if (part.kind <= static_cast<uint32_t>(launches::Part::Kind::Reduce) &&
        is_string(part.device) && (copies ? is_string(part.from) : part.from == kNone)) {
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

std::vector<launches::Part> parts_of(const PlanView& plan) {
  std::vector<launches::Part> parts;
  for (const PartRecord& part : plan.parts) {
    parts.push_back({.kind = static_cast<launches::Part::Kind>(part.kind),
                     .device = std::string(plan.string(part.device)),
                     .from = std::string(plan.string_or_empty(part.from)),
                     .first_step = static_cast<int32_t>(part.first_step),
                     .step_count = static_cast<int32_t>(part.step_count)});
  }
  return parts;
}

std::vector<launches::Launch> launches_of(const PlanView& plan) {
  std::vector<launches::Launch> all;
  for (const LaunchRecord& record : plan.launches) {
    launches::Launch& launch = all.emplace_back();
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

}  // namespace

launches::StepList step_list(const PlanView& plan) {
  launches::StepList list;
  for (const ValueRecord& value : plan.values) {
    list.values.push_back({static_cast<int32_t>(value.buffer), static_cast<RowKind>(value.rows),
                           static_cast<int64_t>(value_row_bytes(value)) / 4, value.rows_per_row});
  }
  for (const StepRecord& step : plan.steps) {
    launches::ListedStep& listed = list.steps.emplace_back();
    listed.op = static_cast<StepOp>(step.op);
    listed.layer = step.layer;
    listed.device = std::string(plan.string(step.device));
    listed.inputs = operands(plan.inputs(step));
    listed.outputs = operands(plan.outputs(step));
    listed.attrs = attrs_from_bytes(listed.op, plan.attrs_bytes(step));
    for (uint32_t number : plan.weights(step)) {
      launches::ListedWeight& weight = listed.weights.emplace_back();
      if (number == kNone) continue;
      const BlobRecord& blob = plan.blobs[number];
      weight = {static_cast<DType>(blob.dtype),
                static_cast<Layout>(blob.layout),
                blob.rows,
                blob.cols,
                blob.matrices,
                static_cast<int32_t>(number)};
    }
  }
  list.logits = index_of(plan.facts.logits_value);
  return list;
}

void add_launches(PlanContents& contents, std::span<const launches::Part> parts,
                  std::span<const launches::Launch> launches) {
  for (const launches::Part& part : parts) {
    contents.parts.push_back(
        {.kind = static_cast<uint32_t>(part.kind),
         .device = contents.strings.intern(part.device),
         .from = part.from.empty() ? kNone : contents.strings.intern(part.from),
         .first_step = static_cast<uint32_t>(part.first_step),
         .step_count = static_cast<uint32_t>(part.step_count)});
  }
  for (const launches::Launch& launch : launches) {
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

launches::Program program_of(const PlanView& plan) {
  launches::Program program{step_list(plan), parts_of(plan), launches_of(plan), {}};
  program.streams = launches::streams_of(program.list, program.parts, program.launches);
  return program;
}

Result<launches::Program> read_program(const PlanView& plan) {
  KTX_TRY(check_indices(plan));
  launches::Program program{step_list(plan), parts_of(plan), launches_of(plan), {}};
  KTX_TRY(launches::verify_parts(program.list, program.parts));
  KTX_TRY(launches::verify_launches(program.list, program.parts, program.launches));
  program.streams = launches::streams_of(program.list, program.parts, program.launches);
  return program;
}

}  // namespace ktx::plan
