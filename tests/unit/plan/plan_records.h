// Mutable records of a plan, for tests that give invalid values to the checks of the reader.
//
//   PlanRecords r(plan->view());
//   r.attrs<RopeAttrs>(r.step(StepOp::Rope)).heads = 0;
//   verify_steps(r.view())                            // an error that says so
//
// The plan must outlive this object.
#pragma once

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "lib/plan/plan_reader.h"

namespace ktx::plan {

class PlanRecords {
 public:
  explicit PlanRecords(const PlanView& plan)
      : values(plan.values.begin(), plan.values.end()),
        operands(plan.operands.begin(), plan.operands.end()),
        steps(plan.steps.begin(), plan.steps.end()),
        blobs(plan.blobs.begin(), plan.blobs.end()),
        buffers(plan.buffers.begin(), plan.buffers.end()),
        slots(plan.kv_slots.begin(), plan.kv_slots.end()),
        segments(plan.segments.begin(), plan.segments.end()),
        weights(plan.weight_uses.begin(), plan.weight_uses.end()),
        slices(plan.slices.begin(), plan.slices.end()),
        chunks(plan.chunks.begin(), plan.chunks.end()),
        sections(plan.sections.begin(), plan.sections.end()),
        shards(plan.gguf_shards.begin(), plan.gguf_shards.end()),
        tensors(plan.gguf_tensors.begin(), plan.gguf_tensors.end()),
        facts(plan.facts),
        view_(plan),
        attrs_(plan.attrs.begin(), plan.attrs.end()) {}

  std::vector<ValueRecord> values;
  std::vector<OperandRecord> operands;
  std::vector<StepRecord> steps;
  std::vector<BlobRecord> blobs;
  std::vector<BufferRecord> buffers;
  std::vector<KvSlotRecord> slots;
  std::vector<SegmentRecord> segments;
  std::vector<uint32_t> weights;
  std::vector<SliceRecord> slices;
  std::vector<ChunkRecord> chunks;
  std::vector<SectionEntry> sections;
  std::vector<GgufShardRecord> shards;
  std::vector<GgufTensorRecord> tensors;
  PlanFacts facts;

  // Number `nth` of the steps of an op.
  StepRecord& step(StepOp op, int nth = 0) {
    for (StepRecord& record : steps) {
      if (record.op == static_cast<uint32_t>(op) && nth-- == 0) return record;
    }
    ADD_FAILURE() << "the tiny plan lacks a step " << info(op).name;
    return steps[0];
  }
  template <class Attrs>
  Attrs& attrs(const StepRecord& record) {
    return *reinterpret_cast<Attrs*>(attrs_.data() + record.attrs_offset);
  }
  // Attributes of another length, at a place of their own.
  template <class Attrs>
  void give_attrs(StepRecord& record, const Attrs& attrs, size_t bytes = sizeof(Attrs)) {
    record.attrs_offset = static_cast<uint32_t>(attrs_.size());
    record.attrs_size = static_cast<uint32_t>(bytes);
    const auto* own = reinterpret_cast<const std::byte*>(&attrs);
    attrs_.insert(attrs_.end(), own, own + std::min(bytes, sizeof(attrs)));
    attrs_.resize(record.attrs_offset + bytes);
  }
  OperandRecord& in(const StepRecord& record, uint32_t i) {
    return operands[record.first_input + i];
  }
  OperandRecord& out(const StepRecord& record, uint32_t i) {
    return operands[record.first_output + i];
  }
  BlobRecord& weight(const StepRecord& record, uint32_t i) {
    return blobs[weights[record.first_weight + i]];
  }
  ValueRecord& value(std::string_view name) { return values[id(name)]; }
  uint32_t id(std::string_view name) const {
    for (uint32_t i = 0; i < values.size(); ++i) {
      if (view_.string(values[i].name) == name) return i;
    }
    ADD_FAILURE() << "the tiny plan lacks a value " << name;
    return 0;
  }
  uint32_t blob(std::string_view name) const {
    for (uint32_t i = 0; i < blobs.size(); ++i) {
      if (view_.string(blobs[i].name) == name) return i;
    }
    ADD_FAILURE() << "the tiny plan lacks a weight " << name;
    return 0;
  }
  uint32_t string(std::string_view text) const {
    for (uint32_t i = 0; i < view_.string_entries.size(); ++i) {
      if (view_.string(i) == text) return i;
    }
    ADD_FAILURE() << "the tiny plan lacks a string " << text;
    return 0;
  }

  PlanView view() const {
    PlanView view = view_;
    view.values = values, view.operands = operands, view.steps = steps, view.blobs = blobs;
    view.buffers = buffers, view.kv_slots = slots, view.segments = segments;
    view.weight_uses = weights, view.facts = facts, view.attrs = attrs_;
    view.slices = slices, view.chunks = chunks, view.sections = sections;
    view.gguf_shards = shards, view.gguf_tensors = tensors;
    return view;
  }

 private:
  PlanView view_;
  std::vector<std::byte> attrs_;
};

}  // namespace ktx::plan
