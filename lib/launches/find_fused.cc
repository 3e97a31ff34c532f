#include "lib/launches/find_fused.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

namespace ktx::launches {
namespace {

using Steps = std::vector<int32_t>;

// From the first step of a group to its last: more than any layer has, and the cost stays linear
// in the steps of a hostile plan.
constexpr int32_t kMostSpan = 256;

class Finder {
 public:
  // `may` says which steps can be in a group.
  Finder(const StepList& list, const Uses& uses, int32_t first, int32_t count, const Steps& may)
      : list_(list),
        readers_(uses.readers),
        writers_(uses.writers),
        first_(first),
        end_(first + count),
        may_(may),
        free_(may.begin(), may.end()) {}

  std::vector<FusedGroup> run() {
    for (int32_t i : may_) {
      if (is(i, StepOp::Glu)) gate_up(i);
      if (is(i, StepOp::Router)) experts(i);
      if (is(i, StepOp::Attention)) attention(i);
    }
    for (int32_t i : may_) {
      if (is(i, StepOp::RmsNorm)) products(i);
    }
    std::sort(found_.begin(), found_.end(), [](const FusedGroup& a, const FusedGroup& b) {
      return a.steps.back() < b.steps.back();
    });
    return std::move(found_);
  }

 private:
  const ListedStep& step(int32_t i) const { return list_.steps[i]; }
  bool is(int32_t i, StepOp op) const { return step(i).op == op && free_.count(i) != 0; }
  template <class Attrs>
  const Attrs& attrs_of(int32_t i) const {
    return std::get<Attrs>(step(i).attrs);
  }
  int32_t in(int32_t i, size_t operand) const { return list_.input(i, operand); }
  int32_t out(int32_t i, size_t operand = 0) const { return list_.output(i, operand); }
  // The last step of the range before `i` that writes `value`.
  std::optional<int32_t> writer(int32_t value, int32_t i) const {
    const Steps& all = writers_[value];
    const auto next = std::lower_bound(all.begin(), all.end(), i);
    if (next == all.begin() || *(next - 1) < first_) return std::nullopt;
    return *(next - 1);
  }
  // Whether all that read the value are among `steps`.
  bool only(int32_t value, const Steps& steps) const {
    const auto among = [&](int32_t i) {
      return std::find(steps.begin(), steps.end(), i) != steps.end();
    };
    return std::all_of(readers_[value].begin(), readers_[value].end(), among);
  }
  bool is_product(int32_t i) const {
    return is(i, StepOp::Matmul) && attrs_of<MatmulAttrs>(i).accumulate == 0;
  }
  bool is_row_norm(int32_t i) const {
    return is(i, StepOp::RmsNorm) && attrs_of<RmsNormAttrs>(i).groups == 1;
  }
  int32_t buffer(int32_t value) const { return list_.values[value].buffer; }

  // `reads` and `written`: values of the launch. `reads_first`: all of the one before any of the
  // other.
  void add(FusedOp kind, Steps steps, const std::vector<int32_t>& reads,
           const std::vector<int32_t>& written, bool reads_first = false) {
    std::sort(steps.begin(), steps.end());
    if (steps.back() - steps.front() >= kMostSpan) return;
    std::set<int32_t> read, write;
    for (int32_t value : reads) read.insert(buffer(value));
    for (int32_t value : written) write.insert(buffer(value));
    for (int32_t b : write) {
      if (read.count(b) && !reads_first) return;
    }
    // A residual is read by the thread that writes it.
    for (int32_t i : steps) {
      if (adds(i)) read.insert(buffer(out(i)));
    }
    for (int32_t i = steps.front(); i < steps.back(); ++i) {
      if (std::binary_search(steps.begin(), steps.end(), i)) continue;
      for (const ListedOperand& o : step(i).inputs) {
        if (o.value != kNone && write.count(buffer(o.value))) return;
      }
      for (const ListedOperand& o : step(i).outputs) {
        if (read.count(buffer(o.value)) || write.count(buffer(o.value))) return;
      }
    }
    for (int32_t i : steps) free_.erase(i);
    found_.push_back({kind, std::move(steps)});
  }
  bool adds(int32_t i) const {
    return step(i).op == StepOp::ExpertsDown && attrs_of<ExpertsAttrs>(i).accumulate != 0;
  }

  void gate_up(int32_t glu) {
    const auto gate = writer(in(glu, 0), glu), up = writer(in(glu, 1), glu);
    if (!gate || !up || *gate == *up || !is_product(*gate) || !is_product(*up)) return;
    const int32_t x = in(*gate, 0);
    if (in(*up, 0) != x || !only(out(*gate), readers_after(out(*gate), glu, {glu})) ||
        !only(out(*up), readers_after(out(*up), glu, {glu}))) {
      return;
    }
    Steps steps = {*gate, *up, glu};
    const auto norm = writer(x, std::min(*gate, *up));
    if (norm && is_row_norm(*norm) && only(x, {*gate, *up, *norm})) {
      steps.push_back(*norm);
      return add(FusedOp::GateUp, steps, {in(*norm, 0)}, {out(glu)});
    }
    add(FusedOp::GateUp, steps, {x}, {out(glu)});
  }
  // glu may write into up's value, which is read on: those readers see glu's.
  Steps readers_after(int32_t value, int32_t glu, Steps steps) const {
    if (out(glu) != value) return steps;
    for (int32_t i : readers_[value]) {
      if (i > glu) steps.push_back(i);
    }
    return steps;
  }

  void experts(int32_t router) {
    const int32_t ids = out(router, 0), weights = out(router, 1);
    Steps steps = {router};
    int32_t gate_up = 0, down = 0;
    for (int32_t i = router + 1; i < std::min(end_, router + kMostSpan); ++i) {
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
    const std::vector<int32_t> read = {in(router, 0), in(gate_up, 0)};
    const std::vector<int32_t> between = {weights, out(gate_up)};
    for (int32_t value : between) {
      for (int32_t other : read) {
        if (buffer(value) == buffer(other)) return;
      }
      if (buffer(value) == buffer(out(down))) return;
    }
    std::vector<int32_t> written = between;
    written.push_back(out(down));
    add(FusedOp::Experts, steps, read, written);
  }

  void attention(int32_t attention) {
    const auto& attrs = attrs_of<AttentionAttrs>(attention);
    if (attrs.value_in_key) return latent(attention);
    int32_t store = attention;
    const int32_t from = std::max(first_, attention - kMostSpan);
    for (int32_t i = attention; i > from && store == attention; --i) {
      if (is(i - 1, StepOp::KvStore) && attrs_of<KvStoreAttrs>(i - 1).slot == attrs.slot) {
        store = i - 1;
      }
    }
    if (store == attention || in(store, 1) == kNone) return;
    const int32_t q = in(attention, 0), k = in(store, 0), v = in(store, 1);
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
    add(FusedOp::Attention, steps, {q, k, v}, {out(attention)});
  }

  // The query's rotary part is in q_latent already: its rope is no part of this. What the last step
  // writes often lies where q_latent was.
  void latent(int32_t attention) {
    const int32_t q_latent = in(attention, 0), latent = out(attention);
    const auto absorb = writer(q_latent, attention);
    if (!absorb || !is(*absorb, StepOp::MatmulHeads) || readers_[latent].size() != 1) return;
    const int32_t expand = readers_[latent][0];
    if (expand < attention || expand >= end_ || !is(expand, StepOp::MatmulHeads)) return;
    if (!only(q_latent, {attention})) return;
    // The other form takes what the first step reads for what attention reads, and so on.
    const auto begin_in = [&](int32_t i) { return step(i).inputs[0].offset; };
    const auto begin_out = [&](int32_t i) { return step(i).outputs[0].offset; };
    if (begin_out(*absorb) != begin_in(attention) || begin_out(attention) != begin_in(expand))
      return;
    add(FusedOp::Latent, {*absorb, attention, expand}, {in(*absorb, 0), q_latent}, {out(expand)},
        true);
  }

  void products(int32_t norm) {
    if (!is_row_norm(norm)) return;
    const int32_t n = out(norm);
    if (list_.values[n].rows == RowKind::Output) return;
    Steps users;
    for (int32_t i : readers_[n]) {
      if (i == norm) continue;
      if (i < norm || i >= end_) return;
      users.push_back(i);
    }
    if (users.empty()) return;
    std::vector<int32_t> written;
    for (int32_t i : users) written.push_back(out(i));
    if (users.size() <= 3 &&
        std::all_of(users.begin(), users.end(), [&](int32_t i) { return is_product(i); })) {
      Steps steps = users;
      steps.push_back(norm);
      return add(FusedOp::Products, steps, {in(norm, 0)}, written);
    }
    for (int32_t i : users) {
      if (!is_product(i) || readers_[out(i)].size() != 1) continue;
      const auto reader = step(readers_[out(i)][0]).op;
      if (reader != StepOp::Router || in(norm, 0) == n) continue;
      return add(FusedOp::RouterProduct, {norm, i}, {in(norm, 0)}, {n, out(i)});
    }
  }

  const StepList& list_;
  const std::vector<Steps>&readers_, &writers_;  // by value
  const int32_t first_, end_;
  const Steps& may_;
  std::set<int32_t> free_;  // in no group yet
  std::vector<FusedGroup> found_;
};

}  // namespace

Uses::Uses(const StepList& list) : readers(list.values.size()), writers(list.values.size()) {
  for (size_t i = 0; i < list.steps.size(); ++i) {
    const auto step = static_cast<int32_t>(i);
    for (const ListedOperand& in : list.steps[i].inputs) {
      if (in.value != kNone) readers[in.value].push_back(step);
    }
    for (const ListedOperand& out : list.steps[i].outputs) {
      if (out.value != kNone) writers[out.value].push_back(step);
    }
  }
}

std::vector<FusedGroup> find_fused(const StepList& list, const Uses& uses, int32_t first,
                                   int32_t count) {
  Steps all(count);
  std::iota(all.begin(), all.end(), first);
  return Finder(list, uses, first, count, all).run();
}

bool is_fused(const StepList& list, const Uses& uses, int32_t first, int32_t count,
              const FusedGroup& group) {
  const std::vector<FusedGroup> found = Finder(list, uses, first, count, group.steps).run();
  return found.size() == 1 && found[0] == group;
}

}  // namespace ktx::launches
