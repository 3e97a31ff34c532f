#include "lib/runtime/scheduler/turn_line.h"

#include <chrono>
#include <iterator>
#include <vector>

namespace ktx::runtime {
namespace {

// How soon one that is no longer wanted leaves, and how often it is looked whose turn it is.
constexpr std::chrono::milliseconds kLook{100};

}  // namespace

std::optional<TurnLine::Turn> TurnLine::wait(const ShareOf& share,
                                             const std::function<bool()>& wanted) {
  Places own(1);
  const auto place = own.begin();
  place->share = share;
  std::optional<Turn> turn;  // older than the lock: it takes the lock where it leaves
  std::unique_lock lock(mutex_);
  shares_.enter(share);
  place->id = ++last_id_;
  waiting_.splice(waiting_.end(), own);
  // From here on the place leaves with `turn`, whatever throws.
  turn.emplace(Turn(*this, place));
  call_next();
  while (!place->called) {
    called_.wait_for(lock, kLook);
    if (place->called) break;
    if (wanted && !wanted()) return std::nullopt;
    call_next();  // leave() may have failed to
  }
  return turn;
}

int64_t TurnLine::waiting() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(waiting_);
}

void TurnLine::leave(Places::iterator place) {
  const std::lock_guard lock(mutex_);
  shares_.leave(place->share);
  (place->called ? running_ : waiting_).erase(place);
  try {
    call_next();
  } catch (...) {
    // Memory is short: those that wait call the next one at their next look.
  }
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
