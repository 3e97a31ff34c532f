#include "lib/plan/check_step_records.h"

#include <fmt/format.h>

#include "lib/formats/dtype.h"
#include "lib/ops/op_rules.h"
#include "lib/ops/step_attrs.h"
#include "lib/support/strings.h"
#include "lib/target/host_device.h"

namespace ktx::plan {
namespace {

// What holds between steps: what the rules of ops ask for, and memory.
struct Flow : OpFlow {
  std::vector<uint32_t> owner;   // per buffer: the value in it, kNone at first
  std::vector<uint32_t> device;  // per buffer: of the steps that write it, kNone at first
};

Flow flow_of(const PlanView& plan) {
  Flow flow;
  flow.vocab_size = plan.facts.vocab_size;
  for (const KvSlotRecord& slot : plan.kv_slots) {
    flow.kv_slots.push_back({slot.kv_heads, slot.key_dim, slot.value_dim, slot.window});
  }
  flow.slot_stored.assign(plan.kv_slots.size(), false);
  flow.producer.resize(plan.values.size());
  flow.owner.assign(plan.buffers.size(), kNone);
  flow.device.assign(plan.buffers.size(), kNone);
  return flow;
}

// A step record: its own ranges and memory are checked here, what its op asks of it (OpCheck)
// in op_rules.cc.
struct StepCheck : OpCheck {
  StepCheck(const PlanView& plan, uint32_t index, Flow& flow)
      : OpCheck(static_cast<StepOp>(plan.steps[index].op),
                default_attrs(static_cast<StepOp>(plan.steps[index].op)), flow),
        plan(plan),
        index(index),
        step(plan.steps[index]),
        flow(flow) {}

  const PlanView& plan;
  const uint32_t index;
  const StepRecord& step;
  Flow& flow;

  const ValueRecord& value(const OpOperand& operand) const { return plan.values[operand.value]; }
};

OpOperand operand_of(const PlanView& plan, const OperandRecord& record) {
  if (record.value == kNone) return {};
  const ValueRecord& value = plan.values[record.value];
  return {.value = record.value,
          .type = static_cast<ValueType>(value.type),
          .rows = static_cast<RowKind>(value.rows),
          .rows_per_row = value.rows_per_row,
          .value_width = value.width,
          .offset = record.offset,
          .width = record.width};
}

OpWeight weight_of(const PlanView& plan, uint32_t index) {
  if (index == kNone) return {};
  const BlobRecord& blob = plan.blobs[index];
  return {static_cast<DType>(blob.dtype), blob.rows, blob.cols, blob.matrices};
}

// Ranges of the step's own fields; fills what the op's rule looks at.
void check_fields(StepCheck& s) {
  const StepRecord& step = s.step;
  const PlanView& plan = s.plan;
  const StepOpInfo& op = s.op;
  const auto is_string = [&](uint32_t i) { return i < plan.string_entries.size(); };
  const auto in_table = [&](const char* what, uint64_t first, uint64_t count, uint64_t size) {
    return s.require(first <= size && count <= size - first, "{} {} to {} of {}", what, first,
                     first + count, size);
  };
  s.require(is_string(step.module) && is_string(step.device), "module {} or device {} is no string",
            step.module, step.device);
  s.in_range("layer", step.layer, -1, plan.facts.layers - 1);
  for (uint32_t kernel : step.kernel) {
    s.require(kernel == kNone || is_string(kernel), "kernel {} is no string", kernel);
  }
  if (!in_table("inputs", step.first_input, step.input_count, plan.operands.size()) ||
      !in_table("outputs", step.first_output, step.output_count, plan.operands.size()) ||
      !in_table("weights", step.first_weight, step.weight_count, plan.weight_uses.size()) ||
      !in_table("attributes", step.attrs_offset, step.attrs_size, plan.attrs.size())) {
    return;
  }
  s.require(attrs_size_fits(op.op, step.attrs_size) && step.attrs_offset % 4 == 0,
            "{} bytes of attributes at {}, expected {}", step.attrs_size, step.attrs_offset,
            op.attrs_size);
  const auto count = [&](const char* what, uint32_t have, std::string_view list) {
    s.require(operand_count_fits(list, have), "{} {}, expected {} ({})", have, what,
              operand_count(list), list);
  };
  count("inputs", step.input_count, op.inputs);
  count("outputs", step.output_count, op.outputs);
  count("weights", step.weight_count, op.weights);
  if (!s.ok()) return;

  s.step_attrs = attrs_from_bytes(op.op, plan.attrs_bytes(step));
  for (const OperandRecord& in : plan.inputs(step)) s.inputs.push_back(operand_of(plan, in));
  for (const OperandRecord& out : plan.outputs(step)) s.outputs.push_back(operand_of(plan, out));
  for (uint32_t i = 0; i < step.weight_count; ++i) {
    const uint32_t blob = plan.weight_uses[step.first_weight + i];
    if (!s.require(blob == kNone || blob < plan.blobs.size(), "weight {} of {}", blob,
                   plan.blobs.size())) {
      return;
    }
    s.weights.push_back(weight_of(plan, blob));
    if (blob == kNone) continue;
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

// What an all_reduce reads is on GPUs of its own GPU's host.
void check_parts_of_sum(StepCheck& s) {
  const std::string_view own = s.plan.string(s.step.device);
  s.require(!target::is_cpu(own), "it is on {}, and sums are of GPUs", printable(own));
  for (const OpOperand& x : s.inputs) {
    const uint32_t from = x.present() ? s.flow.device[s.value(x).buffer] : kNone;
    if (from == kNone) continue;
    const std::string_view there = s.plan.string(from);
    s.require(!target::is_cpu(there) && target::on_same_host(own, there),
              "it is on {} and a part on {}", printable(own), printable(there));
  }
}

// A step touches the memory of its own device only; a transfer and an all_reduce read others'.
void check_device(StepCheck& s) {
  const PlanView& plan = s.plan;
  const uint32_t own = s.step.device;
  const bool transfer = s.step.op == static_cast<uint32_t>(StepOp::Transfer);
  const bool sums = s.step.op == static_cast<uint32_t>(StepOp::AllReduce);
  if (sums) check_parts_of_sum(s);
  for (uint32_t i = 0; i < s.step.input_count && !sums; ++i) {
    const OpOperand& x = s.in(i);
    if (!x.present()) continue;
    const uint32_t from = s.flow.device[s.value(x).buffer];
    if (from == kNone) continue;  // never written, which check_flow reports
    s.require(same_device(plan, from, own) != transfer, "it is on {} and input {} on {}",
              printable(plan.string(own)), i, printable(plan.string(from)));
  }
  for (uint32_t o = 0; o < s.step.output_count; ++o) {
    uint32_t& to = s.flow.device[s.value(s.out(o)).buffer];
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
  for (const int32_t slot : {kv_slot_of(s.step_attrs), entries_slot_of(s.step_attrs)}) {
    if (slot < 0) continue;
    s.require(same_device(plan, plan.kv_slots[slot].device, own), "it is on {} and slot {} on {}",
              printable(plan.string(own)), slot,
              printable(plan.string(plan.kv_slots[slot].device)));
  }
}

// Reads only what is there, and writes beside what it reads.
void check_flow(StepCheck& s) {
  Flow& flow = s.flow;
  const auto buffer = [&](const OpOperand& operand) { return s.value(operand).buffer; };
  const auto must_be_there = [&](const char* what, size_t i, const OpOperand& operand) {
    s.require(flow.owner[buffer(operand)] == operand.value,
              "{} {} reads value '{}' before it is written, or after its memory was reused", what,
              i, printable(s.plan.string(s.value(operand).name)));
  };
  for (size_t i = 0; i < s.inputs.size(); ++i) {
    if (s.in(i).present()) must_be_there("input", i, s.in(i));
  }
  for (size_t o = 0; o < s.outputs.size(); ++o) {
    const OpOperand& y = s.out(o);
    if (accumulates(s.step_attrs)) must_be_there("output", o, y);
    for (size_t i = 0; i < s.inputs.size(); ++i) {
      const OpOperand& x = s.in(i);
      if (!x.present() || buffer(x) != buffer(y)) continue;
      const bool beside = x.value == y.value && !x.overlaps(y);
      const bool allowed = s.op.has(kInPlaceAny) || (s.op.has(kInPlace) && i == 0);
      s.require(beside || (allowed && x.same_as(y)), "output {} overwrites input {}", o, i);
    }
    for (size_t other = 0; other < o; ++other) {
      const OpOperand& z = s.out(other);
      s.require(buffer(z) != buffer(y) || (z.value == y.value && !z.overlaps(y)),
                "outputs {} and {} share memory", other, o);
    }
  }
  for (const OpOperand& y : s.outputs) {
    flow.owner[buffer(y)] = static_cast<uint32_t>(y.value);
  }
  note_outputs(s, s.index);
}

}  // namespace

namespace {

// The hidden states that come with tokens are as wide as the facts say.
Status verify_given(const PlanView& plan) {
  bool reads = false;
  for (const StepRecord& step : plan.steps) {
    if (step.op != static_cast<uint32_t>(StepOp::GivenHidden)) continue;
    reads = true;
    const ValueRecord& given = plan.values[plan.outputs(step)[0].value];
    if (given.width == plan.facts.given_width) continue;
    return Error{fmt::format("{} floats come with each token, but value '{}' has {}",
                             plan.facts.given_width, printable(plan.string(given.name)),
                             given.width)};
  }
  if (reads != plan.facts.reads_hidden()) {
    return Error{"the facts and the steps differ on whether hidden states come with the tokens"};
  }
  if (reads && (plan.facts.given_taps.empty() || plan.facts.given_states() <= 0)) {
    return Error{"no hidden states of a model are among those that come with the tokens"};
  }
  return {};
}

// What a drafter reads for each token is there behind the last step.
Status verify_kept(const PlanView& plan, const Flow& flow) {
  const PlanFacts& facts = plan.facts;
  for (const uint32_t value : facts.hidden_values) {
    if (value >= plan.values.size()) {
      return Error{fmt::format("hidden states are value {} of {}", value, plan.values.size())};
    }
    const ValueRecord& hidden = plan.values[value];
    if (hidden.type != static_cast<uint8_t>(ValueType::F32) ||
        hidden.rows != static_cast<uint8_t>(RowKind::Token) || hidden.rows_per_row != 1 ||
        hidden.width != facts.hidden_size || flow.owner[hidden.buffer] != value) {
      return Error{
          fmt::format("value '{}' is not the hidden states of {} elements of each token, or "
                      "does not stay until the end",
                      printable(plan.string(hidden.name)), facts.hidden_size)};
    }
  }
  if (facts.reads_hidden() && facts.hidden_values.size() > 1) {
    return Error{"a drafter keeps more than one hidden state of its own"};
  }
  return {};
}

// Each logit of a draft head is of a token of its own.
Status verify_draft_tokens(const PlanView& plan) {
  const int64_t vocab = plan.facts.vocab_size;
  if (std::ssize(plan.draft_tokens) != plan.facts.draft_vocab) {
    return Error{fmt::format("section 'draft-tokens' has {} tokens for {} logits",
                             plan.draft_tokens.size(), plan.facts.draft_vocab)};
  }
  if (plan.facts.draft_vocab == 0) return {};
  if (!plan.facts.reads_hidden() || plan.facts.draft_vocab > vocab) {
    return Error{fmt::format("a plan with {} logits for {} tokens is no draft head",
                             plan.facts.draft_vocab, vocab)};
  }
  std::vector<bool> seen(static_cast<size_t>(vocab));
  for (const int32_t token : plan.draft_tokens) {
    if (token < 0 || token >= vocab || seen[static_cast<size_t>(token)]) {
      return Error{
          fmt::format("section 'draft-tokens' has token {} of {}, or has it twice", token, vocab)};
    }
    seen[static_cast<size_t>(token)] = true;
  }
  return {};
}

}  // namespace

Status verify_steps(const PlanView& plan) {
  Flow flow = flow_of(plan);
  if (plan.steps.empty()) return Error{"the plan has no steps"};
  for (uint32_t i = 0; i < plan.steps.size(); ++i) {
    const StepRecord& step = plan.steps[i];
    if (step.op >= all_step_ops().size()) {
      return Error{fmt::format("step {}: op {} is not known here; the plan needs a newer ktx-run",
                               i, step.op)};
    }
    StepCheck s(plan, i, flow);
    check_fields(s);
    if (s.ok()) check_op(s);
    if (s.ok()) check_device(s);
    if (s.ok()) check_flow(s);
    if (!s.ok()) {
      const std::string_view module =
          step.module < plan.string_entries.size() ? plan.string(step.module) : "?";
      return Error{fmt::format("step {} ({}, {}): {}", i, s.op.name, printable(module), s.error)};
    }
  }

  const PlanFacts& facts = plan.facts;
  if (facts.logits_value >= plan.values.size()) {
    return Error{fmt::format("logits are value {} of {}", facts.logits_value, plan.values.size())};
  }
  const ValueRecord& logits = plan.values[facts.logits_value];
  if (logits.type != static_cast<uint8_t>(ValueType::F32) ||
      logits.rows != static_cast<uint8_t>(RowKind::Output) || logits.rows_per_row != 1 ||
      logits.width != facts.output_width() || flow.owner[logits.buffer] != facts.logits_value) {
    return Error{fmt::format("value '{}' is not the {} {} that the last step leaves",
                             printable(plan.string(logits.name)),
                             facts.gives_logits() ? "logits of" : "outputs in a row:",
                             facts.gives_logits() ? fmt::format("{} tokens", facts.output_width())
                                                  : std::to_string(facts.output_width()))};
  }
  KTX_TRY(verify_given(plan));
  KTX_TRY(verify_kept(plan, flow));
  return verify_draft_tokens(plan);
}

}  // namespace ktx::plan
