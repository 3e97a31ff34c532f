#include "lib/runtime/scheduler/turn_line.h"

#include <chrono>
#include <iterator>
#include <vector>

namespace ktx::runtime {
namespace {

// How soon one that is no longer wanted leaves.
constexpr std::chrono::milliseconds kLook{100};

}  // namespace

std::optional<TurnLine::Turn> TurnLine::wait(const ShareOf& share,
                                             const std::function<bool()>& wanted) {
  std::unique_lock lock(mutex_);
  shares_.enter(share);
  const auto place = waiting_.insert(waiting_.end(), Place{share, ++last_id_, false});
  call_next();
  while (!place->called) {
    called_.wait_for(lock, kLook);
    if (place->called || !wanted || wanted()) continue;
    shares_.leave(place->share);
    waiting_.erase(place);
    return std::nullopt;
  }
  return Turn(*this, place);
}

int64_t TurnLine::waiting() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(waiting_);
}

void TurnLine::leave(Places::iterator place) {
  const std::lock_guard lock(mutex_);
  shares_.leave(place->share);
  running_.erase(place);
  call_next();
}

void TurnLine::call_next() {
  const auto items_of = [](const Places& places) {
    std::vector<ShareItem> items;
    for (const Place& place : places) items.push_back({&place.share, place.id});
    return items;
  };
  while (std::ssize(running_) < places_ && !waiting_.empty()) {
    const std::vector<ShareItem> waiting = items_of(waiting_), running = items_of(running_);
    const std::optional<size_t> next = shares_.next(waiting, running, [](size_t) { return false; });
    if (!next) return;
    const auto place = std::next(waiting_.begin(), static_cast<int64_t>(*next));
    place->called = true;
    shares_.charge(place->share, KeyShares::kTurn);
    running_.splice(running_.end(), waiting_, place);
    called_.notify_all();
  }
}

}  // namespace ktx::runtime
