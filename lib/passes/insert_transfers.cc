// Puts a transfer step wherever a value crosses from one device to another.
//
// Every device that uses a value gets its own copy of it, `NAME@DEVICE`, which is filled once,
// and again only after the value was written:
//
//   n = rms_norm(x)                 cuda:0
//   n@cpu = transfer(n)             submit: the GPU sends what the experts need ...
//   up = matmul(n) ...              ... and goes on with the shared experts
//   y = experts_down(n@cpu)         cpu, meanwhile
//   y@cuda:0 = transfer(y)          await
//   x = add(x, y@cuda:0)
//
// What is added to a residual stream of another device (experts_down above) is added on the
// stream's device, as late as possible. GPU steps that do not need the result of the CPU steps
// before them are moved in front of these: GPU steps are queued, so both devices work at once.
//
// The logits end on the CPU, where tokens are sampled.
//
// Between two hosts values go from CPU to CPU: one of a GPU goes to the CPU beside it first.
//
// Transfers of the graph as it comes are those of experts on other hosts (lower_host_experts.cc):
// they stay as they are, once what they send is where they send it from.
#include <algorithm>
#include <map>
#include <set>

#include "lib/passes/pass.h"
#include "lib/target/host_device.h"

namespace ktx::passes {
namespace {

using program::Step;
using program::ValueId;
using program::View;

// A residual addition: x = add(x, term).
bool adds_in_place(const Step& step) {
  return step.op == StepOp::Add && step.outputs[0] == step.inputs[0] &&
         step.outputs[0].value != step.inputs[1].value;
}

// Ops that may leave elements of their output as they were.
bool writes_parts(const Step& step) {
  return step.op == StepOp::MatmulHeads || step.op == StepOp::Rope;
}

class Inserter {
 public:
  explicit Inserter(program::Program& program)
      : program_(program), places_(program.values.size()) {}

  void run() {
    std::vector<Step> old = std::move(program_.steps);
    program_.steps.clear();
    for (Step& step : old) place(std::move(step));
    const ValueId logits = old_logits_;
    flush(logits);
    read(program_.whole(logits), "cpu", program_.steps.back());
  }

 private:
  // Where the copies of one value are.
  struct Place {
    std::map<std::string, ValueId> copies;  // by device, once there was one
    std::set<std::string> valid;            // those that hold the value now
    std::string latest;                     // the device that wrote it last
    struct Term {
      View view;
      View into;   // of this value
      Step adder;  // for its names
    };
    std::vector<Term> terms;  // to be added before it is read
  };

  ValueId copy_on(ValueId value, const std::string& device) {
    Place& place = places_[value];
    const auto [it, added] = place.copies.try_emplace(device, value);
    if (added && place.copies.size() > 1) {
      program::Value copy = program_.values[value];
      copy.name += "@" + device;
      it->second = static_cast<ValueId>(program_.values.size());
      program_.values.push_back(std::move(copy));
    }
    return it->second;
  }

  void emit(StepOp op, const Step& like, const std::string& device, std::vector<View> inputs,
            View output) {
    Step step;
    step.op = op;
    step.module = like.module;
    step.layer = like.layer;
    step.device = device;
    step.inputs = std::move(inputs);
    step.outputs = {output};
    step.attrs = NoAttrs{};
    program_.steps.push_back(std::move(step));
  }

  // The device whose copy a transfer to `device` reads: next to it on the way from where the value
  // is.
  static std::string source_for(const Place& place, const std::string& device) {
    if (target::on_same_host(place.latest, device)) return place.latest;
    for (const std::string& other : place.valid) {
      if (target::on_same_host(other, device)) return other;
    }
    return target::is_cpu(device) ? target::cpu_beside(place.latest) : target::cpu_beside(device);
  }

  // The view on the device's own copy, which a transfer fills when need be.
  View read(View view, const std::string& device, const Step& reader) {
    if (view.value == program::kAbsent) return view;
    Place& place = places_[view.value];
    if (!place.valid.count(device)) {
      const std::string source = source_for(place, device);
      if (!place.valid.count(source)) read(view, source, reader);
      const ValueId from = place.copies.at(source);
      const ValueId to = copy_on(view.value, device);
      const Step like = reader;  // program_.steps may move
      emit(StepOp::Transfer, like, device, {program_.whole(from)}, program_.whole(to));
      place.valid.insert(device);
    }
    return {copy_on(view.value, device), view.offset, view.width};
  }

  // Adds what others have computed for `value`, where it is; all of it is sent before, in one go.
  void flush(ValueId value) {
    if (value == program::kAbsent) return;
    std::vector<Place::Term> terms = std::move(places_[value].terms);
    places_[value].terms.clear();
    streams_.erase(value);
    const std::string home = places_[value].latest;
    for (const Place::Term& term : terms) read(term.view, home, term.adder);
    for (const Place::Term& term : terms) {
      const View here = read(term.into, home, term.adder);
      const View other = read(term.view, home, term.adder);
      emit(StepOp::Add, term.adder, home, {here, other}, here);
      places_[value].valid = {home};
    }
  }

  // Adds what is still to be added of a value that is about to be written.
  void flush_uses(ValueId value) {
    for (const ValueId stream : std::set<ValueId>(streams_)) {
      const auto& terms = places_[stream].terms;
      if (std::ranges::any_of(terms, [&](const auto& t) { return t.view.value == value; })) {
        flush(stream);
      }
    }
  }

  // Whether the stream is not where the step adds to it.
  bool adds_from_afar(const Step& step) const {
    if (!adds_in_place(step)) return false;
    const std::set<std::string>& valid = places_[step.outputs[0].value].valid;
    return !valid.empty() && !valid.count(step.device);
  }

  // One that stands in the graph already, from the CPU of the host where `order` is, if it has
  // that.
  void place_transfer(Step step) {
    for (const View& view : step.inputs) flush(view.value);
    const ValueId lead = step.inputs[step.inputs.size() > 1 ? 1 : 0].value;
    const std::string source = target::cpu_beside(places_[lead].latest);
    for (View& view : step.inputs) view = read(view, source, step);
    View& out = step.outputs[0];
    const ValueId value = out.value;
    out.value = copy_on(value, step.device);
    places_[value].valid = {step.device};
    places_[value].latest = step.device;
    program_.steps.push_back(std::move(step));
  }

  void place(Step step) {
    if (step.op == StepOp::Transfer) return place_transfer(std::move(step));
    if (adds_from_afar(step)) {
      flush(step.inputs[1].value);
      places_[step.outputs[0].value].terms.push_back({step.inputs[1], step.outputs[0], step});
      streams_.insert(step.outputs[0].value);
      return;
    }
    if (!step.outputs.empty()) old_logits_ = step.outputs[0].value;
    for (const View& view : step.inputs) flush(view.value);
    for (const View& view : step.outputs) flush(view.value), flush_uses(view.value);
    for (View& view : step.inputs) {
      // A sum over GPUs reads what each of them has, where it is.
      const bool sums = step.op == StepOp::AllReduce && view.value != program::kAbsent;
      const std::string device = sums ? places_[view.value].latest : step.device;
      view = read(view, device, step);
    }
    for (View& view : step.outputs) {
      const ValueId value = view.value;
      const bool whole = view == program_.whole(value);
      const bool defined = !places_[value].valid.empty();
      const bool keeps_some = !whole || accumulates(step.attrs) || writes_parts(step);
      if (defined && keeps_some) read(view, step.device, step);
      view.value = copy_on(value, step.device);
      places_[value].valid = {step.device};
      places_[value].latest = step.device;
    }
    program_.steps.push_back(std::move(step));
  }

  program::Program& program_;
  std::vector<Place> places_;  // by value of the program as it came
  std::set<ValueId> streams_;  // those that have terms
  ValueId old_logits_ = program::kAbsent;
};

bool on_cpu(const Step& step) {
  return target::is_cpu(step.device) && step.op != StepOp::Transfer;
}

// What steps read and write.
struct Touched {
  std::set<ValueId> read, written;
  void add(const Step& step) {
    for (const View& view : step.inputs) read.insert(view.value);
    for (const View& view : step.outputs) written.insert(view.value);
    if (accumulates(step.attrs)) {
      for (const View& view : step.outputs) read.insert(view.value);
    }
  }
  bool needed_by(const Step& step) const {
    const auto in = [](const std::set<ValueId>& set, const std::vector<View>& views) {
      return std::any_of(views.begin(), views.end(),
                         [&](const View& view) { return set.count(view.value) > 0; });
    };
    return in(written, step.inputs) || in(written, step.outputs) || in(read, step.outputs);
  }
};

// Transfers to the CPU go in front of the CPU steps that do not write what they send,
// so that these wait for the GPU once.
void submit_early(std::vector<Step>& steps) {
  for (size_t i = 1; i < steps.size(); ++i) {
    if (steps[i].op != StepOp::Transfer || !target::is_cpu(steps[i].device)) continue;
    if (steps[i].inputs.size() > 1) continue;  // of experts on hosts: where it was put
    for (size_t at = i; at > 0 && on_cpu(steps[at - 1]); --at) {
      Touched before;
      before.add(steps[at - 1]);
      if (before.needed_by(steps[at])) break;
      std::swap(steps[at - 1], steps[at]);
    }
  }
}

// Behind each run of CPU steps, the GPU steps that do not need it go first.
void overlap(std::vector<Step>& steps) {
  for (size_t begin = 0; begin < steps.size(); ++begin) {
    if (!on_cpu(steps[begin])) continue;
    size_t end = begin;
    Touched touched;
    for (; end < steps.size() && on_cpu(steps[end]); ++end) touched.add(steps[end]);
    size_t next = end;
    while (next < steps.size() && !on_cpu(steps[next]) && !touched.needed_by(steps[next])) ++next;
    // Transfers to the CPU without a waiting step yet would only delay the others.
    std::rotate(steps.begin() + static_cast<ptrdiff_t>(begin),
                steps.begin() + static_cast<ptrdiff_t>(end),
                steps.begin() + static_cast<ptrdiff_t>(next));
    begin = next - 1;
  }
}

}  // namespace

Status insert_transfers(CompileState& state) {
  std::set<std::string> devices{"cpu"};  // the logits go there
  for (const Step& step : state.program.steps) devices.insert(step.device);
  if (devices.size() == 1) return {};
  Inserter(state.program).run();
  submit_early(state.program.steps);
  overlap(state.program.steps);
  return {};
}

}  // namespace ktx::passes
