#include "lib/runtime/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/runtime/engine/engine_state.h"
#include "lib/support/strings.h"

namespace ktx::runtime {

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::~Engine() {
  finish_all();
}

void Engine::finish_all() {
  while (state_ && passes() > 0) (void)finish();
}

int64_t Engine::most_forwards() const {
  return static_cast<int64_t>(state_->passes.size());
}
int64_t Engine::passes() const {
  return static_cast<int64_t>(state_->in_flight);
}
bool Engine::goes_ahead() const {
  return most_forwards() > 1 && !has_states();
}

const plan::PlanView& Engine::plan() const {
  return state_->plan.view();
}
Status Engine::check_plan() const {
  KTX_TRY(state_->plan.check());
  const auto& before = state_->opened;
  if (!before) return {};
  const Result<FileStamp> now = stamp_file(state_->plan.path());
  // One that was put in its place, or is gone, leaves what is mapped as it was; so do a new link
  // and other rights, which change `changed_ns`.
  if (!now || now->device != before->device || now->inode != before->inode) return {};
  if (now->size == before->size && now->modified_ns == before->modified_ns) return {};
  return Error{fmt::format(
      "{}: the file was written to while it was in use ({} bytes, before {}); start again when it "
      "is whole",
      state_->plan.path(), now->size, before->size)};
}
const plan::MemoryEstimate& Engine::memory() const {
  return state_->sizes.memory;
}
const std::vector<std::string>& Engine::notes() const {
  return state_->sizes.notes;
}
int Engine::threads() const {
  return state_->pool->threads();
}
std::shared_ptr<ThreadPool> Engine::pool() const {
  return state_->pool;
}
std::vector<GpuUse> Engine::gpus() const {
  return state_->runner->gpus();
}
Isa Engine::isa() const {
  return state_->isa;
}
Precision Engine::precision() const {
  return state_->sizes.precision;
}
plan::KvType Engine::kv_type() const {
  return state_->sizes.shape.kv_type;
}
int64_t Engine::ctx() const {
  return state_->sizes.shape.ctx;
}
int64_t Engine::max_batch() const {
  return state_->sizes.shape.max_batch;
}
int64_t Engine::chunk_tokens() const {
  return state_->sizes.shape.step_tokens;
}
int64_t Engine::rollback_tokens() const {
  return has_states() ? state_->sizes.shape.rollback_tokens : chunk_tokens();
}
int64_t Engine::vocab_size() const {
  return plan().facts.vocab_size;
}
const EngineStats& Engine::stats() const {
  return state_->stats;
}
int64_t Engine::logits_rows() const {
  return state_->batch().outputs;
}

bool Engine::has_logits(int64_t row) const {
  KTX_ASSERT(row >= 0 && row < logits_rows());
  return state_->batch().best[row] < 0;
}

bool Engine::is_filtered(int64_t row) const {
  return !has_logits(row) && state_->batch().filter[row] != nullptr;
}

BestLogits Engine::best(int64_t row) const {
  KTX_ASSERT(!has_logits(row));
  return state_->runner->best(row, state_->batch().best[row]);
}

Status Engine::fetch_logits(int64_t row) {
  if (has_logits(row)) return {};
  KTX_TRY(state_->runner->fetch_logits(row));
  state_->passes[state_->shown].batch.best[row] = -1;
  return {};
}

std::span<const float> Engine::logits(int64_t row) const {
  KTX_ASSERT(has_logits(row));
  const PlanRunner& runner = *state_->runner;
  return {runner.logits() + row * runner.logits_stride(),
          static_cast<size_t>(plan().facts.output_width())};
}

void Engine::share_out(int64_t items, const std::function<void(int64_t)>& work) {
  state_->pool->for_each(items, [&](int64_t item, int) { work(item); });
}

Sequence Engine::new_sequence(std::string owner) {
  return Sequence(this, std::move(owner));
}

Result<Forward> Engine::forward(std::span<const BatchItem> items,
                                const std::function<void()>& before_filters,
                                const ForwardWatch* watch) {
  KTX_ASSERT(passes() == 0);
  const Forward begun = KTX_TRY(begin(items, before_filters, watch));
  return begun == Forward::Done ? finish() : begun;
}

Result<Forward> Engine::begin(std::span<const BatchItem> items,
                              const std::function<void()>& before_filters,
                              const ForwardWatch* watch) {
  State& s = *state_;
  KTX_ASSERT(passes() < most_forwards());
  s.shown = (s.oldest + s.in_flight) % s.passes.size();
  s.kept_rows.count = 0;
  Pass& pass = s.passes[s.shown];
  pass.batch.before_filters = before_filters;
  pass.watch = watch;
  const auto begun = begin_forward(pass, items);
  if (!begun) return named(begun.error());
  if (*begun == Forward::Done) ++s.in_flight;
  return begun;
}

Result<Forward> Engine::finish() {
  State& s = *state_;
  KTX_ASSERT(s.in_flight > 0);
  s.kept_rows.count = 0;
  s.shown = s.oldest;
  s.oldest = (s.oldest + 1) % s.passes.size();
  --s.in_flight;
  const auto finished = finish_forward(s.passes[s.shown]);
  if (!finished) return named(finished.error());
  return finished;
}

Error Engine::named(const Error& error) const {
  return Error{fmt::format("{}: {}", state_->plan.path(), error.message)};
}

Result<Forward> Engine::begin_forward(Pass& pass, std::span<const BatchItem> items) {
  State& s = *state_;
  Batch& batch = pass.batch;
  batch.tokens = 0;
  batch.outputs = 0;
  pass.items.assign(items.begin(), items.end());
  pass.weight_bytes = 0;
  pass.follows_lost = false;
  const auto max_outputs = static_cast<int64_t>(batch.output_rows.size());
  if (static_cast<int64_t>(items.size()) > max_batch()) {
    return Error{fmt::format("a step of {} sequences, at most {} are possible (--max-batch)",
                             items.size(), max_batch())};
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const BatchItem& item = items[i];
    KTX_ASSERT(item.best <= kMostBestLogits && item.best != 0);
    KTX_ASSERT(item.sequence->ahead_ == 0 || goes_ahead());
    const auto count = static_cast<int64_t>(item.tokens.size());
    if (count > chunk_tokens() - batch.tokens) {
      return Error{fmt::format("a step of more than {} tokens", chunk_tokens())};
    }
    const int64_t outputs = item.want == Want::All ? count : item.want == Want::Last && count > 0;
    if (outputs > max_outputs - batch.outputs) {
      return Error{fmt::format("a step with more than {} logits rows", max_outputs)};
    }
    const int64_t start = item.sequence->begun();
    if (start + count > ctx()) return Forward::ContextFull;
    for (int64_t t = 0; t < count; ++t) {
      const int32_t id = item.tokens[t];
      if (id < 0 || id >= vocab_size()) {
        return Error{fmt::format("token {} is not in the vocabulary of {}", id, vocab_size())};
      }
      const int64_t row = batch.tokens + t;
      batch.ids[row] = id;
      batch.position[row] = static_cast<int32_t>(start + t);
      batch.sequence[row] = static_cast<int32_t>(i);
      batch.text_end[row] = static_cast<int32_t>(start + count - 1);
      if (count - t <= outputs) {
        batch.best[batch.outputs] = s.runner->keeps_logits() ? item.best : -1;
        batch.filter[batch.outputs] = item.filter;
        batch.output_rows[batch.outputs++] = static_cast<int32_t>(row);
      }
    }
    if (!batch.hidden.empty()) {
      const int64_t width = plan().facts.given_width;
      if (std::ssize(item.hidden) != count * width) {
        return Error{"the plan is a drafter that runs with the hidden states of its model alone"};
      }
      std::ranges::copy(item.hidden, batch.hidden.begin() + batch.tokens * width);
    }
    batch.tokens += count;
  }
  if (batch.tokens == 0) return Forward::Done;
  const auto cache_is_full = [&] {
    for (const BatchItem& item : items) s.kv.shrink(item.sequence->tables_, item.sequence->begun());
    batch.outputs = 0;
    return Forward::CacheFull;
  };
  for (Sequence* sequence : s.sequences) s.kv.trim(sequence->tables_, sequence->length_);
  for (size_t i = 0; i < items.size(); ++i) {
    Sequence& sequence = *items[i].sequence;
    const int64_t start = sequence.begun();
    if (!s.kv.own(sequence.tables_, start) ||
        !s.kv.grow(sequence.tables_, start + items[i].tokens.size())) {
      return cache_is_full();
    }
    for (const SequenceKind kind : kBlockKinds) {
      batch.tables[kind][i] = sequence.tables_[kind].data();
    }
  }
  if (!take_states(pass)) return cache_is_full();
  for (const BatchItem& item : items) {
    item.sequence->ahead_ += static_cast<int64_t>(item.tokens.size());
  }
  if (most_forwards() > 1) {
    const int64_t bytes_before = s.runner->weight_bytes();
    s.runner->begin(pass.walk, batch, pass.watch);
    pass.weight_bytes = s.runner->weight_bytes() - bytes_before;
  }
  return Forward::Done;
}

Result<bool> Engine::compute(Pass& pass) {
  State& s = *state_;
  const int64_t bytes_before = s.runner->weight_bytes();
  const Result<bool> done =
      most_forwards() > 1 ? s.runner->finish(pass.walk) : s.runner->run(pass.batch, pass.watch);
  pass.weight_bytes += s.runner->weight_bytes() - bytes_before;
  KTX_TRY(done);
  KTX_TRY(check_plan());
  return *done && !pass.follows_lost;
}

Result<Forward> Engine::finish_forward(Pass& pass) {
  State& s = *state_;
  if (pass.batch.tokens == 0) return Forward::Done;
  const Result<bool> done = compute(pass);
  const bool computed = done && *done;
  computed ? keep_states(pass) : give_back_states(pass);
  for (const BatchItem& item : pass.items) {
    Sequence& sequence = *item.sequence;
    const auto count = static_cast<int64_t>(item.tokens.size());
    sequence.ahead_ -= count;
    if (computed) sequence.length_ += count;
    if (computed) continue;
    if (sequence.ahead_ == 0) s.kv.shrink(sequence.tables_, sequence.length_);
    for (size_t i = 0; i < s.in_flight; ++i) {
      Pass& later = s.passes[(s.oldest + i) % s.passes.size()];
      later.follows_lost |=
          std::ranges::find(later.items, &sequence, &BatchItem::sequence) != later.items.end();
    }
  }
  if (!computed) pass.batch.outputs = 0;
  if (!KTX_TRY(done)) return Forward::Stopped;
  s.stats.steps += 1;
  s.stats.tokens += pass.batch.tokens;
  s.stats.weight_bytes += pass.weight_bytes;
  s.stats.expert_use = s.runner->expert_use();
  if (s.experts) s.stats.expert_cache = s.experts->use();
  return Forward::Done;
}

Result<plan::ExpertProfile> Engine::expert_profile() {
  return state_->runner->expert_profile();
}

PrefixHit Engine::reuse_prefix(Sequence& sequence, std::span<const int32_t> tokens) {
  const PrefixHit hit =
      state_->prefixes.reuse(sequence.tables_, sequence.length_, tokens, sequence.owner_);
  sequence.length_ = hit.tokens;
  return hit;
}

PrefixBlocks Engine::find_prefix(std::span<const int32_t> tokens, const std::string& owner) const {
  return state_->prefixes.find(tokens, owner);
}

void Engine::keep_prefix(Sequence& sequence, std::span<const int32_t> tokens) {
  KTX_ASSERT(static_cast<int64_t>(tokens.size()) == sequence.length_);
  state_->prefixes.keep(sequence.tables_, tokens, false, sequence.owner_);
  state_->kv.trim(sequence.tables_, sequence.length_);
}

void Engine::retire(Sequence sequence, std::span<const int32_t> tokens) {
  KTX_ASSERT(static_cast<int64_t>(tokens.size()) == sequence.length_);
  state_->prefixes.keep(sequence.tables_, tokens, true, sequence.owner_);
}

void Engine::forget_prefix(std::span<const int32_t> tokens, const std::string& owner) {
  state_->prefixes.forget(tokens, owner);
}

Status Engine::visit_kv(const Sequence& sequence, Visit visit, const VisitRows& call) {
  return state_->runner->visit_kv(sequence.tables_, sequence.length_, visit == Visit::Write, call);
}

int64_t Engine::kv_row_bytes(const Sequence& sequence) const {
  const KvBegins begins = kv_begins(sequence);
  int64_t bytes = 0;
  for (const SequenceKind kind : kBlockKinds) {
    bytes += (sequence.length_ - begins[kind]) * state_->kv.token_row_bytes(kind);
  }
  return bytes;
}

KvBegins Engine::kv_begins(const Sequence& sequence) const {
  KvBegins begins;
  for (const SequenceKind kind : kPassingKinds) {
    const std::vector<std::byte*>& table = sequence.tables_[kind];
    const auto gone = std::find_if(table.begin(), table.end(), [](auto* block) { return block; });
    begins[kind] =
        std::min<int64_t>(sequence.length_, (gone - table.begin()) * KvCache::kBlockTokens);
  }
  return begins;
}

int64_t Engine::hidden_size() const {
  return plan().facts.hidden_size;
}
int64_t Engine::max_outputs() const {
  return static_cast<int64_t>(state_->batch().output_rows.size());
}

Status Engine::hidden(int64_t row, std::span<float> out) {
  State& s = *state_;
  KTX_ASSERT(row >= 0 && row < logits_rows());
  KTX_ASSERT(static_cast<int64_t>(out.size()) == hidden_size());
  if (plan().facts.encoder && plan().facts.scores == 0) {  // its outputs are these
    KTX_TRY(fetch_logits(row));
    std::ranges::copy(logits(row), out.begin());
    return {};
  }
  const FinalHidden found = KTX_TRY(s.hidden);
  const ValueRead read{found.device, found.value, row, out};
  return s.runner->read({&read, 1});
}

int64_t Engine::kept_width() const {
  return std::ssize(state_->kept_hidden) * hidden_size();
}

Result<std::span<const float>> Engine::hidden_of_tokens(int64_t token, int64_t count, bool all) {
  constexpr int64_t kAtOnce = 256;
  State& s = *state_;
  const int64_t width = kept_width(), tokens = s.batch().tokens;
  if (width == 0) {
    return Error{"the plan keeps no hidden states for a drafter; compile it with --draft"};
  }
  KTX_ASSERT(token >= 0 && count > 0 && count <= tokens - token);
  const KeptRows& kept = s.kept_rows;
  const bool here = kept.begin <= token && token + count <= kept.begin + kept.count;
  if (!here) KTX_TRY(all && tokens <= kAtOnce ? read_kept(0, tokens) : read_kept(token, count));
  return std::span<const float>(kept.rows).subspan(
      static_cast<size_t>((token - kept.begin) * width), static_cast<size_t>(count * width));
}

Status Engine::read_kept(int64_t token, int64_t count) {
  State& s = *state_;
  KeptRows& kept = s.kept_rows;
  const int64_t width = hidden_size(), all = kept_width();
  kept.count = 0;
  // Smaller ones keep their size: what is behind `count` is what was there before.
  const auto size = static_cast<size_t>(count * all);
  kept.rows.resize(std::max(kept.rows.size(), size));
  kept.values.resize(std::max(kept.values.size(), size));
  std::vector<ValueRead> reads;
  for (const FinalHidden& value : s.kept_hidden) {
    const size_t from = reads.size() * static_cast<size_t>(count * width);
    reads.push_back({value.device, value.value, token,
                     std::span(kept.values).subspan(from, static_cast<size_t>(count * width))});
  }
  KTX_TRY(s.runner->read(reads));
  for (size_t i = 0; i < reads.size(); ++i) {
    for (int64_t t = 0; t < count; ++t) {
      std::copy_n(reads[i].out.begin() + t * width, width,
                  kept.rows.begin() + t * all + static_cast<int64_t>(i) * width);
    }
  }
  kept.begin = token;
  kept.count = count;
  return {};
}

bool Engine::has_windows() const {
  return !state_->kv.passing().empty();
}

bool Engine::has_states() const {
  return state_->kv.has_states();
}

uint64_t Engine::state_bytes(const Sequence& sequence) const {
  return sequence.length_ == 0 ? 0 : state_->sizes.shape.state_bytes;
}

Status Engine::copy_states(const Sequence& sequence, Visit visit, std::span<std::byte> bytes) {
  KTX_ASSERT(bytes.size() == state_bytes(sequence));
  if (bytes.empty()) return {};
  return state_->runner->copy_states(sequence.tables_.states.back().slot, visit == Visit::Write,
                                     bytes);
}

bool Engine::extend_uncomputed(Sequence& sequence, int64_t tokens, KvBegins begins) {
  KvPools& kv = state_->kv;
  for (const SequenceKind kind : kPassingKinds) begins[kind] /= KvCache::kBlockTokens;
  const int64_t length = sequence.length_ + tokens;
  if (!kv.own(sequence.tables_, sequence.length_)) return false;
  if (!kv.grow_from(sequence.tables_, length, begins)) return false;
  const bool states = has_states() && tokens > 0;
  const StateSlot slot = states ? kv.states().take() : kNoState;
  if (slot != kNoState) sequence.tables_.states.push_back({length, slot, false});
  if (!kv.can_continue(sequence.tables_, length) || (states && slot == kNoState)) {
    kv.shrink(sequence.tables_, sequence.length_);
    return false;
  }
  sequence.length_ = length;
  return true;
}

CacheState Engine::cache_state() const {
  const KvCache& kv = state_->kv.of(SequenceKind::Whole);
  const StatePool& states = state_->kv.states();
  return {kv.total_blocks(), kv.free_blocks(),    kv.idle_blocks(),
          states.slots(),    states.free_slots(), state_->prefixes.snapshots()};
}

void Engine::enable_step_stats(bool on) {
  state_->runner->enable_times(on);
}

void Engine::set_trace(ForwardTrace* trace) {
  state_->runner->set_trace(trace);
}

std::vector<StepTime> Engine::step_times() const {
  std::vector<StepTime> rows;
  for (const StepTotals& totals : state_->runner->times()) {
    const program::Step& step = plan().program->steps[totals.step];
    rows.push_back({totals, step.module, info(step.op).name, step.layer});
  }
  return rows;
}

Result<KernelTime> Engine::time_gpu_steps(std::span<const uint32_t> steps) {
  return state_->runner->time_steps(steps);
}

std::vector<uint32_t> Engine::gpu_steps_of_launch(uint32_t step) const {
  return state_->runner->steps_of_launch(step);
}

Sequence::Sequence(Engine* engine, std::string owner) : owner_(std::move(owner)) {
  set_engine(engine);
}

void Sequence::set_engine(Engine* engine) {
  if (engine_) engine_->state_->sequences.erase(this);
  engine_ = engine;
  if (engine_) engine_->state_->sequences.insert(this);
}

Sequence::Sequence(Sequence&& other) noexcept
    : owner_(std::move(other.owner_)),
      length_(std::exchange(other.length_, 0)),
      tables_(std::exchange(other.tables_, {})) {
  KTX_ASSERT(other.ahead_ == 0);
  set_engine(other.engine_);
  other.set_engine(nullptr);
}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  KTX_ASSERT(ahead_ == 0 && other.ahead_ == 0);
  Engine* const engine = engine_;
  set_engine(other.engine_);
  other.set_engine(engine);
  std::swap(owner_, other.owner_);
  std::swap(length_, other.length_);
  std::swap(tables_, other.tables_);
  return *this;
}

Sequence::~Sequence() {
  if (engine_ && ahead_ > 0) engine_->finish_all();
  if (engine_) truncate(0);
  set_engine(nullptr);
}

bool Sequence::can_truncate(int64_t length) const {
  return length > 0 && engine_->state_->kv.last_place(tables_, length) == length;
}

void Sequence::truncate(int64_t length) {
  KTX_ASSERT(ahead_ == 0);
  KvPools& kv = engine_->state_->kv;
  length_ = kv.last_place(tables_, std::max<int64_t>(0, std::min(length_, length)));
  kv.shrink(tables_, length_);
}

}  // namespace ktx::runtime
