// Divides the steps of layers over several GPUs (tensor parallelism), where a rule puts modules on
// all of them (`device: split`):
//
//   n = rms_norm(x)              each GPU has a copy of the stream, and computes its own norm
//   q, k, v = matmul(n)          rows of the weights: each GPU has its heads, and their cache
//   a = attention(q)
//   o = matmul(a)                columns of the weight: each GPU has a part of the sum
//   x += all_reduce(o, o@cuda:1) on each GPU, the same parts in the same order
//
// Gate and up are divided by rows and down by columns in the same way. So are the heads of MLA,
// over a copy of the latents of which each GPU makes and keeps all, and the heads of delta nets and
// state spaces with their states. Experts come as groups, each on one GPU (expert_groups.h): what
// each gives is a part of the sum, too. Norms, routers and other small steps are computed on all
// GPUs. A part of a layer that cannot be divided (uneven heads, blocks of weights that would be
// cut) is computed by one GPU, and its result is a sum of one part. Bits are the same on all GPUs,
// as all add the same numbers in the same order.
//
// Logits are divided by vocabulary and come together on the first GPU.
//
// Between two sums, steps are put out GPU by GPU, so that each stretch is one part of the plan
// (lib/program/parts.h). The sums of all GPUs are put out together: when a GPU waits in a sum for
// another one, all that it waits for is queued already. (Queueing may wait for an idle GPU,
// where the driver loads a kernel at its first launch.)
//
// Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>

#include "lib/passes/lower/divided_units.h"
#include "lib/passes/lower/divided_weights.h"
#include "lib/passes/pass.h"

namespace ktx::passes {
namespace {

using ir::Module;
using ir::Role;
using program::Blob;
using program::BlobId;
using program::kAbsent;
using program::Step;
using program::ValueId;
using program::View;

// Steps that give the same whether a sum is made before or behind them.
bool keeps_sums(StepOp op) {
  return op == StepOp::Scale || op == StepOp::SigmoidScale || op == StepOp::RowScale;
}

// What a GPU has of the weights of an op that reads heads or channels of its own: a matrix for each
// of its heads, a number for each, what belongs to each of its channels; of norms the weights of
// its heads where these have weights of their own.
enum class Of { All, Matrices, Heads, Channels, NormedHeads };
struct OpWeights {
  StepOp op;
  Of of;
};
constexpr OpWeights kWeights[] = {
    {StepOp::MatmulHeads, Of::Matrices}, {StepOp::CausalConv, Of::Channels},
    {StepOp::DeltaRule, Of::Heads},      {StepOp::StateSpace, Of::Heads},
    {StepOp::Attention, Of::Heads},      {StepOp::RmsNorm, Of::NormedHeads},
    {StepOp::LayerNorm, Of::NormedHeads}};

// The team of the first module that several GPUs compute; empty: none.
std::vector<std::string> team_of(const ir::ModuleGraph& modules) {
  for (const Module& module : modules.modules) {
    if (!module.decision.team.empty()) return module.decision.team;
  }
  return {};
}

class Splitter {
 public:
  Splitter(const ir::ModuleGraph& modules, program::Program& program)
      : modules_(modules),
        program_(program),
        team_(team_of(modules)),
        weights_(program, team_),
        queues_(team_.size()),
        places_(program.values.size()) {
    for (const Module& module : modules.modules) by_path_[module.path] = &module;
  }

  Status run() {
    if (team_.empty()) return {};
    for (const Module& module : modules_.modules) {
      const std::vector<std::string>& team = module.decision.team;
      if (team.empty() || team == team_) continue;
      return Error{
          fmt::format("'{}' is divided over {}, and modules before it over {}; rules divide "
                      "a model over the same GPUs",
                      module.path, fmt::join(team, ", "), fmt::join(team_, ", "))};
    }
    std::vector<Step> old = std::move(program_.steps);
    program_.steps.clear();
    const Step last = old.empty() ? Step() : old.back();
    for (Step& step : old) KTX_TRY(place(step));
    if (!last.outputs.empty()) join_output(last);
    // The last step stays the last: what it gives is the model's output.
    std::rotate(queues_.begin(), queues_.begin() + static_cast<ptrdiff_t>(last_gpu_) + 1,
                queues_.end());
    flush();
    weights_.drop_unused();
    return {};
  }

 private:
  struct Place {
    // Here: on a device beside the team, as lowering has it. Copies: the same on each GPU of the
    // team. Divided: each GPU has its part of the columns. Parts: of a sum, on some of the GPUs.
    enum class Kind { Here, Copies, Divided, Parts } kind = Kind::Here;
    std::vector<ValueId> of = {};  // by GPU; kAbsent where it has none
    ValueId here = kAbsent;        // Here: in which value it is; kAbsent: itself
    Division division = {};        // Divided: of a row
  };
  using Kind = Place::Kind;

  size_t gpus() const { return team_.size(); }
  std::optional<size_t> rank_of(const std::string& device) const {
    const auto found = std::ranges::find(team_, device);
    if (found == team_.end()) return std::nullopt;
    return static_cast<size_t>(found - team_.begin());
  }

  void emit(size_t gpu, Step step) {
    step.device = team_[gpu];
    last_gpu_ = gpu;
    queues_[gpu].push_back(std::move(step));
  }
  void flush() {
    for (std::vector<Step>& queue : queues_) {
      program_.steps.insert(program_.steps.end(), std::make_move_iterator(queue.begin()),
                            std::make_move_iterator(queue.end()));
      queue.clear();
    }
  }

  ValueId new_value(ValueId like, const std::string& name, int64_t width) {
    program::Value value = program_.values[like];
    value.name = name;
    value.width = width;
    program_.values.push_back(std::move(value));
    places_.emplace_back();
    return static_cast<ValueId>(program_.values.size()) - 1;
  }
  Division even(int64_t width) const { return Division::even(width, static_cast<int64_t>(gpus())); }
  // A value for each GPU that `value` is now spread over: of the first, itself.
  void spread(ValueId value, Kind kind, Division division = {}) {
    if (places_[value].kind == kind && !places_[value].of.empty()) return;
    const program::Value old = program_.values[value];
    const int64_t width = kind == Kind::Divided ? division.part() : old.width;
    std::vector<ValueId> of{value};
    for (size_t gpu = 1; gpu < gpus(); ++gpu) {
      of.push_back(new_value(value, old.name + "/" + team_[gpu], width));
    }
    program_.values[value].width = width;
    places_[value] = {.kind = kind, .of = std::move(of), .division = std::move(division)};
  }

  static Step like(const Step& step, StepOp op, std::vector<View> inputs, View output,
                   StepAttrs attrs) {
    Step made;
    made.op = op;
    made.module = step.module;
    made.layer = step.layer;
    made.inputs = std::move(inputs);
    made.outputs = {output};
    made.attrs = std::move(attrs);
    return made;
  }

  // Adds up, on each GPU, the parts that GPUs have of `value`, into sums[gpu].
  void reduce(const Step& reader, std::span<const ValueId> parts, std::span<const ValueId> sums,
              bool accumulate) {
    flush();
    std::vector<View> inputs;
    for (const ValueId part : parts) {
      if (part != kAbsent) inputs.push_back(program_.whole(part));
    }
    for (size_t gpu = 0; gpu < gpus(); ++gpu) {
      emit(gpu, like(reader, StepOp::AllReduce, inputs, program_.whole(sums[gpu]),
                     AllReduceAttrs{accumulate ? 1 : 0}));
    }
    flush();
  }

  // Brings a divided output of the model to the first GPU, where the rows have room for all of it.
  // (insert-transfers adds the way there.)
  void join_output(const Step& last) {
    const ValueId value = last.outputs[0].value;
    const Place place = places_[value];
    if (place.kind != Kind::Divided) return;
    flush();
    for (size_t gpu = 1; gpu < gpus(); ++gpu) {
      const Run run = place.division.runs(static_cast<int64_t>(gpu), std::ssize(team_))[0];
      emit(0, like(last, StepOp::Scale, {program_.whole(place.of[gpu])},
                   {value, run.first, run.count}, ScaleAttrs{1}));
    }
  }

  // Lets each GPU have the value.
  Status copy_to_all(ValueId value, const Step& reader) {
    const Place place = places_[value];
    if (place.kind == Kind::Copies) return {};
    if (place.kind == Kind::Divided) {
      return Error{fmt::format("'{}' reads '{}', which is divided over GPUs", reader.module,
                               program_.values[value].name)};
    }
    const program::Value old = program_.values[value];
    std::vector<ValueId> of;
    if (place.kind == Kind::Here) {
      for (size_t gpu = 0; gpu < gpus(); ++gpu) {
        of.push_back(new_value(value, old.name + "/" + team_[gpu], old.width));
        emit(gpu, like(reader, StepOp::Transfer, {program_.whole(here(value))},
                       program_.whole(of[gpu]), NoAttrs{}));
      }
    } else {
      for (size_t gpu = 0; gpu < gpus(); ++gpu) {
        of.push_back(new_value(value, fmt::format("{}.sum/{}", old.name, team_[gpu]), old.width));
      }
      reduce(reader, place.of, of, false);
    }
    places_[value] = {Kind::Copies, std::move(of)};
    return {};
  }

  // ---- Steps.

  View on(const View& view, size_t gpu) const {
    if (view.value == kAbsent) return view;
    const Place& place = places_[view.value];
    const ValueId value = place.of.empty() ? here(view.value) : place.of[gpu];
    if (place.kind != Kind::Divided) return {value, view.offset, view.width};
    const int64_t begin = place.division.place_of(view.offset);
    return {value, begin, place.division.place_of(view.offset + view.width) - begin};
  }

  // The step on one GPU, with its own values, and copies of the weights.
  Step of_gpu(const Step& step, size_t gpu) {
    Step own = step;
    for (std::vector<View>* views : {&own.inputs, &own.outputs}) {
      for (View& view : *views) view = on(view, gpu);
    }
    for (BlobId& blob : own.weights) blob = weights_.copy(blob, gpu);
    std::visit(
        [&](auto& a) {
          if constexpr (requires { a.slot; }) a.slot = weights_.slot(a.slot, gpu);
        },
        own.attrs);
    return own;
  }

  bool reads(const Step& step, Kind kind) const {
    return std::ranges::any_of(step.inputs, [&](const View& view) {
      return view.value != kAbsent && places_[view.value].kind == kind;
    });
  }

  Status place(Step& step) {
    const Module& module = *by_path_.at(step.module);
    if (step.op == StepOp::Add && step.outputs[0] == step.inputs[0]) {
      return place_add(step);
    }
    for (const std::vector<View>* views : {&step.inputs, &step.outputs}) {
      for (const View& view : *views) {
        if (terms_.contains(view.value)) KTX_TRY(add_terms(view.value));
      }
    }
    if (keeps_sums(step.op) && step.outputs[0] == step.inputs[0] &&
        places_[step.inputs[0].value].kind == Kind::Parts) {
      return place_on_parts(step);
    }
    if (module.decision.team.empty()) return place_alone(step);
    if (reads(step, Kind::Divided)) return place_divided(step, module);
    if (step.op != StepOp::Matmul) return place_on_all(step);
    const int64_t rows = program_.blobs[step.weights[0]].rows;
    KTX_TRY(place_on_all(step, divided_rows(modules_, module, rows, gpus())));
    // Its rows are those of all (join_output).
    if (module.role == Role::Head) program_.values[step.outputs[0].value].width = rows;
    return {};
  }

  ValueId here(ValueId value) const {
    const ValueId there = places_[value].here;
    return there == kAbsent ? value : there;
  }
  // The value of a sum of one part; else none.
  static ValueId only_part(const Place& place) {
    ValueId one = kAbsent;
    for (const ValueId value : place.of) {
      if (value == kAbsent) continue;
      if (place.kind != Kind::Parts || one != kAbsent) return kAbsent;
      one = value;
    }
    return one;
  }

  // On the device that it has, with the values that are there. What a GPU of the team gives is a
  // sum of one part.
  Status place_alone(Step& step) {
    const auto rank = rank_of(step.device);
    for (View& view : step.inputs) {
      if (view.value == kAbsent) continue;
      const Place& place = places_[view.value];
      if (place.kind == Kind::Here) {
        view.value = here(view.value);
      } else if (const ValueId one = only_part(place); one != kAbsent) {
        view.value = one;
      } else {
        KTX_TRY(copy_to_all(view.value, step));
        view.value = places_[view.value].of[rank.value_or(0)];
      }
    }
    for (View& view : step.outputs) {
      Place& place = places_[view.value];
      const ValueId there = place.of.empty()             ? here(view.value)
                            : place.kind == Kind::Copies ? place.of[rank.value_or(0)]
                                                         : only_part(place);
      const ValueId value = there == kAbsent ? view.value : there;
      place = {.here = value};
      if (rank) {
        place = {Kind::Parts, std::vector<ValueId>(gpus(), kAbsent)};
        place.of[*rank] = value;
      }
      view.value = value;
    }
    if (rank) {
      emit(*rank, std::move(step));
    } else {
      flush();
      program_.steps.push_back(std::move(step));
    }
    return {};
  }

  Status place_on_parts(const Step& step) {
    for (size_t i = 1; i < step.inputs.size(); ++i) {
      KTX_TRY(copy_to_all(step.inputs[i].value, step));
    }
    const Place place = places_[step.inputs[0].value];
    for (size_t gpu = 0; gpu < gpus(); ++gpu) {
      if (place.of[gpu] != kAbsent) emit(gpu, of_gpu(step, gpu));
    }
    return {};
  }

  // `rows`: of a product, those of the weights that GPUs have; nothing: each has all.
  Status place_on_all(const Step& step, const std::optional<Division>& rows = {}) {
    for (const View& view : step.inputs) {
      if (view.value != kAbsent) KTX_TRY(copy_to_all(view.value, step));
    }
    for (const View& view : step.outputs) {
      if (places_[view.value].kind == Kind::Copies) continue;
      spread(view.value, rows ? Kind::Divided : Kind::Copies, rows.value_or(Division()));
    }
    for (size_t gpu = 0; gpu < gpus(); ++gpu) {
      Step own = of_gpu(step, gpu);
      for (size_t i = 0; rows && i < step.weights.size(); ++i) {
        own.weights[i] = weights_.rows(step.weights[i], gpu, *rows);
      }
      emit(gpu, std::move(own));
    }
    return {};
  }

  // What reads heads or columns that are divided.
  Status place_divided(const Step& step, const Module& module) {
    if (step.op == StepOp::Matmul) return place_columns(step, module);
    for (const View& view : step.inputs) {
      const bool divided = view.value == kAbsent || places_[view.value].kind == Kind::Divided;
      if (!divided) KTX_TRY(copy_to_all(view.value, step));
    }
    for (const View& view : step.outputs)
      spread(view.value, Kind::Divided, division_of(step, view));
    for (size_t gpu = 0; gpu < gpus(); ++gpu) {
      Step own = of_gpu(step, gpu);
      for (size_t i = 0; i < step.weights.size(); ++i) {
        if (step.weights[i] != kAbsent) own.weights[i] = divided_weight(step, i, gpu);
      }
      divide_attrs(own, gpu);
      emit(gpu, std::move(own));
    }
    return {};
  }

  // A product with columns of the weight gives a part of a sum.
  Status place_columns(const Step& step, const Module& module) {
    if (module.role != Role::OProj && module.role != Role::DownProj) {
      return Error{fmt::format("'{}' reads a divided value", step.module)};
    }
    spread(step.outputs[0].value, Kind::Parts);
    for (size_t gpu = 0; gpu < gpus(); ++gpu) {
      Step own = of_gpu(step, gpu);
      const View in = own.inputs[0];
      if (own.weights.size() > 1 && gpu != 0) own.weights[1] = kAbsent;  // a bias is added once
      int64_t begin = 0;
      for (const Run& run : division_in(step).runs(static_cast<int64_t>(gpu), std::ssize(team_))) {
        own.inputs[0] = {in.value, in.offset + begin, run.count};
        own.weights[0] = weights_.columns(step.weights[0], gpu, run);
        emit(gpu, own);
        begin += run.count;
        // What follows is added.
        if (own.weights.size() > 1) own.weights[1] = kAbsent;
        std::get<MatmulAttrs>(own.attrs).accumulate = 1;
      }
    }
    return {};
  }

  Division heads_of(const Step& step, int64_t width) const {
    return divided_heads(modules_, *by_path_.at(step.module), width, gpus());
  }
  const Division& division_in(const Step& step) const {
    return places_[step.inputs[0].value].division;
  }

  // The division of what a step writes: the input's where that has as many elements (norms,
  // convolutions); all else is heads, or elements, the same number on each GPU.
  Division division_of(const Step& step, const View& output) const {
    const int64_t width = program_.values[output.value].width;
    if (step.op == StepOp::DeltaRule) return heads_of(step, width);
    const View& in = step.inputs[0];
    const bool as_read = in.width == width && output == program_.whole(output.value) &&
                         places_[in.value].kind == Kind::Divided;
    return as_read ? division_in(step).of(in.offset, in.width) : even(width);
  }

  // What a GPU has of a weight that reads a divided value.
  BlobId divided_weight(const Step& step, size_t weight, size_t gpu) {
    const BlobId whole = step.weights[weight];
    const Blob& blob = program_.blobs[whole];
    const View& in = step.inputs[0];
    const auto* const row = std::ranges::find(kWeights, step.op, &OpWeights::op);
    switch (row == std::end(kWeights) ? Of::All : row->of) {
      case Of::All:
        return weights_.copy(whole, gpu);
      case Of::Matrices:
        return weights_.matrices(whole, gpu);
      case Of::Heads:
        return weights_.rows(whole, gpu, heads_of(step, blob.cols));
      case Of::Channels:
        return weights_.rows(whole, gpu, division_in(step).of(in.offset, in.width));
      case Of::NormedHeads:
        break;
    }
    if (blob.rows * blob.cols != in.width) return weights_.copy(whole, gpu);
    const auto n = static_cast<int64_t>(gpus());
    return weights_.rows(whole, gpu,
                         blob.rows > 1 ? Division::heads(1, blob.rows, n) : division_in(step));
  }

  // `step` has its own values.
  void divide_attrs(Step& step, size_t gpu) {
    const auto n = static_cast<int32_t>(gpus());
    const auto share = [&](int32_t& count) {
      count = static_cast<int32_t>(heads_of_one(count, n));
    };
    std::visit(
        [&](auto& a) {
          if constexpr (requires { a.heads; }) share(a.heads);
          if constexpr (requires { a.kv_heads; }) share(a.kv_heads);
          if constexpr (requires { a.groups; }) share(a.groups);
          if constexpr (std::is_same_v<decltype(a), CausalConvAttrs&>) {
            a.channels = static_cast<int32_t>(step.inputs[0].width);
          }
          if constexpr (requires { a.value_heads; }) {
            share(a.value_heads);
            const auto heads = static_cast<int32_t>(step.inputs[0].width / a.head_dim);
            a.key_heads = (heads - a.value_heads) / 2;
          }
          if constexpr (requires { a.state; }) a.state = weights_.state(a.state, gpu);
        },
        step.attrs);
  }

  // ---- Sums.

  // x = add(x, term): terms that are parts of a sum wait for each other.
  Status place_add(Step& step) {
    const ValueId sum = step.outputs[0].value, term = step.inputs[1].value;
    if (terms_.contains(term)) KTX_TRY(add_terms(term));
    const Kind to = places_[sum].kind, kind = places_[term].kind;
    if (to == Kind::Parts) return add_to_parts(step);
    if (to == Kind::Here && kind == Kind::Here) return place_alone(step);
    if (kind == Kind::Copies || kind == Kind::Divided) return place_on_all(step);
    terms_[sum].push_back(step);
    return {};
  }

  // Both are parts of one sum from here on.
  Status add_to_parts(const Step& step) {
    const ValueId sum = step.outputs[0].value, term = step.inputs[1].value;
    if (places_[term].kind == Kind::Divided) {
      return Error{fmt::format("'{}' adds a divided value", step.module)};
    }
    Place& into = places_[sum];
    const Place from = places_[term];
    const bool parts = from.kind == Kind::Parts;
    for (size_t gpu = 0; gpu < gpus(); ++gpu) {
      if (parts && from.of[gpu] == kAbsent) continue;
      if (into.of[gpu] == kAbsent) {
        if (parts) into.of[gpu] = from.of[gpu];
        if (parts) continue;
      } else {
        const View to = program_.whole(into.of[gpu]);
        const ValueId own = from.of.empty() ? here(term) : from.of[gpu];
        emit(gpu, like(step, StepOp::Add, {to, program_.whole(own)}, to, NoAttrs{}));
        if (!parts) return {};
      }
    }
    return {};
  }

  // Adds to a stream what waits for that.
  Status add_terms(ValueId stream) {
    const auto found = terms_.find(stream);
    const std::vector<Step> terms = std::move(found->second);
    terms_.erase(found);
    KTX_TRY(copy_to_all(stream, terms[0]));
    const ValueId first = terms[0].inputs[1].value;
    // A sum that begins with what another device gives begins on the first GPU.
    if (places_[first].kind == Kind::Here) {
      const program::Value& value = program_.values[first];
      const ValueId copy = new_value(first, value.name + "/" + team_[0], value.width);
      emit(0, like(terms[0], StepOp::Transfer, {program_.whole(here(first))}, program_.whole(copy),
                   NoAttrs{}));
      places_[first] = {Kind::Parts, std::vector<ValueId>(gpus(), kAbsent)};
      places_[first].of[0] = copy;
    }
    for (size_t i = 1; i < terms.size(); ++i) {
      Step more = terms[i];
      more.inputs[0] = more.outputs[0] = program_.whole(first);
      KTX_TRY(add_to_parts(more));
    }
    reduce(terms.back(), places_[first].of, places_[stream].of, true);
    return {};
  }

  const ir::ModuleGraph& modules_;
  program::Program& program_;
  const std::vector<std::string> team_;
  DividedWeights weights_;
  std::vector<std::vector<Step>> queues_;  // by GPU: since the last sum
  size_t last_gpu_ = 0;                    // that was given a step
  std::map<std::string, const Module*> by_path_;
  std::vector<Place> places_;                   // by value
  std::map<ValueId, std::vector<Step>> terms_;  // additions to a stream that are still to be made
};

}  // namespace

Status split_steps(CompileState& state) {
  return Splitter(state.modules, state.program).run();
}

}  // namespace ktx::passes
