// Routed experts of a layer on the CPUs of several hosts.
//
//   a  router, order_b = group_experts(ids, places of b)
//   a  in, order_b, offsets_b, weights -> b     one message to each host: rows of tokens that have
//                                               an expert there
//   b  pairs_b = its experts, a row for each pair of token and expert
//   a  pairs = its own experts; shared experts
//   a  pairs_b -> pairs                         one message back: the rows of b's pairs
//   a  sum_experts(pairs)
//
// All hosts compute at the same time. Pairs come back, not sums: a token's experts are added in
// order of their numbers, wherever they are, so the bits are those of one machine.
#include <cmath>

#include "lib/passes/lower/lowering.h"
#include "lib/target/host_device.h"

namespace ktx::passes {

using ir::Module;
using program::View;

// A value on another host; insert-transfers finds the sender.
View Lowering::sent(const Module& experts, const std::string& device, View view, const char* base,
                    const std::string& suffix) {
  const program::Value whole = program_.values[static_cast<size_t>(view.value)];
  const View there = value(base + suffix, whole.width, whole.type, whole.rows, whole.rows_per_row);
  emit_on(device, experts, StepOp::Transfer, {program_.whole(view.value)}, {there}, {}, NoAttrs{});
  return {there.value, view.offset, view.width};
}

// A term whose value gather_host_experts() makes.
Result<Lowering::Term> Lowering::lower_host_experts(const Module& experts,
                                                    std::span<const ExpertGroup> groups,
                                                    const Routed& routed) {
  const int32_t top_k = routed.router.top_k;
  const int64_t hidden = routed.in.width;
  Sent sent_here{&experts,
                 routed.home,
                 value("expert_pairs", hidden, ValueType::F32, RowKind::Token, top_k),
                 routed.ids,
                 value("experts_out", hidden),
                 {},
                 top_k};
  const auto elsewhere = [&](const ExpertGroup& g) { return g.device != routed.home; };
  std::vector<Pairs> theirs;
  for (const ExpertGroup& group : groups) {
    if (!elsewhere(group)) continue;
    theirs.push_back(KTX_TRY(group_pairs(experts, group, routed, routed.home)));
  }
  auto pairs = theirs.begin();
  for (const ExpertGroup& group : groups) {
    if (!elsewhere(group)) continue;
    const std::string suffix = "_" + group.device;
    const View order = pairs->order, offsets = pairs->offsets;
    pairs->in = sent(experts, group.device, pairs->in, "experts_in", suffix);
    program::Step& rows = program_.steps.back();
    rows.inputs.insert(rows.inputs.end(), {order, offsets});
    rows.use = static_cast<float>(1 - std::pow(1 - std::min(group.use, 1.0f), top_k));
    pairs->order = sent(experts, group.device, order, "sent_order", suffix);
    pairs->offsets = sent(experts, group.device, offsets, "sent_offsets", suffix);
    pairs->weights = sent(experts, group.device, pairs->weights, "sent_weights", suffix);
    ++pairs;
  }
  pairs = theirs.begin();
  for (const ExpertGroup& group : groups) {
    if (!elsewhere(group)) continue;
    const View out =
        value("expert_pairs_" + group.device, hidden, ValueType::F32, RowKind::Token, top_k);
    KTX_TRY(expert_products(experts, group, *pairs, &out));
    sent_here.backs.push_back({out, pairs->order, pairs->offsets, group.use});
    ++pairs;
  }
  for (const ExpertGroup& group : groups) {
    if (elsewhere(group)) continue;
    const Pairs own = KTX_TRY(group_pairs(experts, group, routed, routed.home));
    KTX_TRY(expert_products(experts, group, own, &sent_here.pairs));
  }
  sent_.push_back(sent_here);
  return Term{&experts, sent_here.out, routed.home};
}

// What the hosts have computed comes back, and is added up.
void Lowering::gather_host_experts() {
  for (const Sent& sent : std::exchange(sent_, {})) {
    for (const Sent::Back& back : sent.backs) {
      emit_on(sent.home, *sent.experts, StepOp::Transfer, {back.pairs, back.order, back.offsets},
              {sent.pairs}, {}, NoAttrs{});
      program_.steps.back().use = back.use;
    }
    emit_on(sent.home, *sent.experts, StepOp::SumExperts, {sent.pairs, sent.ids}, {sent.out}, {},
            SumExpertsAttrs{sent.top_k, 0});
  }
}

}  // namespace ktx::passes
