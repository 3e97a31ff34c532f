#include "lib/runtime/engine/plan_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/program/forwards_in_flight.h"
#include "lib/program/program.h"
#include "lib/runtime/cpu/cpu_backend.h"
#include "lib/runtime/experts/expert_prediction.h"
#include "lib/runtime/gpu/gpu_backend.h"
#include "lib/runtime/hosts/host_backend.h"
#include "lib/runtime/hosts/host_boundaries.h"
#include "lib/runtime/hosts/host_group.h"
#include "lib/target/host_device.h"

namespace ktx::runtime {

Result<KernelTime> Backend::time_steps(size_t, std::span<const uint32_t> steps) {
  return Error{fmt::format("step {} is on no GPU", steps[0])};
}

PlanRunner::PlanRunner(const BackendSetup& setup)
    : plan_(setup.plan),
      group_(setup.hosts),
      kv_(setup.kv),
      parts_(bind_parts(setup.plan)),
      counts_(setup.plan, parts_, setup.count_experts) {}

PlanRunner::~PlanRunner() = default;

Result<std::unique_ptr<PlanRunner>> PlanRunner::create(const BackendSetup& given) {
  std::unique_ptr<PlanRunner> runner(new PlanRunner(given));
  PlanRunner& r = *runner;
  BackendSetup setup = given;
  setup.expert_counts = &r.counts_;
  r.host_ = KTX_TRY(HostArena::create(setup.plan, setup.shape,
                                      setup.experts ? prediction_bytes(*setup.plan.program) : 0));
  r.cpu_ = KTX_TRY(create_cpu_backend(setup, r.parts_, r.host_));
  r.backends_.push_back(r.cpu_.get());
  if (!r.parts_.gpus.empty()) {
    r.gpus_ = KTX_TRY(create_gpu_backend(setup, r.parts_, r.host_));
    r.backends_.push_back(r.gpus_.get());
  }
  if (setup.hosts != nullptr) {
    setup.gpus = r.gpus_.get();
    r.hosts_ = KTX_TRY(create_host_backend(setup, r.parts_, r.host_));
    r.backends_.push_back(r.hosts_.get());
    r.most_forwards_ = program::forwards_in_flight(*setup.plan.program);
  }
  return runner;
}

Backend& PlanRunner::backend_of(const Part& part) const {
  if (part.kind == Part::Kind::Network || part.kind == Part::Kind::Elsewhere) return *hosts_;
  return part.kind == Part::Kind::Cpu ? *cpu_ : *gpus_;
}

template <class Work>
auto PlanRunner::traced(TraceSpan span, const Work& work) -> decltype(work()) {
  if (!trace_) return work();
  span.begin = trace_->now();
  auto result = work();
  span.end = trace_->now();
  host_lane_->spans.push_back(span);
  return result;
}

Result<bool> PlanRunner::run(const Batch& batch, const ForwardWatch* watch) {
  const double begun = trace_ ? trace_->now() : 0;
  ForwardWalk pass{.batch = &batch, .watch = watch};
  pass.goes_on = walk(pass, false);
  const auto done = end(pass);
  trace_forward(begun, "pass", batch.tokens);
  return done;
}

void PlanRunner::begin(ForwardWalk& pass, const Batch& batch, const ForwardWatch* watch) {
  KTX_ASSERT(most_forwards_ > 1);
  const double begun = trace_ ? trace_->now() : 0;
  pass = {.batch = &batch, .watch = watch};
  pass.goes_on = walk(pass, true);
  trace_forward(begun, "begin", batch.tokens);
  if (pass.goes_on && *pass.goes_on) return;
  for (Backend* backend : backends_) backend->stop();
}

Result<bool> PlanRunner::finish(ForwardWalk& pass) {
  const double begun = trace_ ? trace_->now() : 0;
  group_->begin_forward(pass.number);
  if (pass.goes_on && *pass.goes_on) {
    const auto go_on = [&]() -> Result<bool> {
      for (Backend* backend : backends_) KTX_TRY(backend->resume(*pass.batch));
      return walk(pass, false);
    };
    pass.goes_on = go_on();
  }
  const auto done = end(pass);
  trace_forward(begun, "pass", pass.batch->tokens);
  return done;
}

void PlanRunner::trace_forward(double begun, const char* what, int64_t tokens) {
  if (!trace_) return;
  passes_->spans.push_back({.begin = begun, .end = trace_->now(), .what = what, .tokens = tokens});
}

// Goes on with a pass to its end, or to where another host's results are waited for.
Result<bool> PlanRunner::walk(ForwardWalk& pass, bool until_wait) {
  const int64_t pairs = *counts_.cpu_pairs();
  ForwardWatch with_hosts;
  const ForwardWatch* watch = pass.watch;
  if (group_) {
    if (watch) with_hosts = *watch;
    with_hosts.failed = &group_->failed();
    watch = &with_hosts;
  }
  const auto done = run_parts(pass, watch, until_wait);
  pass.cpu_pairs += *counts_.cpu_pairs() - pairs;
  return done;
}

Result<bool> PlanRunner::end(ForwardWalk& pass) {
  const int64_t pairs = *counts_.cpu_pairs();
  auto done = [&]() -> Result<bool> {
    const bool goes_on = KTX_TRY(pass.goes_on);
    for (Backend* backend : backends_) {
      if (!goes_on) backend->stop();
      if (goes_on) KTX_TRY(backend->send_logits(*pass.batch));
    }
    KTX_TRY(traced({.what = "wait"}, [&] { return finish(); }));
    return goes_on;
  }();
  if (group_ && done && !*done && group_->failed().load()) done = Error{group_->failure()};
  if (!done) {
    for (Backend* backend : backends_) backend->abandon();
  }
  pass.cpu_pairs += *counts_.cpu_pairs() - pairs;
  if (done && *done) {
    counts_.add_forward(pass.batch->tokens, pass.cpu_pairs, pass.taken, pass.joint_pairs);
  }
  return done;
}

Result<bool> PlanRunner::run_parts(ForwardWalk& pass, const ForwardWatch* watch, bool until_wait) {
  const Batch& batch = *pass.batch;
  const size_t count = parts_.parts.size();
  size_t& p = pass.part;
  std::vector<int> waits;
  pass.taken.resize(count);
  ForwardWatch of_part;
  if (watch) of_part.stop = watch->stop;
  if (watch && watch->progress) {
    of_part.progress = [&](double share) {
      watch->progress((static_cast<double>(p) + share) / static_cast<double>(count));
    };
  }
  if (p == 0) {
    for (Backend* backend : backends_) KTX_TRY(backend->begin(batch));
    if (group_) pass.number = group_->pass();
  }
  if (gpus_ && gpus_->joint_tokens() > 0) {
    joint_ = batch;
    joint_.experts = Batch::Experts::Rest;
    joint_.joint_tokens = gpus_->joint_tokens();
  }
  for (; p < count; ++p) {
    const Part& part = parts_.parts[p];
    const bool may_stop = !gpus_ || gpus_->may_stop(p);
    if (watch && watch->stopped() && may_stop) return false;
    const bool taken = gpus_ && part.kind == Part::Kind::Cpu && gpus_->takes(p);
    pass.taken[p] = taken;
    const bool joint = taken && gpus_->joint_tokens() > 0;
    if (part.kind == Part::Kind::Elsewhere) continue;
    const bool network = part.kind == Part::Kind::Network;
    if (until_wait && network && part.device == group_->rank()) return true;
    // What a part waits for that a GPU takes, the CPU's next one waits for.
    waits.insert(waits.end(), part.waits_for.begin(), part.waits_for.end());
    const bool computes = network || (part.kind == Part::Kind::Cpu && (!taken || joint));
    const auto run_on = [&](Backend& backend, const Batch& own, const char* what) {
      return traced({.step = part.first_step, .steps = part.step_count, .what = what},
                    [&] { return backend.run(p, own, watch ? &of_part : nullptr); });
    };
    if ((!computes || joint) && !KTX_TRY(run_on(*gpus_, batch, "queue"))) return false;
    if (!computes) continue;
    for (int wait : waits) {
      KTX_TRY(traced({.what = "wait"}, [&] { return backend_of(parts_.parts[wait]).wait(wait); }));
    }
    waits.clear();
    if (network) {
      if (!KTX_TRY(run_on(*hosts_, batch, "network"))) return false;
      continue;
    }
    const int64_t pairs = *counts_.cpu_pairs();
    if (!KTX_TRY(run_on(*cpu_, joint ? joint_ : batch, "compute"))) return false;
    if (joint) pass.joint_pairs += *counts_.cpu_pairs() - pairs;
  }
  return true;
}

Result<plan::ExpertProfile> PlanRunner::expert_profile() {
  if (!counts_.by_expert()) return Error{"activations are not counted by expert in this run"};
  std::vector<uint64_t> of_others(counts_.size());
  for (Backend* backend : backends_) KTX_TRY(backend->add_expert_counts(of_others));
  return counts_.profile(of_others);
}

Status PlanRunner::add_expert_counts(std::span<uint64_t> counts) {
  counts_.add_to(counts);
  for (Backend* backend : backends_) KTX_TRY(backend->add_expert_counts(counts));
  return {};
}

Status PlanRunner::finish() {
  for (Backend* backend : backends_) KTX_TRY(backend->finish());
  return {};
}

void PlanRunner::set_trace(ForwardTrace* trace) {
  trace_ = trace;
  passes_ = trace ? trace->lane("cpu", "passes") : nullptr;
  host_lane_ = trace ? trace->lane("cpu", "host") : nullptr;
  for (Backend* backend : backends_) backend->set_trace(trace);
}

const float* PlanRunner::logits() const {
  return reinterpret_cast<const float*>(
      host_.place(plan_.program->values[plan_.facts.logits_value]));
}

int64_t PlanRunner::logits_stride() const {
  return program::row_elements(plan_.program->values[plan_.facts.logits_value]);
}

Backend& PlanRunner::logits_backend() const {
  return parts_.logits_device >= 0 ? *gpus_ : *cpu_;
}

bool PlanRunner::keeps_logits() const {
  return logits_backend().keeps_logits();
}

BestLogits PlanRunner::best(int64_t row, int32_t count) const {
  return logits_backend().best(row, count);
}

Status PlanRunner::fetch_logits(int64_t row) {
  return logits_backend().fetch_logits(row);
}

Status PlanRunner::read(std::span<const ValueRead> reads) {
  const auto backend_of = [&](const ValueRead& read) -> Backend* {
    if (!target::is_first_host(read.device)) return hosts_.get();
    return read.device == "cpu" ? cpu_.get() : gpus_.get();
  };
  for (Backend* backend : backends_) {
    std::vector<ValueRead> own;
    for (const ValueRead& read : reads) {
      if (backend_of(read) == backend) own.push_back(read);
    }
    if (!own.empty()) KTX_TRY(backend->read(own));
  }
  return {};
}

Status PlanRunner::visit_kv(const KvTables& tables, int64_t tokens, bool write,
                            const VisitRows& call) {
  std::vector<std::byte*> slots(static_cast<size_t>(kv_.slots()));
  for (int64_t begin = 0; begin < tokens; begin += KvCache::kBlockTokens) {
    const int64_t rows = std::min(KvCache::kBlockTokens, tokens - begin);
    const auto b = static_cast<size_t>(begin / KvCache::kBlockTokens);
    std::fill(slots.begin(), slots.end(), nullptr);
    KvBlock block;
    for (const SequenceKind kind : kv_.kinds()) block[kind] = tables[kind][b];
    for (Backend* backend : backends_) KTX_TRY(backend->map_block(block, write, slots));
    for (int32_t slot = 0; slot < kv_.slots(); ++slot) {
      if (slots[slot]) KTX_TRY(visit_slot_rows(kv_.layout(slot), slots[slot], rows, call));
    }
    for (Backend* backend : backends_) KTX_TRY(backend->unmap_block(block, write));
  }
  return {};
}

Status PlanRunner::visit_block(const KvBlock& block, bool write,
                               const std::function<Status(std::span<std::byte>)>& call) {
  std::vector<std::byte*> slots(static_cast<size_t>(kv_.slots()));
  for (Backend* backend : {cpu_.get(), gpus_.get()}) {
    if (backend) KTX_TRY(backend->map_block(block, write, slots));
  }
  for (int32_t slot = 0; slot < kv_.slots(); ++slot) {
    std::byte* const begin = slots[static_cast<size_t>(slot)];
    if (begin) KTX_TRY(call({begin, static_cast<size_t>(kv_.layout(slot).slot_bytes())}));
  }
  for (Backend* backend : {cpu_.get(), gpus_.get()}) {
    if (backend) KTX_TRY(backend->unmap_block(block, write));
  }
  return {};
}

Status PlanRunner::copy_states(StateSlot slot, bool write, std::span<std::byte> all) {
  if (all.empty()) return {};
  for (Backend* backend : backends_) KTX_TRY(backend->copy_states(slot, write, all));
  return {};
}

int64_t PlanRunner::weight_bytes() const {
  int64_t sum = 0;
  for (const Backend* backend : backends_) sum += backend->weight_bytes();
  return sum;
}

void PlanRunner::enable_times(bool on) {
  for (Backend* backend : backends_) backend->enable_times(on);
}

std::vector<StepTotals> PlanRunner::times() const {
  std::vector<StepTotals> all;
  for (const Backend* backend : backends_) backend->add_times(all);
  std::stable_sort(all.begin(), all.end(),
                   [](const StepTotals& a, const StepTotals& b) { return a.step < b.step; });
  return all;
}

std::vector<StepTime> PlanRunner::step_times() const {
  std::vector<StepTime> rows;
  for (const StepTotals& totals : times()) {
    const program::Step& step = plan_.program->steps[totals.step];
    rows.push_back({totals, step.module, info(step.op).name, step.layer});
  }
  return rows;
}

std::vector<std::string> PlanRunner::notes() const {
  std::vector<std::string> all;
  for (const Backend* backend : backends_) {
    for (std::string& note : backend->notes()) all.push_back(std::move(note));
  }
  return all;
}

std::vector<GpuUse> PlanRunner::gpus() const {
  std::vector<GpuUse> all;
  for (const Backend* backend : backends_) {
    for (GpuUse& gpu : backend->gpus()) all.push_back(std::move(gpu));
  }
  return all;
}

size_t PlanRunner::part_of(uint32_t step) const {
  const auto has_step = [&](const Part& part) {
    return step >= part.first_step && step - part.first_step < part.step_count;
  };
  return static_cast<size_t>(std::find_if(parts_.parts.begin(), parts_.parts.end(), has_step) -
                             parts_.parts.begin());
}

Result<KernelTime> PlanRunner::time_steps(std::span<const uint32_t> steps) {
  const size_t part = part_of(steps[0]);
  if (part == parts_.parts.size()) return Error{fmt::format("step {} is on no GPU", steps[0])};
  return backend_of(parts_.parts[part]).time_steps(part, steps);
}

std::vector<uint32_t> PlanRunner::steps_of_launch(uint32_t step) const {
  const size_t part = part_of(step);
  if (part == parts_.parts.size()) return {step};
  return backend_of(parts_.parts[part]).steps_of_launch(step);
}

}  // namespace ktx::runtime
