#include "lib/runtime/experts/expert_cache.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <ranges>
#include <thread>
#include <utility>

#include "kernels/router/expert_places.h"
#include "lib/runtime/engine/batch.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"

namespace ktx::runtime {
namespace {

constexpr uint32_t kSlices = 4;  // of an expert at most, in a ticket
constexpr double kSpinSeconds = 0.002;

std::string reason(int error) {
  if (error == kFileEnds) return "the file became smaller while it was in use";
  return std::strerror(error);
}

}  // namespace

ExpertCache::ExpertCache(const plan::PlanView& plan, const plan::ExpertMemory& memory,
                         const ExpertCacheOptions& options)
    : patience_(options.patience),
      fault_patience_(std::min(options.patience, options.fault_patience)),
      end_patience_(options.end_patience),
      architecture_(plan.facts.architecture),
      experts_(static_cast<size_t>(memory.experts)),
      slots_(options.slots, std::ssize(experts_)) {
  slot_bytes_ = memory.slot_bytes;
  add_layers(plan);
  use_.slots = options.slots;
  use_.slot_bytes = slot_bytes_;
  use_.experts = std::ssize(experts_);
  for (auto* list : {&needed_, &ahead_, &missing_, &next_}) list->reserve(experts_.size());
  reads_.reserve(experts_.size() * kSlices);
}

ExpertCache::~ExpertCache() = default;

void EndExpertCache::operator()(ExpertCache* cache) const {
  if (cache->await_reads()) delete cache;
}

void ExpertCache::add_layers(const plan::PlanView& plan) {
  int32_t first = 0;
  for (const plan::ExpertLayer& layer : plan::cpu_expert_layers(*plan.program)) {
    auto own = std::make_unique<CachedExperts>();
    own->cache_ = this;
    own->number_ = layers_.size();
    own->first_ = first;
    own->experts_ = layer.experts;
    own->layer_ = layer.layer;
    own->gate_up_ = layer.gate_up.size();
    uint64_t place = 0;
    for (const program::BlobId blob : layer.blobs()) {
      const uint64_t bytes = plan::expert_bytes(*plan.program, blob);
      own->slices_.push_back({blob, plan.blobs[blob].offset, bytes, place});
      own->places_.emplace_back(static_cast<size_t>(layer.experts));
      place += plan::slice_room(bytes);
    }
    layer_of_.insert(layer_of_.end(), static_cast<size_t>(layer.experts), own.get());
    first += layer.experts;
    layers_.push_back(std::move(own));
  }
}

Result<OwnedExpertCache> ExpertCache::open(const plan::PlanView& plan, const std::string& path,
                                           const ExpertCacheOptions& options) {
  const plan::ExpertMemory memory = plan::expert_memory(*plan.program);
  KTX_ASSERT(memory.least_slots > 0 && options.slots >= memory.least_slots &&
             options.slots <= memory.experts);
  OwnedExpertCache cache(new ExpertCache(plan, memory, options));
  // Kernels may load whole vectors at the end of a matrix.
  cache->memory_ = KTX_TRY(Arena::allocate(
      static_cast<uint64_t>(options.slots) * memory.slot_bytes + plan::kDirectBlock, "experts"));
  // A read then pins a few pages instead of hundreds.
  madvise(cache->memory_.data(), cache->memory_.size(), MADV_HUGEPAGE);
  cache->reader_ = KTX_TRY(open_direct_reader(
      path, [own = cache.get()](uint32_t ticket, int error) { own->end_read(ticket, error); },
      options.reader));
  return cache;
}

CachedExperts* ExpertCache::of(program::BlobId blob) const {
  for (const auto& layer : layers_) {
    if (std::ranges::count(layer->slices_, blob, &CachedExperts::Slice::blob) > 0) {
      return layer.get();
    }
  }
  return nullptr;
}

void ExpertCache::copy_slots(program::BlobId blob, uint64_t offset,
                             std::span<std::byte> out) const {
  const CachedExperts* const layer = of(blob);
  if (!layer) return;
  const auto slice = std::ranges::find(layer->slices_, blob, &CachedExperts::Slice::blob);
  const auto number = static_cast<size_t>(slice - layer->slices_.begin());
  const std::lock_guard lock(mutex_);
  for (int32_t e = 0; e < layer->experts_; ++e) {
    const uint64_t begin = std::max(offset, static_cast<uint64_t>(e) * slice->bytes);
    const uint64_t end = std::min(offset + out.size(), static_cast<uint64_t>(e + 1) * slice->bytes);
    const int32_t expert = layer->first_ + e;
    if (begin >= end || slots_.slot_of(expert) < 0) continue;
    if (!is_read(expert) || experts_[static_cast<size_t>(expert)].broken) continue;
    std::memcpy(out.data() + (begin - offset),
                layer->places_[number][static_cast<size_t>(e)] +
                    (begin - static_cast<uint64_t>(e) * slice->bytes),
                end - begin);
  }
}

bool ExpertCache::copy_expert(program::BlobId blob, int32_t expert,
                              std::span<std::byte> out) const {
  const CachedExperts* const layer = of(blob);
  if (!layer) return false;
  {
    const std::lock_guard lock(mutex_);
    const int32_t number = layer->first_ + expert;
    const bool there = slots_.slot_of(number) >= 0 && is_read(number) && !experts_[number].broken;
    if (!there) return false;
  }
  // Between passes nothing takes its slot.
  copy_slots(blob, static_cast<uint64_t>(expert) * out.size(), out);
  return true;
}

void CachedExperts::need(std::span<const int32_t> offsets, int64_t tokens) {
  cache_->need(*this, offsets, tokens);
}

bool CachedExperts::present(int32_t expert) const {
  const ExpertCache::Expert& own = cache_->experts_[first_ + expert];
  return own.left[kGateUp].load(std::memory_order_acquire) == 0 && !own.broken.load();
}

bool CachedExperts::wait(int32_t expert, Part part) {
  return cache_->wait(*this, expert, part);
}

bool CachedExperts::guesses(const Batch& batch) const {
  return guess_ && batch.tokens <= kDecodeTokens;
}

bool CachedExperts::failed() const {
  return cache_->failed();
}

bool ExpertCache::is_read(int32_t number) const {
  const Expert& own = experts_[number];
  return own.left[0].load(std::memory_order_acquire) == 0 &&
         own.left[1].load(std::memory_order_acquire) == 0;
}

// Counts the chosen experts and finds those without a slot.
void ExpertCache::choose(const CachedExperts& layer, std::span<const int32_t> offsets,
                         int64_t tokens) {
  for (const int32_t number : needed_) experts_[number].pins &= ~kNeeded;
  needed_.clear();
  missing_.clear();
  if (layer.number_ == 0) slots_.counts().age(tokens);  // once a pass
  for (int32_t e = 0; e < layer.experts_; ++e) {
    if (offsets[e + 1] == offsets[e]) continue;
    const int32_t number = layer.first_ + e;
    Expert& own = experts_[number];
    own.pins |= kNeeded;
    needed_.push_back(number);
    slots_.counts().count(number, offsets[e + 1] - offsets[e]);
    use_.right_guesses += own.guessed ? 1 : 0;
    if (slots_.slot_of(number) < 0) {
      missing_.push_back(e);
    } else {
      ++(is_read(number) ? use_.hits : use_.ahead);
    }
  }
  use_.misses += std::ssize(missing_);
  // What was read ahead, and is not among them, may go.
  for (const int32_t number : ahead_) {
    experts_[number].pins &= ~kAhead;
    experts_[number].guessed = false;
  }
  ahead_.clear();
}

bool ExpertCache::any_broken(const CachedExperts& layer, std::span<const int32_t> offsets) const {
  for (int32_t e = 0; e < layer.experts_; ++e) {
    const int32_t number = layer.first_ + e;
    if (offsets[e + 1] > offsets[e] && experts_[number].broken && slots_.slot_of(number) >= 0) {
      return true;
    }
  }
  return false;
}

void ExpertCache::need(CachedExperts& layer, std::span<const int32_t> offsets, int64_t tokens) {
  const Timer timer;
  {
    std::unique_lock lock(mutex_);
    // Those whose reads failed in an earlier pass go once the last of these is over.
    const bool over =
        changed_.wait_for(lock, patience_, [&] { return !any_broken(layer, offsets); });
    choose(layer, offsets, tokens);
    if (!over) return fail_late(layer, "has not come");
  }
  for (size_t filled = 0;;) {
    {
      std::unique_lock lock(mutex_);
      filled += fill(layer, std::span(missing_).subspan(filled), reads_);
      // Some of what was read ahead in vain is still on its way into the slots that are left.
      if (filled < missing_.size() && reads_.empty()) {
        changed_.wait_for(lock, std::chrono::milliseconds(10));
        if (timer.seconds() * 1000 > static_cast<double>(patience_.count())) {
          return fail_late(layer, "has not come");
        }
      }
    }
    begin_reads(reads_);
    if (filled == missing_.size()) break;
  }
  if (tokens <= kDecodeTokens || layer.number_ + 1 == layers_.size()) return;
  CachedExperts& next = *layers_[layer.number_ + 1];
  next_.clear();
  for (const float place : next.by_router_) {
    const int32_t e = kernels::place_of_expert(place, next.experts_);
    if (e >= 0) next_.push_back(e);
  }
  if (next.by_router_.empty()) {
    next_.resize(static_cast<size_t>(next.experts_));
    std::iota(next_.begin(), next_.end(), 0);
  }
  ahead(next, next_, false);
}

void ExpertCache::ahead(CachedExperts& layer, std::span<const int32_t> experts, bool guessed) {
  {
    const std::lock_guard lock(mutex_);
    missing_.clear();
    for (const int32_t e : experts) {
      const int32_t number = layer.first_ + e;
      experts_[number].guessed = guessed;
      if (guessed) ++use_.guesses;
      experts_[number].pins |= kAhead;
      ahead_.push_back(number);
      if (slots_.slot_of(number) < 0) missing_.push_back(e);
    }
    fill(layer, missing_, reads_);
  }
  begin_reads(reads_);
}

// Gives the first of `experts` slots, as many as there are, and returns how many.
size_t ExpertCache::fill(CachedExperts& layer, std::span<const int32_t> experts,
                         std::vector<DirectRead>& reads) {
  const std::span<const int32_t> slots = slots_.take(std::ssize(experts), [this](int32_t number) {
    return experts_[number].pins == 0 && is_read(number);
  });
  for (size_t i = 0; i < slots.size(); ++i) {
    const int32_t number = layer.first_ + experts[i];
    slots_.put(slots[i], number);
    Expert& own = experts_[number];
    own.broken = false;
    own.left[CachedExperts::kGateUp] = static_cast<int32_t>(layer.gate_up_);
    own.left[CachedExperts::kDown] = 1;
  }
  for (const auto part : {CachedExperts::kGateUp, CachedExperts::kDown}) {
    for (size_t i = 0; i < slots.size(); ++i) add_reads(layer, experts[i], part, reads);
  }
  return slots.size();
}

void ExpertCache::add_reads(CachedExperts& layer, int32_t expert, CachedExperts::Part part,
                            std::vector<DirectRead>& reads) {
  constexpr uint64_t kBlock = plan::kDirectBlock;
  const int32_t number = layer.first_ + expert;
  std::byte* const slot =
      memory_.data() + static_cast<uint64_t>(slots_.slot_of(number)) * slot_bytes_;
  const bool down = part == CachedExperts::kDown;
  for (size_t s = down ? layer.gate_up_ : 0; s < (down ? layer.slices_.size() : layer.gate_up_);
       ++s) {
    const CachedExperts::Slice& slice = layer.slices_[s];
    const uint64_t from = slice.offset + static_cast<uint64_t>(expert) * slice.bytes;
    const uint64_t begin = from / kBlock * kBlock;
    const uint64_t needed = from + slice.bytes - begin;
    std::byte* const to = slot + slice.place;
    layer.places_[s][expert] = to + (from - begin);
    reads.push_back({begin, (needed + kBlock - 1) / kBlock * kBlock, needed, to,
                     static_cast<uint32_t>(number) * kSlices + static_cast<uint32_t>(s)});
  }
}

// Without the lock, which the answers take.
void ExpertCache::begin_reads(std::vector<DirectRead>& reads) {
  if (!reads.empty()) reader_->read(reads);
  reads.clear();
}

void ExpertCache::end_read(uint32_t ticket, int error) {
  const auto number = static_cast<int32_t>(ticket / kSlices);
  const CachedExperts& layer = *layer_of_[number];
  const CachedExperts::Slice& slice = layer.slices_[ticket % kSlices];
  const bool down = ticket % kSlices >= layer.gate_up_;
  const std::lock_guard lock(mutex_);
  hangs_.store(false, std::memory_order_release);
  Expert& own = experts_[number];
  if (error != 0) {
    const int32_t e = number - layer.first_;
    last_error_ = fmt::format("{} at offset {}: {}", human_bytes(slice.bytes),
                              slice.offset + static_cast<uint64_t>(e) * slice.bytes, reason(error));
    own.broken = true;
  } else {
    use_.read_bytes += static_cast<int64_t>(slice.bytes);
  }
  std::atomic<int32_t>& left = own.left[down ? CachedExperts::kDown : CachedExperts::kGateUp];
  const bool last = left.fetch_sub(1, std::memory_order_acq_rel) == 1;
  if (last && own.broken && is_read(number)) slots_.clear(slots_.slot_of(number));
  if (last || error != 0) changed_.notify_all();
}

bool ExpertCache::wait(const CachedExperts& layer, int32_t expert, CachedExperts::Part part) {
  Expert& own = experts_[layer.first_ + expert];
  const auto is_there = [&] { return own.left[part].load(std::memory_order_acquire) == 0; };
  if (is_there() && !own.broken) return !failed();
  const Timer timer;
  // Reads take about as long as the system takes to wake a thread on a busy machine.
  while (!is_there() && !own.broken && !failed() && timer.seconds() < kSpinSeconds) {
    reader_->poll();
    std::this_thread::yield();
  }
  std::unique_lock lock(mutex_);
  const bool over =
      changed_.wait_for(lock, patience_, [&] { return is_there() || own.broken || failed(); });
  use_.waited_seconds += timer.seconds();
  if (failed()) return false;
  if (!over) {
    fail_late(layer,
              fmt::format("have not come for {} s", static_cast<double>(patience_.count()) / 1000));
  } else if (own.broken) {
    fail(layer, last_error_);
  }
  return !failed();
}

void ExpertCache::fail(const CachedExperts& layer, const std::string& why) {
  if (!failure_) {
    failure_ = Error{fmt::format("cannot read experts of layer {}: {}", layer.layer_, why)};
  }
  failed_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void ExpertCache::fail_late(const CachedExperts& layer, const std::string& why) {
  hangs_.store(true, std::memory_order_release);
  fail(layer, why + "; the disk is slow or hangs");
}

Error ExpertCache::take_failure() {
  reader_->drop();
  std::unique_lock lock(mutex_);
  // What began in this pass and is still to fail must not fail the next one.
  const auto numbers = std::views::iota(0, static_cast<int32_t>(experts_.size()));
  const auto over = [&] {
    return std::ranges::all_of(numbers, [&](int32_t n) { return is_read(n); });
  };
  if (!hangs() && !changed_.wait_for(lock, fault_patience_, over)) hangs_ = true;
  Error error = failure_.value_or(Error{"cannot read experts"});
  failure_.reset();
  failed_ = false;
  return error;
}

void ExpertCache::prefer(const plan::ExpertProfile& profile) {
  if (profile.architecture != architecture_) return;
  const std::lock_guard lock(mutex_);
  for (const auto& layer : layers_) {
    const auto found = profile.layers.find(layer->layer_);
    if (found == profile.layers.end() || std::ssize(found->second) != layer->experts_) continue;
    slots_.counts().add_noted(layer->first_, found->second);
  }
}

plan::ExpertProfile ExpertCache::profile() const {
  plan::ExpertProfile profile{architecture_, {}};
  const std::lock_guard lock(mutex_);
  for (const auto& layer : layers_) {
    profile.layers[layer->layer_] = slots_.counts().noted(layer->first_, layer->experts_);
  }
  return profile;
}

int64_t ExpertCache::preload(int64_t n, const std::function<bool()>& stop) {
  std::vector<DirectRead> reads;
  std::vector<int32_t> begun;
  {
    const std::lock_guard lock(mutex_);
    for (const int32_t number : slots_.by_count()) {
      if (std::ssize(begun) == n || slots_.empty() == 0 || slots_.counts().of(number) == 0) break;
      if (slots_.slot_of(number) >= 0) continue;
      CachedExperts& layer = *layer_of_[number];
      const int32_t expert = number - layer.first_;
      fill(layer, {&expert, 1}, reads);
      begun.push_back(number);
    }
  }
  begin_reads(reads);
  std::unique_lock lock(mutex_);
  const auto all_read = [&] {
    return std::ranges::all_of(begun, [&](int32_t number) { return is_read(number); });
  };
  while (!all_read() && !stop()) changed_.wait_for(lock, std::chrono::milliseconds(50));
  return std::ranges::count_if(begun, [&](int32_t n) { return !experts_[n].broken.load(); });
}

bool ExpertCache::await_reads() {
  if (!reader_) return true;  // it could not be opened
  reader_->drop();
  std::unique_lock lock(mutex_);
  const auto all_read = [&] {
    return std::ranges::all_of(layers_, [&](const auto& layer) {
      for (int32_t e = 0; e < layer->experts_; ++e) {
        if (!is_read(layer->first_ + e)) return false;
      }
      return true;
    });
  };
  if (std::exchange(awaited_, true)) return all_read();
  return changed_.wait_for(lock, end_patience_, all_read);
}

ExpertCacheUse ExpertCache::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

}  // namespace ktx::runtime
