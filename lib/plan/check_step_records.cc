#include "lib/plan/check_step_records.h"

#include <fmt/format.h>

#include "lib/formats/dtype.h"
#include "lib/formats/step_attrs.h"
#include "lib/plan/op_rules.h"
#include "lib/plan/step_check.h"
#include "lib/support/strings.h"

namespace ktx::plan {
namespace {

// Whether operand i of a list such as "x xq? order" may be absent.
bool optional_operand(std::string_view list, uint32_t i) {
  const auto names = split(list, ' ');
  return i < names.size() && names[i].ends_with('?');
}

// Ranges of the step's own fields, and that required operands are there.
void check_fields(StepCheck& s) {
  const StepRecord& step = s.step;
  const PlanView& plan = s.plan;
  const StepOpInfo& op = info(static_cast<StepOp>(step.op));
  const auto is_string = [&](uint32_t i) { return i < plan.string_entries.size(); };
  const auto in_table = [&](const char* what, uint64_t first, uint64_t count, uint64_t size) {
    return s.require(first <= size && count <= size - first, "{} {} to {} of {}", what, first,
                     first + count, size);
  };
  s.require(is_string(step.module) && is_string(step.device), "module {} or device {} is no string",
            step.module, step.device);
  s.in_range("layer", step.layer, -1, plan.facts.layers - 1);
  for (const auto& row : step.kernel) {
    for (uint32_t kernel : row) {
      s.require(kernel == kNone || is_string(kernel), "kernel {} is no string", kernel);
    }
  }
  if (!in_table("inputs", step.first_input, step.input_count, plan.operands.size()) ||
      !in_table("outputs", step.first_output, step.output_count, plan.operands.size()) ||
      !in_table("weights", step.first_weight, step.weight_count, plan.weight_uses.size()) ||
      !in_table("attributes", step.attrs_offset, step.attrs_size, plan.attrs.size())) {
    return;
  }
  s.require(step.attrs_size == op.attrs_size && step.attrs_offset % 4 == 0,
            "{} bytes of attributes at {}, expected {}", step.attrs_size, step.attrs_offset,
            op.attrs_size);
  const auto count = [&](const char* what, uint32_t have, std::string_view list) {
    const auto most = static_cast<uint32_t>(operand_count(list));
    uint32_t least = most;  // absent ones at the end may be left out
    while (least > 0 && optional_operand(list, least - 1)) --least;
    s.require(have >= least && have <= most, "{} {}, expected {} ({})", have, what, most, list);
  };
  count("inputs", step.input_count, op.inputs);
  count("outputs", step.output_count, op.outputs);
  count("weights", step.weight_count, op.weights);
  if (!s.ok()) return;

  for (uint32_t i = 0; i < step.input_count; ++i) {
    s.require(s.in(i).present() || optional_operand(op.inputs, i), "input {} ({}) is missing", i,
              op.inputs);
  }
  for (uint32_t i = 0; i < step.output_count; ++i) {
    s.require(s.out(i).present(), "output {} ({}) is missing", i, op.outputs);
  }
  for (uint32_t i = 0; i < step.weight_count; ++i) {
    const uint32_t blob = plan.weight_uses[step.first_weight + i];
    if (blob == kNone) {
      s.require(optional_operand(op.weights, i), "weight {} ({}) is missing", i, op.weights);
      continue;
    }
    if (!s.require(blob < plan.blobs.size(), "weight {} of {}", blob, plan.blobs.size())) return;
    s.require(plan.blobs[blob].dtype != static_cast<uint16_t>(DType::I32),
              "weight {} has integer elements", i);
    for (const SegmentRecord& segment : plan.segments) {
      if (blob - segment.first_blob >= segment.blob_count) continue;
      s.require(segment.kind == static_cast<uint32_t>(SegmentKind::Weights),
                "weight {} is only carried for export", i);
      break;
    }
  }
}

// Device names are strings, each once: equal numbers are equal devices.
bool same_device(const PlanView& plan, uint32_t a, uint32_t b) {
  return a == b || plan.string(a) == plan.string(b);
}

int32_t kv_slot_of(const StepCheck& s) {
  switch (static_cast<StepOp>(s.step.op)) {
    case StepOp::KvStore:
      return s.attrs<KvStoreAttrs>().slot;
    case StepOp::Attention:
      return s.attrs<AttentionAttrs>().slot;
    default:
      return -1;
  }
}

// A step touches the memory of its own device only; a transfer reads another's.
void check_device(StepCheck& s) {
  const PlanView& plan = s.plan;
  const uint32_t own = s.step.device;
  const bool transfer = s.step.op == static_cast<uint32_t>(StepOp::Transfer);
  for (uint32_t i = 0; i < s.step.input_count; ++i) {
    const Operand x = s.in(i);
    if (!x.present()) continue;
    const uint32_t from = s.flow.device[x.value->buffer];
    if (from == kNone) continue;  // never written, which check_flow reports
    s.require(same_device(plan, from, own) != transfer, "it is on {} and input {} on {}",
              printable(plan.string(own)), i, printable(plan.string(from)));
  }
  for (uint32_t o = 0; o < s.step.output_count; ++o) {
    uint32_t& to = s.flow.device[s.out(o).value->buffer];
    if (to == kNone) to = own;
    s.require(same_device(plan, to, own), "it is on {} and output {} on {}",
              printable(plan.string(own)), o, printable(plan.string(to)));
  }
  for (uint32_t i = 0; i < s.step.weight_count; ++i) {
    const uint32_t blob = plan.weight_uses[s.step.first_weight + i];
    if (blob == kNone) continue;
    for (const SegmentRecord& segment : plan.segments) {
      if (blob - segment.first_blob >= segment.blob_count) continue;
      s.require(same_device(plan, segment.device, own), "it is on {} and weight {} on {}",
                printable(plan.string(own)), i, printable(plan.string(segment.device)));
      break;
    }
  }
  const int32_t slot = kv_slot_of(s);
  if (slot >= 0) {
    s.require(same_device(plan, plan.kv_slots[slot].device, own), "it is on {} and slot {} on {}",
              printable(plan.string(own)), slot,
              printable(plan.string(plan.kv_slots[slot].device)));
  }
}

bool accumulates(const StepCheck& s) {
  switch (static_cast<StepOp>(s.step.op)) {
    case StepOp::Matmul:
      return s.attrs<MatmulAttrs>().accumulate != 0;
    case StepOp::ExpertsDown:
      return s.attrs<ExpertsAttrs>().accumulate != 0;
    default:
      return false;
  }
}

// Reads only what is there, and writes beside what it reads.
void check_flow(StepCheck& s, InPlace in_place) {
  Flow& flow = s.flow;
  const auto must_be_there = [&](const char* what, uint32_t i, const Operand& operand) {
    s.require(flow.owner[operand.value->buffer] == operand.id,
              "{} {} reads value '{}' before it is written, or after its memory was reused", what,
              i, printable(s.plan.string(operand.value->name)));
  };
  for (uint32_t i = 0; i < s.step.input_count; ++i) {
    if (s.in(i).present()) must_be_there("input", i, s.in(i));
  }
  for (uint32_t o = 0; o < s.step.output_count; ++o) {
    const Operand y = s.out(o);
    if (accumulates(s)) must_be_there("output", o, y);
    for (uint32_t i = 0; i < s.step.input_count; ++i) {
      const Operand x = s.in(i);
      if (!x.present() || x.value->buffer != y.value->buffer) continue;
      const bool beside = x.id == y.id && !x.overlaps(y);
      const bool allowed =
          in_place == InPlace::AnyInput || (in_place == InPlace::FirstInput && i == 0);
      const bool same = allowed && StepCheck::in_place(x, y);
      s.require(beside || same, "output {} overwrites input {}", o, i);
    }
    for (uint32_t other = 0; other < o; ++other) {
      const Operand z = s.out(other);
      s.require(z.value->buffer != y.value->buffer || (z.id == y.id && !z.overlaps(y)),
                "outputs {} and {} share memory", other, o);
    }
  }
  for (uint32_t o = 0; o < s.step.output_count; ++o) {
    const Operand y = s.out(o);
    flow.owner[y.value->buffer] = y.id;
    flow.producer[y.id] = {s.index, o};
    // A copy counts as written by who wrote the original.
    if (s.step.op == static_cast<uint32_t>(StepOp::Transfer)) {
      flow.producer[y.id] = flow.producer[s.in(0).id];
    }
  }
}

}  // namespace

Status verify_steps(const PlanView& plan) {
  Flow flow;
  flow.owner.assign(plan.buffers.size(), kNone);
  flow.producer.resize(plan.values.size());
  flow.slot_stored.assign(plan.kv_slots.size(), false);
  flow.device.assign(plan.buffers.size(), kNone);
  if (plan.steps.empty()) return Error{"the plan has no steps"};
  for (uint32_t i = 0; i < plan.steps.size(); ++i) {
    const StepRecord& step = plan.steps[i];
    const OpRule* rule = find_op_rule(step.op);
    if (!rule) {
      return Error{fmt::format("step {}: op {} is not known here; the plan needs a newer ktx-run",
                               i, step.op)};
    }
    StepCheck s(plan, i, flow);
    check_fields(s);
    if (s.ok()) rule->check(s);
    if (s.ok()) check_device(s);
    if (s.ok()) check_flow(s, rule->in_place);
    if (!s.ok()) {
      const std::string_view module =
          step.module < plan.string_entries.size() ? plan.string(step.module) : "?";
      return Error{
          fmt::format("step {} ({}, {}): {}", i, info(rule->op).name, printable(module), s.error)};
    }
  }

  const PlanFacts& facts = plan.facts;
  if (facts.logits_value >= plan.values.size()) {
    return Error{fmt::format("logits are value {} of {}", facts.logits_value, plan.values.size())};
  }
  const ValueRecord& logits = plan.values[facts.logits_value];
  if (logits.type != static_cast<uint8_t>(ValueType::F32) ||
      logits.rows != static_cast<uint8_t>(RowKind::Output) || logits.rows_per_row != 1 ||
      logits.width != facts.vocab_size || flow.owner[logits.buffer] != facts.logits_value) {
    return Error{fmt::format("value '{}' is not the logits of {} tokens that the last step leaves",
                             printable(plan.string(logits.name)), facts.vocab_size)};
  }
  return {};
}

}  // namespace ktx::plan
