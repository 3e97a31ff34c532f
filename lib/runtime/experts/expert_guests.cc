#include "lib/runtime/experts/expert_guests.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "kernels/matmul/retile.h"
#include "kernels/router/expert_places.h"
#include "lib/plan/plan_hosts.h"
#include "lib/plan/stream_memory.h"
#include "lib/program/program.h"
#include "lib/target/host_device.h"

namespace ktx::runtime {
namespace {

using program::BlobId;
using program::Program;
using program::Step;

const GroupExpertsAttrs* guests_of(const Step& step) {
  const auto* const attrs = std::get_if<GroupExpertsAttrs>(&step.attrs);
  return attrs != nullptr && attrs->guests != 0 ? attrs : nullptr;
}

// The step of an op that takes the pairs of a group_experts step; null: there is none.
const Step* reader_of(const Program& program, const Step& group, StepOp op) {
  for (const Step& step : program.steps) {
    if (step.op == op && step.inputs[2].value == group.outputs[0].value) return &step;
  }
  return nullptr;
}

class LayerFinder {
 public:
  LayerFinder(const plan::PlanView& plan, uint32_t cpu, uint32_t gpu)
      : plan_(plan), program_(*plan.program), cpu_(cpu), gpu_(gpu) {}

  // Nothing where they do not fit together, as in a damaged plan, or cannot be moved.
  std::optional<GuestLayer> find() const {
    const auto& here = *guests_of(step(gpu_));
    const auto& home = *guests_of(step(cpu_));
    const auto cpu = expert_places(plan_, cpu_), gpu = expert_places(plan_, gpu_);
    if (cpu.empty() || cpu.size() != gpu.size()) return std::nullopt;
    GuestLayer layer(here.experts, std::ssize(cpu));
    layer.layer = step(gpu_).layer;
    layer.device = step(gpu_).device;
    layer.cpu_step = cpu_, layer.gpu_step = gpu_;
    layer.cpu_blob = step(cpu_).weights[0], layer.gpu_blob = step(gpu_).weights[0];
    layer.cpu_places.assign(cpu.begin(), cpu.end());
    layer.gpu_places.assign(gpu.begin(), gpu.end());
    int32_t matrices = 0;
    for (int32_t e = 0; e < layer.experts(); ++e) {
      const int32_t slot = kernels::place_of_expert(gpu[e], here.experts);
      const int32_t matrix = kernels::place_of_expert(cpu[e], home.experts);
      if (slot < 0 && matrix < 0) continue;  // another device has it for good
      layer.home[e] = matrices++;
      if (slot < 0 ? matrix != layer.home[e] : matrix >= 0) return std::nullopt;
      if (slot < 0) continue;
      if (layer.expert_in[slot] >= 0) return std::nullopt;
      layer.expert_in[slot] = e;
      layer.slot_of[e] = slot;
    }
    if (matrices != home.experts || !add_weights(layer)) return std::nullopt;
    return layer;
  }

 private:
  const Step& step(uint32_t number) const { return program_.steps[number]; }

  bool add_weights(GuestLayer& layer) const {
    for (const StepOp op : {StepOp::ExpertsGateUp, StepOp::ExpertsDown}) {
      const Step* const home = reader_of(program_, step(cpu_), op);
      const Step* const here = reader_of(program_, step(gpu_), op);
      if (home == nullptr || here == nullptr) return false;
      if (home->device != step(cpu_).device || here->device != layer.device) return false;
      for (size_t i = 0; i < here->weights.size(); ++i) {
        const BlobId from = i < home->weights.size() ? home->weights[i] : program::kAbsent;
        const BlobId to = here->weights[i];
        if ((from == program::kAbsent) != (to == program::kAbsent)) return false;
        const bool known = std::ranges::count(layer.weights, to, &GuestWeight::to) > 0;
        if (to == program::kAbsent || known) continue;
        const auto weight = weight_of(from, to, i < product_weights(op), layer);
        if (!weight) return false;
        layer.weights.push_back(*weight);
      }
    }
    return true;
  }

  std::optional<GuestWeight> weight_of(BlobId from, BlobId to, bool product,
                                       const GuestLayer& layer) const {
    const program::Blob& home = program_.blobs[from];
    const program::Blob& here = program_.blobs[to];
    const int64_t matrices = std::ranges::count_if(layer.home, [](int32_t m) { return m >= 0; });
    if (home.dtype != here.dtype || home.cols != here.cols) return std::nullopt;
    GuestWeight weight{from,
                       to,
                       product,
                       program::blob_bytes(home) / static_cast<uint64_t>(matrices),
                       program::blob_bytes(here) / static_cast<uint64_t>(layer.slots()),
                       0};
    if (!product) {
      const bool floats = home.dtype == DType::F32 && home.layout == Layout::Rows &&
                          here.layout == Layout::Rows && weight.from_bytes == weight.to_bytes;
      return floats ? std::optional(weight) : std::nullopt;
    }
    const bool tiles = kernels::retile_takes(home.dtype, home.layout) &&
                       here.layout == Layout::Marlin && home.rows == here.rows &&
                       home.matrices == matrices && here.matrices == layer.slots();
    if (!tiles) return std::nullopt;
    weight.strips = plan::strips_of(home) / home.matrices;
    return weight;
  }

  const plan::PlanView& plan_;
  const Program& program_;
  uint32_t cpu_, gpu_;
};

}  // namespace

std::span<const float> expert_places(const plan::PlanView& plan, uint32_t number) {
  const Step& step = plan.program->steps[number];
  if (plan.program->weight(step, 0) == nullptr) return {};
  const auto bytes = plan.blob_bytes(static_cast<uint32_t>(step.weights[0]));
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

GuestLayer::GuestLayer(int64_t slots, int64_t experts)
    : home(static_cast<size_t>(experts), -1),
      slot_of(static_cast<size_t>(experts), -1),
      expert_in(static_cast<size_t>(slots), -1),
      moving(static_cast<size_t>(experts)),
      awaited(static_cast<size_t>(slots)),
      counts(experts) {}

std::unique_ptr<ExpertGuests> ExpertGuests::make(const plan::PlanView& plan,
                                                 const ExpertGuestOptions& options) {
  if (plan::has_hosts(plan)) return nullptr;
  std::unique_ptr<ExpertGuests> own(new ExpertGuests(plan, options));
  const Program& program = *plan.program;
  const auto count = static_cast<uint32_t>(program.steps.size());
  for (uint32_t gpu = 0; gpu < count; ++gpu) {
    if (!guests_of(program.steps[gpu]) || target::is_cpu(program.steps[gpu].device)) continue;
    for (uint32_t cpu = 0; cpu < count; ++cpu) {
      const Step& step = program.steps[cpu];
      if (!guests_of(step) || step.device != "cpu" || step.layer != program.steps[gpu].layer) {
        continue;
      }
      auto layer = LayerFinder(plan, cpu, gpu).find();
      uint64_t bytes = 0;
      for (const GuestWeight& weight : layer ? layer->weights : std::vector<GuestWeight>()) {
        bytes += weight.from_bytes;
      }
      if (!layer || bytes > kMostGuestBytes) {
        ++own->fixed_layers_;
        break;
      }
      own->use_.slots += layer->slots();
      own->layers_.push_back(std::move(*layer));
      break;
    }
  }
  if (own->layers_.empty() && own->fixed_layers_ == 0) return nullptr;
  return own;
}

GuestLayer* ExpertGuests::of_step(uint32_t step) {
  const auto found = std::ranges::find(layers_, step, &GuestLayer::cpu_step);
  return found == layers_.end() ? nullptr : &*found;
}

void ExpertGuests::count(GuestLayer& layer, std::span<const int32_t> ids, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  layer.counts.age(tokens);
  use_.activations += std::ssize(ids);
  for (const int32_t id : ids) {
    layer.counts.count(id, 1);
    use_.hits += layer.slot_of[id] >= 0 ? 1 : 0;
  }
}

std::vector<GuestMove> ExpertGuests::choose(const std::string& device, int64_t most) {
  struct Candidate {
    GuestMove move;
    double gain;
  };
  std::vector<Candidate> all;
  const std::lock_guard lock(mutex_);
  for (size_t l = 0; l < layers_.size(); ++l) {
    const GuestLayer& layer = layers_[l];
    if (layer.device != device) continue;
    int32_t best = -1, least = -1;
    const auto count_in = [&](int32_t slot) {
      const int32_t guest = layer.expert_in[slot];
      return guest < 0 ? -1.0 : layer.counts.of(guest);  // an empty one first
    };
    for (int32_t e = 0; e < layer.experts(); ++e) {
      if (layer.home[e] < 0 || layer.slot_of[e] >= 0 || layer.moving[e]) continue;
      if (best < 0 || layer.counts.of(e) > layer.counts.of(best)) best = e;
    }
    for (int32_t s = 0; s < layer.slots(); ++s) {
      if (layer.awaited[s]) continue;
      if (least < 0 || count_in(s) < count_in(least)) least = s;
    }
    if (best < 0 || least < 0) continue;
    const double gain = layer.counts.of(best) - std::max(0.0, count_in(least));
    if (gain >= options_.least_gain) all.push_back({{l, best, least}, gain});
  }
  std::ranges::stable_sort(all, std::greater(), &Candidate::gain);
  std::vector<GuestMove> moves;
  for (const Candidate& candidate : all) {
    if (std::ssize(moves) == most) break;
    GuestLayer& layer = layers_[candidate.move.layer];
    layer.moving[candidate.move.expert] = true;
    layer.awaited[candidate.move.slot] = true;
    moves.push_back(candidate.move);
  }
  return moves;
}

void ExpertGuests::leave(const GuestMove& move) {
  const std::lock_guard lock(mutex_);
  GuestLayer& layer = layers_[move.layer];
  const int32_t guest = std::exchange(layer.expert_in[move.slot], -1);
  if (guest < 0) return;
  layer.slot_of[guest] = -1;
  layer.gpu_places[guest] = -1;
  layer.cpu_places[guest] = static_cast<float>(layer.home[guest]);
}

void ExpertGuests::enter(const GuestMove& move, uint64_t bytes) {
  drop(move);
  const std::lock_guard lock(mutex_);
  GuestLayer& layer = layers_[move.layer];
  layer.expert_in[move.slot] = move.expert;
  layer.slot_of[move.expert] = move.slot;
  layer.gpu_places[move.expert] = static_cast<float>(move.slot);
  layer.cpu_places[move.expert] = -1;
  use_.moves += 1;
  use_.bytes += static_cast<int64_t>(bytes);
}

void ExpertGuests::drop(const GuestMove& move) {
  const std::lock_guard lock(mutex_);
  layers_[move.layer].moving[move.expert] = false;
  layers_[move.layer].awaited[move.slot] = false;
}

void ExpertGuests::count_failure() {
  const std::lock_guard lock(mutex_);
  ++use_.failures;
}

void ExpertGuests::prefer(const plan::ExpertProfile& profile) {
  if (profile.architecture != architecture_) return;
  const std::lock_guard lock(mutex_);
  for (GuestLayer& layer : layers_) {
    const auto found = profile.layers.find(layer.layer);
    if (found == profile.layers.end() || std::ssize(found->second) != layer.experts()) continue;
    layer.counts.add_noted(0, found->second);
  }
}

plan::ExpertProfile ExpertGuests::profile() const {
  plan::ExpertProfile profile{architecture_, {}};
  const std::lock_guard lock(mutex_);
  for (const GuestLayer& layer : layers_) {
    profile.layers[layer.layer] = layer.counts.noted(0, layer.experts());
  }
  return profile;
}

ExpertGuestUse ExpertGuests::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

}  // namespace ktx::runtime
