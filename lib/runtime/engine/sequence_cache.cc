#include "lib/runtime/engine/sequence_cache.h"

#include <algorithm>
#include <utility>

#include "lib/runtime/engine/batch.h"
#include "lib/runtime/engine/engine.h"

namespace ktx::runtime {

void SequenceCache::open(KvPools pools, uint64_t state_bytes) {
  pools_ = std::move(pools);
  state_bytes_ = state_bytes;
  const auto reclaim = [this](SequenceKind kind) {
    return [this, kind] { return prefixes_.reclaim(kind); };
  };
  for (const SequenceKind kind : kBlockKinds) pools_.of(kind).set_reclaim(reclaim(kind));
  pools_.states().set_reclaim(reclaim(SequenceKind::State));
}

CacheState SequenceCache::state() const {
  const KvCache& kv = pools_.of(SequenceKind::Whole);
  const StatePool& states = pools_.states();
  return {kv.total_blocks(), kv.free_blocks(),    kv.idle_blocks(),
          states.slots(),    states.free_slots(), prefixes_.snapshots()};
}

PrefixHit SequenceCache::reuse(Sequence& sequence, std::span<const int32_t> tokens) {
  const PrefixHit hit =
      prefixes_.reuse(sequence.tables_, sequence.length_, tokens, sequence.owner_);
  sequence.length_ = hit.tokens;
  return hit;
}

void SequenceCache::keep(Sequence& sequence, std::span<const int32_t> tokens) {
  KTX_ASSERT(static_cast<int64_t>(tokens.size()) == sequence.length_);
  prefixes_.keep(sequence.tables_, tokens, false, sequence.owner_);
  pools_.trim(sequence.tables_, sequence.length_);
}

void SequenceCache::retire(Sequence sequence, std::span<const int32_t> tokens) {
  KTX_ASSERT(static_cast<int64_t>(tokens.size()) == sequence.length_);
  prefixes_.keep(sequence.tables_, tokens, true, sequence.owner_);
}

int64_t SequenceCache::row_bytes(const Sequence& sequence) const {
  const KvBegins first = begins(sequence);
  int64_t bytes = 0;
  for (const SequenceKind kind : kBlockKinds) {
    bytes += (sequence.length_ - first[kind]) * pools_.token_row_bytes(kind);
  }
  return bytes;
}

KvBegins SequenceCache::begins(const Sequence& sequence) const {
  KvBegins begins;
  for (const SequenceKind kind : kPassingKinds) {
    const std::vector<std::byte*>& table = sequence.tables_[kind];
    const auto gone = std::find_if(table.begin(), table.end(), [](auto* block) { return block; });
    begins[kind] =
        std::min<int64_t>(sequence.length_, (gone - table.begin()) * KvCache::kBlockTokens);
  }
  return begins;
}

bool SequenceCache::extend_uncomputed(Sequence& sequence, int64_t tokens, KvBegins begins) {
  for (const SequenceKind kind : kPassingKinds) begins[kind] /= KvCache::kBlockTokens;
  const int64_t length = sequence.length_ + tokens;
  if (!pools_.own(sequence.tables_, sequence.length_)) return false;
  if (!pools_.grow_from(sequence.tables_, length, begins)) return false;
  const bool states = has_states() && tokens > 0;
  const StateSlot slot = states ? pools_.states().take() : kNoState;
  if (slot != kNoState) sequence.tables_.states.push_back({length, slot, false});
  if (!pools_.can_continue(sequence.tables_, length) || (states && slot == kNoState)) {
    pools_.shrink(sequence.tables_, sequence.length_);
    return false;
  }
  sequence.length_ = length;
  return true;
}

bool SequenceCache::take_blocks(std::span<const BatchItem> items, Batch& batch) {
  for (Sequence* sequence : sequences_) pools_.trim(sequence->tables_, sequence->length_);
  for (size_t i = 0; i < items.size(); ++i) {
    Sequence& sequence = *items[i].sequence;
    const int64_t start = sequence.begun();
    if (!pools_.own(sequence.tables_, start) ||
        !pools_.grow(sequence.tables_, start + std::ssize(items[i].tokens))) {
      return false;
    }
    for (const SequenceKind kind : kBlockKinds) {
      batch.tables[kind][i] = sequence.tables_[kind].data();
    }
  }
  return true;
}

bool SequenceCache::begin_pass(std::span<const BatchItem> items, Batch& batch) {
  if (!take_blocks(items, batch) || !take_states(items, batch)) {
    for (const BatchItem& item : items) {
      pools_.shrink(item.sequence->tables_, item.sequence->begun());
    }
    return false;
  }
  for (const BatchItem& item : items) item.sequence->ahead_ += std::ssize(item.tokens);
  return true;
}

void SequenceCache::end_pass(std::span<const BatchItem> items, Batch& batch, bool computed) {
  computed ? keep_states(items, batch) : give_back_states(items, batch);
  for (const BatchItem& item : items) {
    Sequence& sequence = *item.sequence;
    sequence.ahead_ -= std::ssize(item.tokens);
    if (computed) {
      sequence.length_ += std::ssize(item.tokens);
    } else if (sequence.ahead_ == 0) {
      pools_.shrink(sequence.tables_, sequence.length_);
    }
  }
}

Sequence::Sequence(SequenceCache& cache, const std::string& owner, LoraChoice lora)
    : owner_(prefix_owner(owner, lora)), lora_(std::move(lora)) {
  set_cache(&cache);
}

void Sequence::set_cache(SequenceCache* cache) {
  if (cache_) cache_->sequences_.erase(this);
  cache_ = cache;
  if (cache_) cache_->sequences_.insert(this);
}

Sequence::Sequence(Sequence&& other) noexcept
    : owner_(std::move(other.owner_)),
      lora_(std::move(other.lora_)),
      length_(std::exchange(other.length_, 0)),
      tables_(std::exchange(other.tables_, {})) {
  KTX_ASSERT(other.ahead_ == 0);
  set_cache(other.cache_);
  other.set_cache(nullptr);
}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  KTX_ASSERT(ahead_ == 0 && other.ahead_ == 0);
  SequenceCache* const cache = cache_;
  set_cache(other.cache_);
  other.set_cache(cache);
  std::swap(owner_, other.owner_);
  std::swap(lora_, other.lora_);
  std::swap(length_, other.length_);
  std::swap(tables_, other.tables_);
  return *this;
}

Sequence::~Sequence() {
  if (cache_ && ahead_ > 0) cache_->finish_();
  if (cache_) truncate(0);
  set_cache(nullptr);
}

bool Sequence::can_truncate(int64_t length) const {
  return length > 0 && cache_->pools_.last_place(tables_, length) == length;
}

void Sequence::truncate(int64_t length) {
  KTX_ASSERT(ahead_ == 0);
  KvPools& pools = cache_->pools_;
  length_ = pools.last_place(tables_, std::max<int64_t>(0, std::min(length_, length)));
  pools.shrink(tables_, length_);
}

}  // namespace ktx::runtime
