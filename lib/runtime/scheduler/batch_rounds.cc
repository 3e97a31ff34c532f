// The iterations of the scheduler's thread: takes requests in, and ends them.
//
//   take_in -> admit (batch_places.cc) -> step (batch_step.cc) -> publish_stats -> take_in ...
#include <algorithm>
#include <utility>

#include "lib/runtime/cache/snapshot_places.h"
#include "lib/runtime/scheduler/running_request.h"
#include "lib/support/hash.h"

namespace ktx::runtime {
namespace {

// The names of a text's whole blocks: each covers all tokens up to its end, and the owner.
std::vector<uint64_t> block_names(std::span<const int32_t> tokens, const std::string& owner) {
  std::vector<uint64_t> names;
  uint64_t name = hash_text(owner);
  for (size_t at = 0; at + KvCache::kBlockTokens <= tokens.size(); at += KvCache::kBlockTokens) {
    name = hash_after(name, std::as_bytes(tokens.subspan(at, KvCache::kBlockTokens)));
    names.push_back(name);
  }
  return names;
}

}  // namespace

void BatchScheduler::loop() {
  for (bool more = true; more;) {
    try {
      more = take_in();
      if (!more) break;
      admit();
      if (!running_.empty()) step();
      publish_stats();
    } catch (...) {
      fail_round(exception_text());
    }
  }
  drop_steps();
  end_where([](const Running&) { return std::pair(true, EndReason::ShutDown); });
  // Callers of call() wait for an answer.
  for (const auto& work : work_) work();
}

// Ends those that ran, or where none did the next one: else it would be met again and again.
void BatchScheduler::fail_round(const std::string& why) {
  drop_steps();
  if (running_.empty() && !waiting_.empty()) {
    waiting_.front()->sequence.reset();
    end(*waiting_.front(), EndReason::Failed, why);
    waiting_.pop_front();
  }
  for (auto& running : running_) end(*running, EndReason::Failed, why);
  std::erase_if(running_, [](const auto& running) { return running->ended; });
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
      for (auto& item : arrived) {
        shares_.enter(item->request.share);
        waiting_.push_back(std::move(item));
      }
      for (auto& item : work) work_.push_back(std::move(item));
      return false;
    }
  }
  for (auto& item : arrived) {
    shares_.enter(item->request.share);
    waiting_.push_back(std::move(item));
  }
  // It may use all that an engine does, of any request.
  if (!work.empty()) finish_steps();
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

// A sequence of its own for the text as it is now, with what the cache has of it.
PrefixHit BatchScheduler::place_anew(Running& running) {
  const std::string owner = cache_owner(running.owner);
  running.sequence.emplace(engine_.new_sequence(owner, running.request.lora));
  PrefixHit hit;
  running.blocks.clear();
  if (running.request.reuse_cache) {
    hit = engine_.cache().reuse(*running.sequence, running.tokens);
    running.blocks = block_names(running.tokens, prefix_owner(owner, running.request.lora));
  }
  running.kept_blocks = running.sequence->length() / KvCache::kBlockTokens;
  running.parting = -1;
  running.snapshots.clear();
  choose_snapshots(running, hit);
  return hit;
}

// Texts that begin alike, and go on differently, may do so again.
void BatchScheduler::choose_snapshots(Running& running, const PrefixHit& hit) {
  if (!options_.keep_prefixes || !engine_.cache().has_states()) return;
  const int64_t parting = hit.same - hit.tokens >= KvCache::kBlockTokens ? hit.same : 0;
  if (parting == running.parting) return;
  running.parting = parting;
  running.snapshots =
      snapshot_places(std::span(running.tokens)
                          .first(std::min(running.request.prompt.size(), running.tokens.size())),
                      parting, running.request.is_end);
}

void BatchScheduler::end(Running& running, EndReason reason, std::string error) {
  if (running.ended) return;
  if (running.in_flight > 0) {
    if (!running.ends_as) running.ends_as = {reason, std::move(error)};
    return;
  }
  running.ended = true;
  shares_.charge(running.request.share, running.take_charge());
  shares_.leave(running.request.share);
  RequestEnd& result = running.result;
  result.reason = reason;
  result.error = std::move(error);
  const bool had_place = running.sequence.has_value();
  running.take_times();
  if (had_place) {
    // The last token of an answer is never in the cache; a wrong draft token may be in its place.
    const auto total = static_cast<int64_t>(running.tokens.size());
    running.sequence->truncate(result.completion_tokens > 0 ? total - 1 : total);
    const std::span<const int32_t> cached = running.cached();
    SlotState& slot = slots_[result.slot];
    slot.busy = false;
    slot.tokens = static_cast<int64_t>(running.tokens.size());
    slot.computed = std::ssize(cached);
    {
      const std::lock_guard lock(mutex_);
      SlotTexts::Entry& entry = slot_texts_.use(running.owner, result.slot);
      entry.text = running.slot_text();
      entry.state = slot;
      slot_texts_.shrink();
    }
    // (What an encoder makes of a text's beginning depends on its end.)
    const bool kept = options_.keep_prefixes && !engine_.plan().facts.encoder;
    if (kept && reason != EndReason::Failed) {
      engine_.cache().retire(std::move(*running.sequence), cached);
    }
    running.sequence.reset();
    running.draft = {};
  }
  count_end(running);
  {
    // Before its client hears of it and sends the next one.
    const std::lock_guard lock(mutex_);
    if (!had_place) --waiting_count_;
    unanswered_.give_back(running.request.share.key);
  }
  try {
    if (running.request.on_end) running.request.on_end(result);
  } catch (...) {
    // It has ended whatever its owner makes of it.
  }
  const std::lock_guard lock(mutex_);
  --open_;
  if (open_ == 0) idle_.notify_all();
}

void BatchScheduler::count_end(const Running& running) {
  const RequestEnd& result = running.result;
  ++stats_.ended;
  ++stats_.ended_by[static_cast<size_t>(result.reason)];
  const bool cut_off = result.reason == EndReason::Cancelled ||
                       result.reason == EndReason::Failed || result.reason == EndReason::ShutDown;
  if (result.reason == EndReason::Cancelled) ++stats_.cancelled;
  if (result.reason == EndReason::Failed) ++stats_.failed;
  if (!cut_off) stats_.whole_time.add(seconds(Clock::now() - running.submitted));
  if (result.completion_tokens == 0) return;
  stats_.prompt_seconds += result.prompt_seconds;
  stats_.decode_seconds += result.decode_seconds;
  if (result.completion_tokens > 1 && !cut_off) {
    stats_.per_token.add(result.decode_seconds / static_cast<double>(result.completion_tokens - 1));
  }
}

void BatchScheduler::publish_stats() {
  const CacheState cache = engine_.cache().state();
  stats_.running = static_cast<int64_t>(running_.size());
  stats_.kv_blocks_total = cache.total;
  stats_.kv_blocks_idle = cache.idle;
  stats_.kv_blocks_used = cache.total - cache.free - cache.idle;
  stats_.state_slots_total = cache.states_total;
  stats_.state_slots_used = cache.states_total - cache.states_free - cache.snapshots;
  stats_.snapshots = cache.snapshots;
  for (const auto& running : running_) {
    SlotState& slot = slots_[running->result.slot];
    slot.in_prompt = running->in_prompt();
    slot.tokens = static_cast<int64_t>(running->tokens.size());
    slot.computed = running->computed();
  }
  const std::lock_guard lock(mutex_);
  published_ = stats_;
  for (const auto& running : running_) {
    SlotTexts::Entry& entry = slot_texts_.use(running->owner, running->result.slot);
    entry.state = slots_[running->result.slot];
    SlotText& slot = entry.text;
    slot.answered = running->answered();
    slot.sampler = running->sampler.state();
    slot.sampling = running->request.sampling;
    slot.lora = running->request.lora;
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
