// Places of the batch: who gets one, who gives one back (key_shares.h).
#include <algorithm>
#include <set>
#include <utility>

#include "lib/runtime/scheduler/running_request.h"

namespace ktx::runtime {
namespace {

// A request for which there are no blocks is overtaken by those of other keys at most this often;
// then no other request gets a place before it.
constexpr int64_t kMostOvertaken = 16;
constexpr int64_t kStepsBetweenTries = 64;

int64_t text_blocks(int64_t tokens) {
  return blocks_for(tokens + 1);
}

}  // namespace

std::vector<ShareItem> BatchScheduler::running_items() const {
  std::vector<ShareItem> items;
  for (const auto& running : running_) {
    items.push_back(running->share_item(text_blocks(std::ssize(running->tokens))));
  }
  return items;
}

// The free place that the request asks for, or of the free ones that whose text was used longest
// ago; null: there is none.
SlotState* BatchScheduler::free_place(const Running& next) {
  SlotState* place = nullptr;
  for (SlotState& slot : slots_) {
    if (slot.busy || (next.request.slot >= 0 && slot.id != next.request.slot)) continue;
    if (place == nullptr || slot.request < place->request) place = &slot;
  }
  return place;
}

// How many blocks all of the text is short of, beside what the others are going to need for
// theirs; 0 or less: it fits.
int64_t BatchScheduler::missing_blocks(const Running& next) const {
  if (running_.empty()) return 0;
  int64_t promised = 0;
  for (const auto& running : running_) {
    promised += text_blocks(std::ssize(running->tokens)) - blocks_for(running->begun());
  }
  PrefixBlocks kept;
  if (next.request.reuse_cache) {
    kept = engine_.cache().find(next.tokens, cache_owner(next.owner), next.request.lora);
  }
  const CacheState cache = engine_.cache().state();
  const int64_t needed = text_blocks(std::ssize(next.tokens)) - kept.found;
  return needed + promised - (cache.free + cache.idle - kept.idle);
}

// Gives places to those that wait. Within a key the first one without blocks holds up the others;
// those that wait for a place of their choice hold up no other request.
void BatchScheduler::admit() {
  for (auto& running : running_) running->gives_way = false;
  std::set<std::string_view> held_up;  // keys
  std::set<RequestId> cannot;
  std::vector<Running*> unfit;
  while (!waiting_.empty()) {
    std::vector<ShareItem> items;
    for (const auto& waiting : waiting_) {
      items.push_back(waiting->share_item(text_blocks(std::ssize(waiting->tokens))));
    }
    const auto skip = [&](size_t i) {
      return held_up.contains(items[i].share->key) || cannot.contains(items[i].id);
    };
    const std::optional<size_t> first = shares_.next(items, running_items(), skip);
    if (!first) break;
    Running& next = *waiting_[*first];
    const Place place = make_place(next);
    if (place == Place::Missing && next.request.slot >= 0) {
      cannot.insert(next.id);
      continue;
    }
    if (place == Place::NoBlocks) {
      if (next.overtaken >= kMostOvertaken) break;
      unfit.push_back(&next);
    }
    if (place != Place::Ready) {
      held_up.insert(next.request.share.key);
      continue;
    }
    for (Running* other : unfit) ++other->overtaken;
    // A request that made room waits now, too, which may have moved `next` in the queue.
    const auto at =
        std::ranges::find_if(waiting_, [&](const auto& waiting) { return waiting.get() == &next; });
    take_place(static_cast<size_t>(at - waiting_.begin()), *free_place(next));
  }
  std::erase_if(running_, [](const auto& running) { return running->ended; });
}

// Lets others give back what it takes, where its key has less than its share.
BatchScheduler::Place BatchScheduler::make_place(Running& next) {
  const ShareItem claim = next.share_item(text_blocks(std::ssize(next.tokens)));
  const auto give_back = [&](size_t index) {
    if (running_[index]->in_flight > 0) {
      running_[index]->gives_way = true;  // as soon as its step has ended
      return false;
    }
    preempt(index);
    return true;
  };
  if (free_place(next) == nullptr) {
    const auto may = [&](size_t i) {
      const Running& running = *running_[i];
      return !running.ends_as &&
             (next.request.slot < 0 || running.result.slot == next.request.slot);
    };
    const auto index = shares_.gives_place(claim, running_items(), may);
    if (!index || !give_back(*index)) return Place::Missing;
  }
  bool gave = false;
  for (int64_t missing; (missing = missing_blocks(next)) > 0;) {
    if (stats_.steps < next.blocks_after) return Place::NoBlocks;
    const auto may = [&](size_t i) { return !running_[i]->ends_as; };
    const auto index = shares_.gives_blocks(claim, missing, running_items(), may);
    if (!index) {
      // It was not enough, since some of the blocks are of several texts.
      if (gave) next.blocks_after = stats_.steps + kStepsBetweenTries;
      return Place::NoBlocks;
    }
    if (!give_back(*index)) return Place::Missing;
    gave = true;
  }
  return Place::Ready;
}

void BatchScheduler::take_place(size_t waiting, SlotState& place) {
  Running& next = *waiting_[waiting];
  const PrefixHit hit = place_anew(next);
  next.admitted = Clock::now();
  if (!next.asked_cache) {
    next.asked_cache = true;
    next.result.cached_tokens = hit.tokens;
    next.result.cache_miss = describe(hit, next.tokens);
    next.result.queue_seconds = seconds(next.admitted - next.submitted);
    stats_.prompt_tokens += next.result.prompt_tokens;
    stats_.cached_tokens += hit.tokens;
    stats_.queue_time.add(next.result.queue_seconds);
    next.charged_prompt = hit.tokens;
  }
  next.pooled.clear();
  next.pooled_rows = 0;
  place.busy = true;
  place.request = next.id;
  next.result.slot = place.id;
  running_.push_back(std::move(waiting_[waiting]));
  waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(waiting));
  {
    const std::lock_guard lock(mutex_);
    --waiting_count_;
  }
  try {
    if (next.in_prompt()) next.tell_progress();
  } catch (...) {
    end(next, EndReason::Failed, exception_text());
  }
}

// The youngest request of the key that holds most of the cache gives back its blocks and waits.
// False: there is no other request to preempt.
bool BatchScheduler::make_room() {
  if (running_.size() < 2) return false;
  preempt(shares_.gives_way(running_items()));
  return true;
}

void BatchScheduler::preempt(size_t index) {
  Running& victim = *running_[index];
  // Its blocks stay until another request needs them: resuming may be cheap.
  if (options_.keep_prefixes && !engine_.plan().facts.encoder) {
    const std::span<const int32_t> cached = victim.cached();
    engine_.cache().retire(std::move(*victim.sequence), cached);
  }
  victim.sequence.reset();
  victim.draft = {};
  ++victim.result.preemptions;
  ++stats_.preemptions;
  slots_[victim.result.slot].busy = false;
  waiting_.push_front(std::move(running_[index]));
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(index));
  const std::lock_guard lock(mutex_);
  slot_texts_.use(victim.owner, victim.result.slot).state.busy = false;
  ++waiting_count_;
}

}  // namespace ktx::runtime
