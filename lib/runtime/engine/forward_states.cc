// The slots of states that a pass writes (cache/state_pool.h): one for the end of each text, one
// for each of its last tokens that may be taken back, and one for each of its places that are worth
// a snapshot. Ends come first; snapshots get what is left, and what snapshots of less worth have.
#include <algorithm>
#include <limits>
#include <utility>

#include "lib/runtime/engine/batch.h"
#include "lib/runtime/engine/engine.h"

namespace ktx::runtime {
namespace {

// Gives back the places before the end; not those that wait for the prefix cache, but for `all`,
// and those from `kept` on.
void drop_places(StatePool& pool, std::vector<StateMark>& marks, bool all,
                 int64_t kept = std::numeric_limits<int64_t>::max()) {
  for (size_t m = 0; m + 1 < marks.size(); ++m) {
    if (marks[m].position >= kept || (marks[m].snapshot && !all)) continue;
    pool.release(std::exchange(marks[m].slot, kNoState));
  }
  std::erase_if(marks, [](const StateMark& mark) { return mark.slot == kNoState; });
}

}  // namespace

// False: there are too few, and none is taken.
bool SequenceCache::take_states(std::span<const BatchItem> items, Batch& batch) {
  StatePool& pool = pools_.states();
  if (!pool.has_states()) return true;
  for (size_t i = 0; i < items.size(); ++i) {
    batch.states[i].outs.clear();
    if (items[i].tokens.empty()) continue;
    Sequence& sequence = *items[i].sequence;
    const int64_t end = sequence.length_ + static_cast<int64_t>(items[i].tokens.size());
    drop_places(pool, sequence.tables_.states, false, end - items[i].rollback);
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].tokens.empty()) continue;
    const std::vector<StateMark>& marks = items[i].sequence->tables_.states;
    KTX_ASSERT((marks.empty() ? 0 : marks.back().position) == items[i].sequence->length_);
    SequenceState& state = batch.states[i];
    state.in_slot = marks.empty() ? kNoState : marks.back().slot;
    state.in = marks.empty() ? nullptr : pool.data(marks.back().slot);
    StateSlot slot = pool.take();
    if (slot == kNoState) {
      for (Sequence* sequence : sequences_) drop_places(pool, sequence->tables_.states, true);
      slot = pool.take();
    }
    if (slot == kNoState) {
      give_back_states(items, batch);
      return false;
    }
    state.outs.push_back(
        {static_cast<int64_t>(items[i].tokens.size()), slot, pool.data(slot), false});
  }
  for (size_t i = 0; i < items.size(); ++i) take_rollback(items[i], batch.states[i]);
  for (size_t i = 0; i < items.size(); ++i) take_snapshots(items[i], batch.states[i]);
  return true;
}

// Within the pass; the places before it stayed.
void SequenceCache::take_rollback(const BatchItem& item, SequenceState& state) {
  const auto count = static_cast<int64_t>(item.tokens.size());
  for (int64_t tokens = std::max<int64_t>(1, count - item.rollback); tokens < count; ++tokens) {
    const StateSlot slot = pools_.states().take();
    if (slot == kNoState) return;
    state.outs.insert(state.outs.end() - 1, {tokens, slot, pools_.states().data(slot), false});
  }
}

void SequenceCache::take_snapshots(const BatchItem& item, SequenceState& state) {
  StatePool& pool = pools_.states();
  const int64_t start = item.sequence->length_;
  const auto count = static_cast<int64_t>(item.tokens.size());
  // From the last one: it is where texts go on for most times.
  for (size_t p = item.snapshots.size(); p > 0 && count > 0; --p) {
    const int64_t place = item.snapshots[p - 1];
    if (place <= start) break;
    if (place == start + count) state.outs.back().snapshot = true;
    if (place >= start + count) continue;
    const auto at = std::find_if(state.outs.begin(), state.outs.end(),
                                 [&](const StateOut& out) { return out.tokens >= place - start; });
    if (at->tokens == place - start) {
      at->snapshot = true;
      continue;
    }
    const StateSlot slot = pool.take();
    if (slot == kNoState) break;
    state.outs.insert(at, {place - start, slot, pool.data(slot), true});
  }
}

// After a pass that ended well, before the sequences have their new lengths.
void SequenceCache::keep_states(std::span<const BatchItem> items, const Batch& batch) {
  if (!has_states()) return;
  for (size_t i = 0; i < items.size(); ++i) {
    Sequence& sequence = *items[i].sequence;
    for (const StateOut& out : batch.states[i].outs) {
      sequence.tables_.states.push_back({sequence.length_ + out.tokens, out.slot, out.snapshot});
    }
  }
}

// After another one.
void SequenceCache::give_back_states(std::span<const BatchItem> items, Batch& batch) {
  if (!has_states()) return;
  for (size_t i = 0; i < items.size(); ++i) {
    for (const StateOut& out : batch.states[i].outs) pools_.states().release(out.slot);
    batch.states[i].outs.clear();
  }
}

}  // namespace ktx::runtime
