#include "lib/runtime/batch_scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "lib/runtime/batch_plan.h"
#include "lib/runtime/ngram_guess.h"
#include "lib/support/hash.h"

namespace ktx::runtime {
namespace {

constexpr int64_t kBlock = KvCache::kBlockTokens;

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// The names of a text's whole blocks: each covers all tokens up to its end.
std::vector<uint64_t> block_names(std::span<const int32_t> tokens) {
  std::vector<uint64_t> names;
  uint64_t name = 0;
  for (size_t at = 0; at + kBlock <= tokens.size(); at += kBlock) {
    name = hash_after(name, std::as_bytes(tokens.subspan(at, kBlock)));
    names.push_back(name);
  }
  return names;
}

// How many of the best logits a request can do with; -1: it needs all.
int32_t best_needed(const GenerationRequest& request, const Sampler& sampler) {
  if (request.embed) return 1;  // wants none
  if (request.filter || request.logprobs > kMostBestLogits) return -1;
  const int32_t chosen = sampler.best_needed();
  return chosen < 0 ? -1 : std::max(chosen, static_cast<int32_t>(request.logprobs));
}

}  // namespace

struct BatchScheduler::Running {
  Running(RequestId id, GenerationRequest request, Sampler sampler)
      : id(id), request(std::move(request)), sampler(std::move(sampler)) {
    tokens = this->request.prompt;
    result.prompt_tokens = static_cast<int64_t>(tokens.size());
  }

  int64_t computed() const { return sequence ? sequence->length() : 0; }
  int64_t remaining() const { return static_cast<int64_t>(tokens.size()) - computed(); }
  bool in_prompt() const { return result.completion_tokens == 0; }
  // Tokens of the answer, with those that an interrupted one had before.
  int64_t answered() const { return request.answered_tokens + result.completion_tokens; }
  SlotText slot_text() const { return {tokens, answered(), sampler.state(), request.sampling}; }

  RequestId id;
  GenerationRequest request;
  Sampler sampler;
  std::vector<int32_t> tokens;       // the prompt, then the answer so far
  std::optional<Sequence> sequence;  // while it has a place
  std::vector<uint64_t> blocks;      // their names, when it got its place
  int64_t kept_blocks = 0;           // that the prefix cache has
  std::vector<int32_t> step_ids;     // what this step computes
  int64_t guesses = 0;               // of these, the last ones
  std::vector<float> pooled;         // embeddings: the sum of `pooled_rows` hidden rows
  int64_t pooled_rows = 0;
  bool asked_cache = false;
  bool ended = false;
  RequestEnd result;
  Clock::time_point submitted, admitted, first_token, last_token;
};

BatchScheduler::BatchScheduler(Engine& engine, const SchedulerOptions& options)
    : engine_(engine), options_(options) {
  capacity_ = std::min(engine.ctx(), engine.cache_state().total * kBlock);
  if (engine.cache_state().total == 0) capacity_ = engine.ctx();  // no attention, no cache
  for (int64_t i = 0; i < engine.max_batch(); ++i) {
    slots_.push_back({});
    slots_.back().id = static_cast<int>(i);
  }
  slot_texts_.resize(slots_.size());
  if (options.filters_beside_steps.value_or(!engine.gpus().empty())) {
    filter_worker_ = std::make_unique<FilterWorker>();
  }
  publish_stats();
  thread_ = std::thread([this] { loop(); });
}

BatchScheduler::~BatchScheduler() {
  stop();
}

void BatchScheduler::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    draining_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

RequestId BatchScheduler::submit(GenerationRequest request, Refused* refused) {
  const auto refuse = [&](Refusal why, std::string message) -> RequestId {
    if (refused != nullptr) *refused = {why, std::move(message)};
    return 0;
  };
  const auto count = static_cast<int64_t>(request.prompt.size());
  if (count == 0) return refuse(Refusal::Invalid, "the prompt has no tokens");
  if (count >= capacity_) {
    return refuse(Refusal::TooLong,
                  fmt::format("the prompt has {} tokens; with an answer at most {} fit the "
                              "context",
                              count, capacity_));
  }
  for (int32_t id : request.prompt) {
    if (id >= 0 && id < engine_.vocab_size()) continue;
    return refuse(Refusal::Invalid,
                  fmt::format("token {} is not in the vocabulary of {}", id, engine_.vocab_size()));
  }
  Result<Sampler> sampler = Sampler::create(request.sampling, engine_.vocab_size());
  if (!sampler) return refuse(Refusal::Invalid, sampler.error().message);
  if (request.embed && *request.embed == Pooling::Mean) request.reuse_cache = false;
  if (request.sampler) sampler->set_state(*request.sampler);
  request.answered_tokens = std::clamp<int64_t>(request.answered_tokens, 0, count);
  for (int32_t id : std::span(request.prompt).last(request.answered_tokens)) {
    if (!request.filter) break;
    const Status accepted = request.filter->accept(id);
    if (!accepted) return refuse(Refusal::Invalid, accepted.error().message);
  }
  auto running = std::make_unique<Running>(0, std::move(request), sampler.take());
  running->submitted = Clock::now();
  RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return refuse(Refusal::Draining, "the server is shutting down");
    if (waiting_count_ + static_cast<int64_t>(arrived_.size()) >= options_.max_queue) {
      ++refused_;
      return refuse(Refusal::QueueFull,
                    fmt::format("{} requests wait already; try again later", options_.max_queue));
    }
    id = running->id = ++last_id_;
    arrived_.push_back(std::move(running));
    ++open_;
    ++accepted_;
  }
  wake_.notify_all();
  return id;
}

void BatchScheduler::cancel(RequestId id) {
  if (id == 0) return;
  {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(id);
  }
  wake_.notify_all();
}

void BatchScheduler::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

bool BatchScheduler::wait_idle(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, limit, [&] { return open_ == 0; });
}

void BatchScheduler::cancel_all() {
  {
    const std::lock_guard lock(mutex_);
    cancel_all_ = true;
  }
  wake_.notify_all();
}

void BatchScheduler::call(const std::function<void(Engine&)>& work) {
  std::mutex done_mutex;
  std::condition_variable done_signal;
  bool done = false;
  {
    const std::lock_guard lock(mutex_);
    work_.push_back([&] {
      work(engine_);
      const std::lock_guard done_lock(done_mutex);
      done = true;
      done_signal.notify_all();
    });
  }
  wake_.notify_all();
  std::unique_lock lock(done_mutex);
  done_signal.wait(lock, [&] { return done; });
}

SchedulerStats BatchScheduler::stats() const {
  const std::lock_guard lock(mutex_);
  SchedulerStats stats = published_;
  stats.waiting = waiting_count_ + static_cast<int64_t>(arrived_.size());
  stats.requests = accepted_;
  stats.refused = refused_;
  return stats;
}

std::vector<SlotState> BatchScheduler::slots() const {
  const std::lock_guard lock(mutex_);
  return published_slots_;
}

SlotText BatchScheduler::slot_text(int slot) const {
  const std::lock_guard lock(mutex_);
  return slot_texts_[slot];
}

void BatchScheduler::call_with_slot(int slot, const SlotWork& work) {
  call([&](Engine& engine) {
    for (const auto& running : running_) {
      if (running->result.slot == slot && running->sequence) {
        return work(engine, running->slot_text(), &*running->sequence);
      }
    }
    work(engine, slot_text(slot), nullptr);
  });
}

bool BatchScheduler::set_slot_text(int slot, SlotText text) {
  bool set = false;
  call([&](Engine&) {
    if (slots_[slot].busy) return;
    slots_[slot].request = 0;
    slots_[slot].tokens = static_cast<int64_t>(text.tokens.size());
    slots_[slot].computed = slots_[slot].tokens;
    const std::lock_guard lock(mutex_);
    slot_texts_[slot] = std::move(text);
    published_slots_ = slots_;
    set = true;
  });
  return set;
}

// The engine thread.

void BatchScheduler::loop() {
  while (take_in()) {
    admit();
    if (!running_.empty()) step();
    publish_stats();
  }
  end_where([](const Running&) { return std::pair(true, EndReason::ShutDown); });
  // Callers of call() wait for an answer.
  for (const auto& work : work_) work();
}

// Everything that came from outside since the last round; waits when there is nothing
// to do. False: the scheduler ends.
bool BatchScheduler::take_in() {
  std::vector<std::unique_ptr<Running>> arrived;
  std::vector<RequestId> cancelled;
  std::vector<std::function<void()>> work;
  bool all = false;
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] {
      return stopping_ || cancel_all_ || !arrived_.empty() || !cancelled_.empty() ||
             !work_.empty() || !running_.empty() || !waiting_.empty();
    });
    arrived.swap(arrived_);
    cancelled.swap(cancelled_);
    work.swap(work_);
    all = std::exchange(cancel_all_, false);
    waiting_count_ += static_cast<int64_t>(arrived.size());
    if (stopping_) {
      for (auto& item : arrived) waiting_.push_back(std::move(item));
      for (auto& item : work) work_.push_back(std::move(item));
      return false;
    }
  }
  for (auto& item : arrived) waiting_.push_back(std::move(item));
  for (const auto& item : work) item();
  const Clock::time_point now = Clock::now();
  end_where([&](const Running& running) {
    if (all || std::find(cancelled.begin(), cancelled.end(), running.id) != cancelled.end()) {
      return std::pair(true, EndReason::Cancelled);
    }
    const auto& deadline = running.request.deadline;
    return std::pair(deadline && now >= *deadline, EndReason::Deadline);
  });
  return true;
}

void BatchScheduler::end_where(
    const std::function<std::pair<bool, EndReason>(const Running&)>& test) {
  for (auto& running : running_) {
    if (const auto [yes, why] = test(*running); yes) end(*running, why);
  }
  std::erase_if(running_, [](const auto& running) { return running->ended; });
  for (auto& waiting : waiting_) {
    if (const auto [yes, why] = test(*waiting); yes) end(*waiting, why);
  }
  std::erase_if(waiting_, [](const auto& waiting) { return waiting->ended; });
}

// Gives places to those that wait, in order, as long as all of a text fits beside
// what the others are going to need for theirs.
void BatchScheduler::admit() {
  while (!waiting_.empty() && running_.size() < slots_.size()) {
    Running& next = *waiting_.front();
    int64_t promised = 0;
    for (const auto& running : running_) {
      promised += blocks_for(static_cast<int64_t>(running->tokens.size()) + 1) -
                  blocks_for(running->computed());
    }
    PrefixBlocks kept;
    if (next.request.reuse_cache) kept = engine_.find_prefix(next.tokens);
    const CacheState cache = engine_.cache_state();
    const int64_t needed = blocks_for(static_cast<int64_t>(next.tokens.size()) + 1) - kept.found;
    if (!running_.empty() && needed + promised > cache.free + cache.idle - kept.idle) break;
    next.sequence.emplace(engine_.new_sequence());
    PrefixHit hit;
    if (next.request.reuse_cache) hit = engine_.reuse_prefix(*next.sequence, next.tokens);
    next.admitted = Clock::now();
    if (!next.asked_cache) {
      next.asked_cache = true;
      next.result.cached_tokens = hit.tokens;
      next.result.cache_miss = describe(hit, next.tokens);
      next.result.queue_seconds = seconds(next.admitted - next.submitted);
      stats_.prompt_tokens += next.result.prompt_tokens;
      stats_.cached_tokens += hit.tokens;
      stats_.queue_time.add(next.result.queue_seconds);
    }
    next.pooled.clear();
    next.pooled_rows = 0;
    if (next.request.reuse_cache) next.blocks = block_names(next.tokens);
    next.kept_blocks = next.sequence->length() / kBlock;
    // Of the free places the one whose text was used longest ago.
    SlotState* place = nullptr;
    for (SlotState& slot : slots_) {
      if (!slot.busy && (place == nullptr || slot.request < place->request)) place = &slot;
    }
    place->busy = true;
    place->request = next.id;
    next.result.slot = place->id;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    const std::lock_guard lock(mutex_);
    --waiting_count_;
  }
}

void BatchScheduler::step() {
  // Somebody may have computed what a prompt needs next.
  for (auto& running : running_) {
    if (running->remaining() <= 1 || !running->request.reuse_cache) continue;
    const int64_t before = running->computed();
    const int64_t found = engine_.reuse_prefix(*running->sequence, running->tokens).tokens - before;
    if (found <= 0 || !running->in_prompt()) continue;
    running->result.cached_tokens += found;
    stats_.cached_tokens += found;
  }
  std::vector<StepCandidate> candidates;
  for (const auto& running : running_) {
    candidates.push_back({running->remaining(), running->id, running->computed(), running->blocks});
  }
  std::vector<int64_t> shares = plan_step(candidates, engine_.chunk_tokens(), kBlock);
  limit_mean_pooling(shares);
  int64_t budget = engine_.chunk_tokens();
  for (int64_t share : shares) budget -= share;

  std::vector<BatchItem> items;
  std::vector<Running*> who;
  for (size_t i = 0; i < running_.size(); ++i) {
    Running& running = *running_[i];
    if (shares[i] == 0) continue;
    const auto from = running.tokens.begin() + running.computed();
    running.step_ids.assign(from, from + shares[i]);
    running.guesses = 0;
    if (options_.lookup_tokens > 0 && shares[i] == 1 && running.remaining() == 1 &&
        !running.request.embed) {
      guess(running, budget);
      budget -= running.guesses;
    }
    const bool last = shares[i] == running.remaining();
    const bool all = running.guesses > 0 || running.request.embed == Pooling::Mean;
    items.push_back({&*running.sequence, running.step_ids,
                     all    ? Want::All
                     : last ? Want::Last
                            : Want::None,
                     best_needed(running.request, running.sampler)});
    who.push_back(&running);
  }
  if (items.empty()) return;

  std::vector<TokenFilter*> filters;
  for (size_t i = 0; i < who.size() && filter_worker_; ++i) {
    TokenFilter* filter = who[i]->request.filter.get();
    if (filter != nullptr && items[i].want != Want::None) filters.push_back(filter);
  }
  if (filter_worker_) filter_worker_->start(std::move(filters));
  const Clock::time_point begin = Clock::now();
  const Result<Forward> done = engine_.forward(items);
  stats_.busy_seconds += seconds(Clock::now() - begin);
  if (filter_worker_) filter_worker_->wait();
  if (!done) {
    for (Running* running : who) end(*running, EndReason::Failed, done.error().message);
  } else if (*done == Forward::CacheFull) {
    if (!make_room()) end(*running_.front(), EndReason::ContextFull);
  } else if (*done == Forward::ContextFull) {
    // A guess that reaches over the end of the context; capacity() stops the rest.
    for (Running* running : who) {
      if (running->computed() + static_cast<int64_t>(running->step_ids.size()) > engine_.ctx()) {
        end(*running, EndReason::ContextFull);
      }
    }
  } else {
    if (options_.after_step) options_.after_step(engine_);
    stats_.steps += 1;
    stats_.step_requests += static_cast<int64_t>(who.size());
    int64_t row = 0;
    for (size_t i = 0; i < who.size(); ++i) {
      Running& running = *who[i];
      stats_.computed_tokens += static_cast<int64_t>(running.step_ids.size());
      if (items[i].want == Want::None) continue;
      if (running.request.embed) {
        const auto pooled =
            static_cast<int64_t>(items[i].want == Want::All ? running.step_ids.size() : size_t{1});
        pool_rows(running, row, pooled);
        row += pooled;
        continue;
      }
      const int64_t rows = items[i].want == Want::All ? running.guesses + 1 : 1;
      const int64_t length = running.computed() - running.guesses;
      int64_t right = 0;
      for (int64_t r = 0; r < rows; ++r) {
        if (!sample_next(running, row + r)) break;
        if (r == running.guesses || running.tokens.back() != running.step_ids[r + 1]) break;
        ++right;
      }
      row += rows;
      stats_.drafted_tokens += running.guesses;
      stats_.accepted_tokens += right;
      if (running.sequence) running.sequence->truncate(length + right);
    }
    if (options_.keep_prefixes) {
      for (Running* running : who) {
        if (running->ended || running->computed() / kBlock == running->kept_blocks) continue;
        running->kept_blocks = running->computed() / kBlock;
        engine_.keep_prefix(*running->sequence,
                            std::span(running->tokens).first(running->computed()));
      }
    }
  }
  std::erase_if(running_, [](const auto& running) { return running->ended; });
}

// Every row that is pooled is a row of logits too, of which a step has few: each of the
// others may need its own, what is left is shared by those that want all of theirs.
void BatchScheduler::limit_mean_pooling(std::vector<int64_t>& shares) const {
  int64_t rows = engine_.max_outputs(), pooling = 0;
  for (const auto& running : running_) {
    const bool mean = running->request.embed == Pooling::Mean;
    pooling += mean;
    if (!mean) rows -= 1 + options_.lookup_tokens;
  }
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->request.embed != Pooling::Mean) continue;
    shares[i] = std::min(shares[i], std::max<int64_t>(1, rows / pooling));
  }
}

// Adds rows of the step to a text's vector, and ends it behind its last token.
void BatchScheduler::pool_rows(Running& running, int64_t row, int64_t rows) {
  std::vector<float> hidden(static_cast<size_t>(engine_.hidden_size()));
  running.pooled.resize(hidden.size());
  for (int64_t r = 0; r < rows; ++r) {
    const Status read = engine_.hidden(row + r, hidden);
    if (!read) return end(running, EndReason::Failed, read.error().message);
    for (size_t i = 0; i < hidden.size(); ++i) running.pooled[i] += hidden[i];
    ++running.pooled_rows;
  }
  if (running.remaining() > 0) return;
  for (float& value : running.pooled) value /= static_cast<float>(running.pooled_rows);
  if (running.request.on_embedding) running.request.on_embedding(std::move(running.pooled));
  end(running, EndReason::Stop);
}

// Adds what the text itself suggests to this step's tokens.
void BatchScheduler::guess(Running& running, int64_t limit) {
  const auto total = static_cast<int64_t>(running.tokens.size());
  int64_t most = std::min<int64_t>({options_.lookup_tokens, limit, capacity_ - total - 1});
  if (running.request.max_tokens >= 0) {
    most = std::min(most, running.request.max_tokens - running.result.completion_tokens - 1);
  }
  if (most <= 0) return;
  const std::vector<int32_t> next = ngram_guess(running.tokens, most);
  running.step_ids.insert(running.step_ids.end(), next.begin(), next.end());
  running.guesses = static_cast<int64_t>(next.size());
}

// One more token of an answer. False: it ended.
bool BatchScheduler::sample_next(Running& running, int64_t row) {
  const GenerationRequest& request = running.request;
  RequestEnd& result = running.result;
  const auto ended = [&](EndReason reason, std::string error = {}) {
    end(running, reason, std::move(error));
    return false;
  };
  if (request.max_tokens >= 0 && result.completion_tokens >= request.max_tokens) {
    return ended(EndReason::Length);
  }
  if (static_cast<int64_t>(running.tokens.size()) >= capacity_) {
    return ended(EndReason::ContextFull);
  }
  Status masked;
  LogitMask mask;
  if (request.filter) {
    mask = [&](std::span<float> logits) { masked = request.filter->mask(logits); };
  }
  const bool all = engine_.has_logits(row);
  const Result<int32_t> id = all ? running.sampler.sample(engine_.logits(row), running.tokens, mask)
                                 : running.sampler.sample(engine_.best(row));
  if (!masked) return ended(EndReason::Failed, masked.error().message);
  if (!id) return ended(EndReason::Failed, id.error().message);

  const Clock::time_point now = Clock::now();
  if (result.completion_tokens == 0) {
    running.first_token = now;
    stats_.first_token.add(seconds(now - running.submitted));
  } else {
    stats_.between_tokens.add(seconds(now - running.last_token));
  }
  running.last_token = now;
  running.tokens.push_back(*id);
  ++result.completion_tokens;
  ++stats_.completion_tokens;
  if (request.is_end && request.is_end(*id)) return ended(EndReason::Stop);
  if (request.filter) {
    if (const Status accepted = request.filter->accept(*id); !accepted) {
      return ended(EndReason::Failed, accepted.error().message);
    }
  }
  TokenEvent event;
  event.id = *id;
  Logprobs best;
  if (request.logprobs >= 0) {
    Result<Logprobs> computed = all ? logprobs(engine_.logits(row), *id, request.logprobs)
                                    : logprobs(engine_.best(row), *id, request.logprobs);
    if (!computed) return ended(EndReason::Failed, computed.error().message);
    best = computed.take();
    event.logprobs = &best;
  }
  if (request.on_token && !request.on_token(event)) return ended(EndReason::Stop);
  if (request.max_tokens >= 0 && result.completion_tokens >= request.max_tokens) {
    return ended(EndReason::Length);
  }
  return true;
}

// The youngest request gives back its blocks and waits as the first in the queue.
// False: nobody else is there to do so.
bool BatchScheduler::make_room() {
  if (running_.size() < 2) return false;
  const auto youngest = std::max_element(
      running_.begin(), running_.end(), [](const auto& a, const auto& b) { return a->id < b->id; });
  Running& victim = **youngest;
  // Whole blocks stay until somebody needs them: coming back may be cheap.
  if (options_.keep_prefixes) {
    engine_.keep_prefix(*victim.sequence, std::span(victim.tokens).first(victim.computed()));
  }
  victim.sequence.reset();
  ++victim.result.preemptions;
  ++stats_.preemptions;
  slots_[victim.result.slot].busy = false;
  waiting_.push_front(std::move(*youngest));
  running_.erase(youngest);
  const std::lock_guard lock(mutex_);
  ++waiting_count_;
  return true;
}

void BatchScheduler::end(Running& running, EndReason reason, std::string error) {
  if (running.ended) return;
  running.ended = true;
  RequestEnd& result = running.result;
  result.reason = reason;
  result.error = std::move(error);
  const bool had_place = running.sequence.has_value();
  if (result.completion_tokens > 0) {
    result.prompt_seconds = seconds(running.first_token - running.submitted) - result.queue_seconds;
    result.decode_seconds = seconds(running.last_token - running.first_token);
  }
  if (had_place) {
    // The last token of an answer is never in the cache; a wrong guess may be in its place.
    const auto total = static_cast<int64_t>(running.tokens.size());
    running.sequence->truncate(result.completion_tokens > 0 ? total - 1 : total);
    const auto computed = std::span(running.tokens).first(running.computed());
    SlotState& slot = slots_[result.slot];
    slot.busy = false;
    slot.tokens = static_cast<int64_t>(running.tokens.size());
    slot.computed = static_cast<int64_t>(computed.size());
    {
      const std::lock_guard lock(mutex_);
      slot_texts_[result.slot] = running.slot_text();
    }
    if (options_.keep_prefixes && reason != EndReason::Failed) {
      engine_.retire(std::move(*running.sequence), computed);
    }
    running.sequence.reset();
  }
  ++stats_.ended;
  if (reason == EndReason::Cancelled) ++stats_.cancelled;
  if (reason == EndReason::Failed) ++stats_.failed;
  if (running.request.on_end) running.request.on_end(result);
  const std::lock_guard lock(mutex_);
  if (!had_place) --waiting_count_;
  --open_;
  if (open_ == 0) idle_.notify_all();
}

void BatchScheduler::publish_stats() {
  const CacheState cache = engine_.cache_state();
  stats_.running = static_cast<int64_t>(running_.size());
  stats_.kv_blocks_total = cache.total;
  stats_.kv_blocks_idle = cache.idle;
  stats_.kv_blocks_used = cache.total - cache.free - cache.idle;
  for (const auto& running : running_) {
    SlotState& slot = slots_[running->result.slot];
    slot.in_prompt = running->in_prompt();
    slot.tokens = static_cast<int64_t>(running->tokens.size());
    slot.computed = running->computed();
  }
  const std::lock_guard lock(mutex_);
  published_ = stats_;
  published_slots_ = slots_;
  for (const auto& running : running_) {
    SlotText& slot = slot_texts_[running->result.slot];
    slot.answered = running->answered();
    slot.sampler = running->sampler.state();
    slot.sampling = running->request.sampling;
    std::vector<int32_t>& text = slot.tokens;
    // Usually the same text with one token more.
    if (text.size() > running->tokens.size() || text.size() + 16 < running->tokens.size() ||
        !std::equal(text.begin(), text.end(), running->tokens.begin())) {
      text = running->tokens;
    } else {
      text.insert(text.end(), running->tokens.begin() + text.size(), running->tokens.end());
    }
  }
}

}  // namespace ktx::runtime
