#include "lib/runtime/gpu/fusions.h"

#include <algorithm>
#include <optional>
#include <set>

#include "lib/formats/step_attrs.h"

namespace ktx::runtime {
namespace {

using plan::OperandRecord;
using plan::PlanView;
using plan::StepRecord;

using Steps = std::vector<uint32_t>;

class Finder {
 public:
  Finder(const PlanView& plan, uint32_t first, uint32_t count)
      : plan_(plan),
        first_(first),
        end_(first + count),
        readers_(plan.values.size()),
        taken_(plan.steps.size()) {
    for (uint32_t i = 0; i < plan.steps.size(); ++i) {
      for (const OperandRecord& in : plan.inputs(plan.steps[i])) {
        if (in.value != plan::kNone) readers_[in.value].push_back(i);
      }
    }
  }

  std::vector<Fusion> run() {
    for (uint32_t i = first_; i < end_; ++i) {
      if (is(i, StepOp::Swiglu)) gate_up(i);
      if (is(i, StepOp::Router)) experts(i);
      if (is(i, StepOp::Attention)) attention(i);
    }
    for (uint32_t i = first_; i < end_; ++i) {
      if (is(i, StepOp::RmsNorm)) products(i);
    }
    std::sort(found_.begin(), found_.end(),
              [](const Fusion& a, const Fusion& b) { return a.steps.back() < b.steps.back(); });
    return std::move(found_);
  }

 private:
  const StepRecord& step(uint32_t i) const { return plan_.steps[i]; }
  bool is(uint32_t i, StepOp op) const {
    return step(i).op == static_cast<uint32_t>(op) && !taken_[i];
  }
  uint32_t in(uint32_t i, size_t operand) const {
    const auto all = plan_.inputs(step(i));
    return operand < all.size() ? all[operand].value : plan::kNone;
  }
  uint32_t out(uint32_t i, size_t operand = 0) const {
    const auto all = plan_.outputs(step(i));
    return operand < all.size() ? all[operand].value : plan::kNone;
  }
  bool writes(uint32_t i, uint32_t value) const {
    const auto all = plan_.outputs(step(i));
    return std::any_of(all.begin(), all.end(),
                       [&](const OperandRecord& o) { return o.value == value; });
  }
  // The last step of the run before `i` that writes `value`.
  std::optional<uint32_t> writer(uint32_t value, uint32_t i) const {
    while (i > first_) {
      if (writes(--i, value)) return i;
    }
    return std::nullopt;
  }
  // Whether all that read the value are among `steps`.
  bool only(uint32_t value, const Steps& steps) const {
    const auto among = [&](uint32_t i) {
      return std::find(steps.begin(), steps.end(), i) != steps.end();
    };
    return std::all_of(readers_[value].begin(), readers_[value].end(), among);
  }
  bool is_product(uint32_t i) const {
    return is(i, StepOp::Matmul) && plan_.attrs_of<MatmulAttrs>(step(i)).accumulate == 0;
  }
  bool is_row_norm(uint32_t i) const {
    return is(i, StepOp::RmsNorm) && plan_.attrs_of<RmsNormAttrs>(step(i)).groups == 1;
  }
  uint32_t buffer(uint32_t value) const { return plan_.values[value].buffer; }

  // `reads` and `written`: values of the launch. `reads_first`: all of the one before any of the
  // other.
  void add(FusionKind kind, Steps steps, const std::vector<uint32_t>& reads,
           const std::vector<uint32_t>& written, bool reads_first = false) {
    std::sort(steps.begin(), steps.end());
    std::set<uint32_t> read, write;
    for (uint32_t value : reads) read.insert(buffer(value));
    for (uint32_t value : written) write.insert(buffer(value));
    for (uint32_t b : write) {
      if (read.count(b) && !reads_first) return;
    }
    // A residual is read by the thread that writes it.
    for (uint32_t i : steps) {
      if (adds(i)) read.insert(buffer(out(i)));
    }
    for (uint32_t i = steps.front(); i < steps.back(); ++i) {
      if (std::binary_search(steps.begin(), steps.end(), i)) continue;
      for (const OperandRecord& o : plan_.inputs(step(i))) {
        if (o.value != plan::kNone && write.count(buffer(o.value))) return;
      }
      for (const OperandRecord& o : plan_.outputs(step(i))) {
        if (read.count(buffer(o.value)) || write.count(buffer(o.value))) return;
      }
    }
    for (uint32_t i : steps) taken_[i] = true;
    found_.push_back({kind, std::move(steps)});
  }
  bool adds(uint32_t i) const {
    return step(i).op == static_cast<uint32_t>(StepOp::ExpertsDown) &&
           plan_.attrs_of<ExpertsAttrs>(step(i)).accumulate != 0;
  }

  void gate_up(uint32_t swiglu) {
    const auto gate = writer(in(swiglu, 0), swiglu), up = writer(in(swiglu, 1), swiglu);
    if (!gate || !up || *gate == *up || !is_product(*gate) || !is_product(*up)) return;
    const uint32_t x = in(*gate, 0);
    if (in(*up, 0) != x || !only(out(*gate), readers_after(out(*gate), swiglu, {swiglu})) ||
        !only(out(*up), readers_after(out(*up), swiglu, {swiglu}))) {
      return;
    }
    Steps steps = {*gate, *up, swiglu};
    const auto norm = writer(x, std::min(*gate, *up));
    if (norm && is_row_norm(*norm) && only(x, {*gate, *up, *norm})) {
      steps.push_back(*norm);
      return add(FusionKind::GateUp, steps, {in(*norm, 0)}, {out(swiglu)});
    }
    add(FusionKind::GateUp, steps, {x}, {out(swiglu)});
  }
  // swiglu may write into up's value, which is read on: those readers see swiglu's.
  Steps readers_after(uint32_t value, uint32_t swiglu, Steps steps) const {
    if (out(swiglu) != value) return steps;
    for (uint32_t i : readers_[value]) {
      if (i > swiglu) steps.push_back(i);
    }
    return steps;
  }

  void experts(uint32_t router) {
    const uint32_t ids = out(router, 0), weights = out(router, 1);
    Steps steps = {router};
    uint32_t gate_up = 0, down = 0;
    for (uint32_t i = router + 1; i < end_; ++i) {
      if (is(i, StepOp::GroupExperts) && in(i, 0) == ids) {
        steps.push_back(i);
      } else if (steps.size() == 2 && is(i, StepOp::ExpertsGateUp) &&
                 in(i, 2) == out(steps[1], 0)) {
        steps.push_back(gate_up = i);
      } else if (steps.size() == 3 && is(i, StepOp::ExpertsDown) && in(i, 0) == out(gate_up)) {
        steps.push_back(down = i);
        break;
      }
    }
    if (down == 0 || !only(ids, steps) || !only(weights, steps) || in(down, 4) != weights ||
        !only(out(steps[1], 0), steps) || !only(out(steps[1], 1), steps) ||
        !only(out(gate_up), steps)) {
      return;
    }
    // Two launches: what the first writes is no output of the fusion, but is written. Not so
    // ids, order and offsets, whose buffers may have other values by then.
    const std::vector<uint32_t> read = {in(router, 0), in(gate_up, 0)};
    const std::vector<uint32_t> between = {weights, out(gate_up)};
    for (uint32_t value : between) {
      for (uint32_t other : read) {
        if (buffer(value) == buffer(other)) return;
      }
      if (buffer(value) == buffer(out(down))) return;
    }
    std::vector<uint32_t> written = between;
    written.push_back(out(down));
    add(FusionKind::Experts, steps, read, written);
  }

  void attention(uint32_t attention) {
    const auto& attrs = plan_.attrs_of<AttentionAttrs>(step(attention));
    if (attrs.value_in_key) return latent(attention);
    uint32_t store = attention;
    for (uint32_t i = attention; i > first_ && store == attention; --i) {
      if (is(i - 1, StepOp::KvStore) &&
          plan_.attrs_of<KvStoreAttrs>(step(i - 1)).slot == attrs.slot) {
        store = i - 1;
      }
    }
    if (store == attention || in(store, 1) == plan::kNone) return;
    const uint32_t q = in(attention, 0), k = in(store, 0), v = in(store, 1);
    Steps steps = {store, attention};
    // In place on q and on k: a rope, and before it perhaps a norm of the heads.
    for (const auto& [value, user] : {std::pair{q, attention}, std::pair{k, store}}) {
      const auto rope = writer(value, user);
      if (!rope || !is(*rope, StepOp::Rope) || in(*rope, 0) != value) return;
      steps.push_back(*rope);
      const auto norm = writer(value, *rope);
      if (norm && is(*norm, StepOp::RmsNorm) && in(*norm, 0) == value) steps.push_back(*norm);
    }
    if (!only(q, steps) || !only(k, steps)) return;
    add(FusionKind::Attention, steps, {q, k, v}, {out(attention)});
  }

  // The query's rotary part is in q_latent already: its rope is no part of this. What the last step
  // writes often lies where q_latent was.
  void latent(uint32_t attention) {
    const uint32_t q_latent = in(attention, 0), latent = out(attention);
    const auto absorb = writer(q_latent, attention);
    if (!absorb || !is(*absorb, StepOp::MatmulHeads) || readers_[latent].size() != 1) return;
    const uint32_t expand = readers_[latent][0];
    if (expand < attention || expand >= end_ || !is(expand, StepOp::MatmulHeads)) return;
    if (!only(q_latent, {attention})) return;
    // The other form takes what the first step reads for what attention reads, and so on.
    const auto begin_in = [&](uint32_t i) { return plan_.inputs(step(i))[0].offset; };
    const auto begin_out = [&](uint32_t i) { return plan_.outputs(step(i))[0].offset; };
    if (begin_out(*absorb) != begin_in(attention) || begin_out(attention) != begin_in(expand))
      return;
    add(FusionKind::Latent, {*absorb, attention, expand}, {in(*absorb, 0), q_latent}, {out(expand)},
        true);
  }

  void products(uint32_t norm) {
    if (!is_row_norm(norm)) return;
    const uint32_t n = out(norm);
    if (plan_.values[n].rows == static_cast<uint8_t>(RowKind::Output)) return;
    Steps users;
    for (uint32_t i : readers_[n]) {
      if (i == norm) continue;
      if (i < norm || i >= end_) return;
      users.push_back(i);
    }
    if (users.empty()) return;
    std::vector<uint32_t> written;
    for (uint32_t i : users) written.push_back(out(i));
    if (users.size() <= 3 &&
        std::all_of(users.begin(), users.end(), [&](uint32_t i) { return is_product(i); })) {
      Steps steps = users;
      steps.push_back(norm);
      return add(FusionKind::Products, steps, {in(norm, 0)}, written);
    }
    for (uint32_t i : users) {
      if (!is_product(i) || readers_[out(i)].size() != 1) continue;
      const auto reader = static_cast<StepOp>(step(readers_[out(i)][0]).op);
      if (reader != StepOp::Router || in(norm, 0) == n) continue;
      return add(FusionKind::RouterProduct, {norm, i}, {in(norm, 0)}, {n, out(i)});
    }
  }

  const PlanView& plan_;
  uint32_t first_, end_;
  std::vector<Steps> readers_;  // by value
  std::vector<bool> taken_;     // by step
  std::vector<Fusion> found_;
};

}  // namespace

const char* name(FusionKind kind) {
  static constexpr const char* kNames[] = {
#define KTX_FUSION(kind, name, sentence) name,
#include "lib/runtime/gpu/fusions.def"
#undef KTX_FUSION
  };
  return kNames[static_cast<size_t>(kind)];
}

std::vector<Fusion> find_fusions(const PlanView& plan, uint32_t first, uint32_t count) {
  return Finder(plan, first, count).run();
}

}  // namespace ktx::runtime
