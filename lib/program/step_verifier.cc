#include "lib/program/step_verifier.h"

#include <fmt/format.h>

#include "lib/ops/op_rules.h"
#include "lib/support/strings.h"
#include "lib/target/host_device.h"

namespace ktx::program {

StepVerifier::StepVerifier(const Program& program, const Options& options)
    : program_(program),
      options_(options),
      memory_(program.buffers.size() + program.values.size()) {
  flow_.vocab_size = options.vocab_size;
  for (const KvSlot& slot : program.kv_slots) {
    flow_.kv_slots.push_back({slot.kv_heads, slot.key_dim, slot.value_dim, slot.window});
  }
  flow_.slot_stored.assign(program.kv_slots.size(), false);
  flow_.producer.resize(program.values.size());
}

size_t StepVerifier::buffer_of(ValueId value) const {
  const int32_t buffer = program_.values[value].buffer;
  return buffer != kAbsent ? static_cast<size_t>(buffer)
                           : program_.buffers.size() + static_cast<size_t>(value);
}

OpOperand StepVerifier::operand(const View& view) const {
  if (view.value == kAbsent) return {};
  const Value& value = program_.values[view.value];
  return {view.value,  value.type,  value.rows, value.rows_per_row,
          value.width, view.offset, view.width};
}

// Numbers of operands and weights; fills what the op's rule looks at.
void StepVerifier::check_operands(OpCheck& s, const Step& step) const {
  const auto count = [&](const char* what, size_t have, std::string_view list) {
    s.require(operand_count_fits(list, static_cast<int64_t>(have)), "{} {}, expected {} ({})", have,
              what, operand_count(list), list);
  };
  count("inputs", step.inputs.size(), s.op.inputs);
  count("outputs", step.outputs.size(), s.op.outputs);
  count("weights", step.weights.size(), s.op.weights);
  s.require(step.attrs.index() == default_attrs(step.op).index(), "attributes of another op");
  if (!s.ok()) return;
  for (const View& view : step.inputs) s.inputs.push_back(operand(view));
  for (const View& view : step.outputs) s.outputs.push_back(operand(view));
  for (size_t i = 0; i < step.weights.size(); ++i) {
    OpWeight& weight = s.weights.emplace_back();
    if (const Blob* const blob = program_.weight(step, i)) {
      weight = {blob->dtype, blob->rows, blob->cols, blob->matrices};
    }
  }
}

// What an all_reduce reads is on GPUs of its own GPU's host.
void StepVerifier::check_parts_of_sum(OpCheck& s, const Step& step) const {
  const std::string& own = step.device;
  s.require(!target::is_cpu(own), "it is on {}, and sums are of GPUs", printable(own));
  for (const View& x : step.inputs) {
    const std::string_view there =
        x.value == kAbsent ? std::string_view() : memory_[buffer_of(x.value)].device;
    if (there.empty()) continue;
    s.require(!target::is_cpu(there) && target::on_same_host(own, there),
              "it is on {} and a part on {}", printable(own), printable(there));
  }
}

// A step touches the memory of its own device only; a transfer and an all_reduce read others'.
void StepVerifier::check_device(OpCheck& s, const Step& step) {
  const std::string_view own = step.device;
  const bool sums = step.op == StepOp::AllReduce, transfer = step.op == StepOp::Transfer;
  const auto on = [&](std::string_view device, bool good, const char* what, size_t number) {
    if (good) return;  // no names are made printable for nothing
    s.require(false, "it is on {} and {} {} on {}", printable(own), what, number,
              printable(device));
  };
  if (sums) check_parts_of_sum(s, step);
  for (size_t i = 0; i < step.inputs.size() && !sums; ++i) {
    if (step.inputs[i].value == kAbsent) continue;
    const std::string_view from = memory_[buffer_of(step.inputs[i].value)].device;
    if (from.empty()) continue;  // never written, which check_memory reports
    on(from, (from == own) != transfer, "input", i);
  }
  for (size_t o = 0; o < step.outputs.size(); ++o) {
    std::string_view& to = memory_[buffer_of(step.outputs[o].value)].device;
    if (to.empty()) to = own;
    on(to, to == own, "output", o);
  }
  for (size_t i = 0; i < step.weights.size(); ++i) {
    const Blob* const blob = program_.weight(step, i);
    if (blob != nullptr) on(blob->device, blob->device == own, "weight", i);
  }
  for (const int32_t slot : kept_by(step.attrs).slots) {
    if (slot < 0) continue;
    const std::string& device = program_.kv_slots[slot].device;
    on(device, device == own, "slot", static_cast<size_t>(slot));
  }
}

// Reads only what is there, and writes beside what it reads.
void StepVerifier::check_memory(OpCheck& s) const {
  const auto buffer = [&](const OpOperand& operand) {
    return buffer_of(static_cast<ValueId>(operand.value));
  };
  const auto must_be_there = [&](const char* what, size_t i, const OpOperand& operand) {
    if (holds(static_cast<ValueId>(operand.value))) return;
    s.require(false, "{} {} reads value '{}' before it is written, or after its memory was reused",
              what, i, printable(program_.values[operand.value].name));
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
}

std::string StepVerifier::check(size_t number) {
  const Step& step = program_.steps[number];
  OpCheck s(step.op, step.attrs, flow_);
  check_operands(s, step);
  if (!s.ok()) return s.error;
  check_op(s);
  if (s.ok() && options_.devices) check_device(s, step);
  if (s.ok()) check_memory(s);
  // Also of a wrong step, so that those that follow have no mistake for it.
  for (const View& y : step.outputs) {
    if (y.value != kAbsent) memory_[buffer_of(y.value)].owner = y.value;
  }
  if (s.ok()) note_outputs(s, static_cast<int64_t>(number));
  return s.error;
}

}  // namespace ktx::program
