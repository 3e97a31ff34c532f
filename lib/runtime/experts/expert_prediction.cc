#include "lib/runtime/experts/expert_prediction.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "kernels/router/expert_places.h"
#include "lib/ops/value_row.h"
#include "lib/plan/expert_memory.h"
#include "lib/runtime/experts/expert_guests.h"
#include "lib/target/host_device.h"

namespace ktx::runtime {
namespace {

constexpr uint64_t kLine = 64;

// The steps from what a layer's experts read to the experts that are chosen, and that input.
struct RouterChain {
  std::optional<size_t> quantize;  // of the product's input
  size_t product = 0;
  size_t router = 0;
  size_t group = 0;
  program::View input;
};

// The last step before `before` that writes the value, on whichever device it is computed.
std::optional<size_t> writer_of(const program::Program& program, program::ValueId value,
                                size_t before) {
  for (size_t i = before; value != program::kAbsent && i-- > 0;) {
    const program::Step& step = program.steps[i];
    for (const program::View& out : step.outputs) {
      if (out.value != value) continue;
      if (step.op != StepOp::Transfer) return i;
      value = program.input(i, 0);
      break;
    }
  }
  return std::nullopt;
}

bool is_op(const program::Program& program, std::optional<size_t> step, StepOp op) {
  return step && program.steps[*step].op == op;
}

bool is_floats(const program::Blob& blob) {
  return blob.dtype == DType::F32 && blob.layout == Layout::Rows;
}

// A GPU's router has the CPU's form where its weights are plain floats.
bool cpu_can_read(const program::Program& program, const RouterChain& chain) {
  const program::Step& product = program.steps[chain.product];
  if (product.device != program.steps[chain.router].device) return false;
  if (target::is_cpu(product.device)) return true;
  const program::Blob* const weight = program.weight(product, 0);
  return !chain.quantize && weight && is_floats(*weight);
}

std::optional<RouterChain> find_chain(const program::Program& program,
                                      const plan::ExpertLayer& layer) {
  const auto group = writer_of(program, program.input(layer.step, 2), layer.step);
  if (!is_op(program, group, StepOp::GroupExperts)) return std::nullopt;
  const program::Blob* const places = program.weight(program.steps[*group], 0);
  if (places && !is_floats(*places)) return std::nullopt;
  const auto router = writer_of(program, program.input(*group, 0), *group);
  if (!is_op(program, router, StepOp::Router)) return std::nullopt;
  if (program.weight(program.steps[*router], 2) != nullptr) return std::nullopt;  // by token id
  const auto product = writer_of(program, program.input(*router, 0), *router);
  if (!is_op(program, product, StepOp::Matmul)) return std::nullopt;
  const program::Step& matmul = program.steps[*product];
  if (std::get<MatmulAttrs>(matmul.attrs).accumulate != 0) return std::nullopt;
  RouterChain chain{{}, *product, *router, *group, matmul.inputs[0]};
  if (program.input(*product, 1) != program::kAbsent) {
    chain.quantize = writer_of(program, program.input(*product, 1), *product);
    if (!is_op(program, chain.quantize, StepOp::Quantize)) return std::nullopt;
  }
  if (!cpu_can_read(program, chain)) return std::nullopt;
  return chain;
}

// The step of a GPU's router as the CPU computes it.
program::Step on_cpu(program::Step step) {
  if (target::is_cpu(step.device)) return step;
  step.device = "cpu";
  step.kernels.fill(step.op == StepOp::Router ? "router" : "matmul_rows_f32");
  return step;
}

// Whether a layer's input can stand in for the next one's.
bool same_form(const program::Program& program, const program::View& a, const program::View& b) {
  if (a.value == program::kAbsent || b.value == program::kAbsent || a.width != b.width)
    return false;
  const program::Value &x = program.values[a.value], &y = program.values[b.value];
  return x.type == ValueType::F32 && y.type == ValueType::F32 && x.rows == RowKind::Token &&
         y.rows == RowKind::Token && x.rows_per_row == y.rows_per_row;
}

uint64_t room_of(const program::Value& value) {
  const uint64_t bytes = static_cast<uint64_t>(program::row_bytes(value)) * kDecodeTokens;
  return (bytes + kLine - 1) / kLine * kLine;
}

// The steps of the guess for the layer behind `layer`, whose outputs get values of their own.
struct Derived {
  std::vector<program::Step> steps;
  std::vector<program::Value> values;  // numbered from the program's on
  size_t group = 0;                    // the program's group_experts behind them
};

std::optional<Derived> derive(const program::Program& program, const plan::ExpertLayer& layer,
                              const plan::ExpertLayer& next) {
  const auto chain = find_chain(program, next);
  const program::View x = program.steps[layer.step].inputs[0];
  if (!chain || !same_form(program, x, chain->input)) return std::nullopt;
  Derived derived;
  derived.group = chain->group;
  std::vector<size_t> steps;
  if (chain->quantize) steps.push_back(*chain->quantize);
  steps.insert(steps.end(), {chain->product, chain->router});
  std::vector<std::pair<program::ValueId, program::ValueId>> renamed = {
      {chain->input.value, x.value}};
  const auto rename = [&](program::View& view) {
    for (const auto& [from, to] : renamed) {
      if (view.value != from) continue;
      if (to == x.value) view.offset += x.offset - chain->input.offset;
      view.value = to;
      return;
    }
  };
  for (const size_t number : steps) {
    program::Step step = on_cpu(program.steps[number]);
    for (program::View& in : step.inputs) rename(in);
    for (program::View& out : step.outputs) {
      if (out.value == program::kAbsent) continue;
      const auto own = static_cast<program::ValueId>(program.values.size() + derived.values.size());
      derived.values.push_back(program.values[out.value]);
      renamed.insert(renamed.begin(), {out.value, own});
      out.value = own;
    }
    derived.steps.push_back(std::move(step));
  }
  return derived;
}

// Guests' change between passes.
std::span<const float> places_of(const plan::PlanView& plan, const BindOptions& options,
                                 size_t group) {
  const auto number = static_cast<uint32_t>(group);
  const GuestLayer* const guests = options.guests ? options.guests->of_step(number) : nullptr;
  if (guests) return guests->cpu_places;
  return expert_places(plan, number);
}

}  // namespace

uint64_t prediction_bytes(const program::Program& program) {
  const std::vector<plan::ExpertLayer> layers = plan::cpu_expert_layers(program);
  uint64_t most = 0;
  for (size_t i = 0; i + 1 < layers.size(); ++i) {
    const auto derived = derive(program, layers[i], layers[i + 1]);
    uint64_t sum = 0;
    for (size_t v = 0; derived && v < derived->values.size(); ++v)
      sum += room_of(derived->values[v]);
    most = std::max(most, sum);
  }
  return most;
}

struct ExpertPrediction::Guess {
  std::vector<std::unique_ptr<CpuStep>> steps;
  const int32_t* ids = nullptr;  // [tokens, top_k], which the last step writes
  int64_t top_k = 0;
  std::vector<int32_t> experts;
  // [experts of the layer] Which of the CPU's matrices are theirs, now (expert_places.h); empty: as
  // they are numbered.
  std::span<const float> places;
  ExpertCache* cache = nullptr;
  CachedExperts* next = nullptr;
  std::byte* scratch = nullptr;

  // -1: the expert is elsewhere, or is none: a damaged plan may have let another step write here.
  int32_t matrix_of(int32_t id) const {
    if (places.empty()) return id < next->experts() ? id : -1;
    if (id < 0 || id >= std::ssize(places)) return -1;
    return kernels::place_of_expert(places[static_cast<size_t>(id)], next->experts());
  }

  void run(const Batch& batch) {
    for (const auto& step : steps) {
      const StepWork work = step->begin(batch);
      if (work.fault) return;
      for (int64_t i = 0; i < work.items; ++i) step->run(i, scratch);
    }
    experts.clear();
    for (int64_t t = 0; t < batch.tokens; ++t) {
      const int32_t* const own = ids + t * top_k;
      for (int64_t i = 0; i < ceil_div(top_k, 2); ++i) experts.push_back(matrix_of(own[i]));
    }
    std::ranges::sort(experts);
    experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
    std::erase_if(experts, [](int32_t e) { return e < 0; });
    cache->ahead(*next, experts, true);
  }
};

ExpertPrediction::~ExpertPrediction() = default;

Result<std::unique_ptr<ExpertPrediction>> ExpertPrediction::create(const plan::PlanView& plan,
                                                                   const KvPools& kv,
                                                                   const HostArena& arena,
                                                                   const BindOptions& options,
                                                                   ExpertCache& cache) {
  std::unique_ptr<ExpertPrediction> own(new ExpertPrediction);
  const program::Program& program = *plan.program;
  const std::vector<plan::ExpertLayer> layers = plan::cpu_expert_layers(program);
  own->program_ = program;
  own->program_.steps.clear();
  own->plan_ = plan;
  own->plan_.program = &own->program_;
  own->offsets_ = arena.layout.offsets;
  // First all values, then the steps, which point into these.
  struct Made {
    size_t number = 0;  // among the layers
    size_t first = 0;   // step
    size_t group = 0;   // of the plan
  };
  std::vector<Made> made;
  const auto values = static_cast<program::ValueId>(program.values.size());
  for (size_t i = 0; i + 1 < layers.size(); ++i) {
    auto derived = derive(program, layers[i], layers[i + 1]);
    if (!derived) continue;
    const auto first = static_cast<program::ValueId>(own->program_.values.size());
    for (program::Step& step : derived->steps) {
      for (auto* views : {&step.inputs, &step.outputs}) {
        for (program::View& view : *views) {
          if (view.value >= values) view.value += first - values;
        }
      }
    }
    uint64_t at = arena.layout.total_bytes;
    for (program::Value& value : derived->values) {
      value.buffer = static_cast<int32_t>(own->offsets_.size());
      own->offsets_.push_back(at);
      at += room_of(value);
      own->program_.values.push_back(value);
    }
    made.push_back({i, own->program_.steps.size(), derived->group});
    for (program::Step& step : derived->steps) own->program_.steps.push_back(std::move(step));
  }
  int64_t scratch = 0;
  for (size_t m = 0; m < made.size(); ++m) {
    const auto [number, first, group] = made[m];
    const size_t end = m + 1 < made.size() ? made[m + 1].first : own->program_.steps.size();
    auto guess = std::make_unique<Guess>();
    BindOptions bound = options;
    bound.buffer_offsets = own->offsets_;
    bound.threads = bound.shares = 1;
    bound.experts = nullptr;
    bound.expert_counts = nullptr;
    bound.first_step = static_cast<uint32_t>(first);
    bound.step_count = static_cast<uint32_t>(end - first);
    // A GPU's form may be none of the CPU's; a guess is no reason to refuse a plan.
    Result<BoundPlan> steps = bind(own->plan_, kv, bound);
    if (!steps) continue;
    for (BoundStep& step : steps->steps) guess->steps.push_back(std::move(step.run));
    scratch = std::max(scratch, steps->scratch_bytes);
    const program::Step& router = own->program_.steps[end - 1];
    const program::Value& ids = own->program_.values[router.outputs[0].value];
    guess->ids = reinterpret_cast<const int32_t*>(arena.memory.data() + own->offsets_[ids.buffer]);
    guess->top_k = router.outputs[0].width;
    guess->experts.reserve(static_cast<size_t>(kDecodeTokens * guess->top_k));
    guess->places = places_of(plan, options, group);
    guess->cache = &cache;
    guess->next = cache.layers()[number + 1].get();
    cache.layers()[number]->guess_by([g = guess.get()](const Batch& batch) { g->run(batch); });
    own->guesses_.push_back(std::move(guess));
  }
  own->scratch_ = KTX_TRY(Arena::allocate(static_cast<uint64_t>(scratch), "scratch memory"));
  for (const auto& guess : own->guesses_) guess->scratch = own->scratch_.data();
  return own;
}

}  // namespace ktx::runtime
