#include "lib/server/http/arrivals.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace ktx::server {

bool Arrivals::make_place() {
  std::map<std::string_view, int64_t> counts;
  for (const Arrival* arrival : waiting_) ++counts[arrival->peer_];
  Arrival* victim = nullptr;
  int64_t most = 0;
  for (Arrival* arrival : waiting_) {
    const int64_t count = counts[arrival->peer_];
    if (count <= most) continue;
    most = count;
    victim = arrival;
  }
  if (victim == nullptr) return false;
  victim->drop();
  return true;
}

void Arrivals::drop_idle() {
  std::vector<Arrival*> idle;
  for (Arrival* arrival : waiting_) {
    if (arrival->bytes_ == 0) idle.push_back(arrival);
  }
  for (Arrival* arrival : idle) arrival->drop();
}

// The largest bodies go, as long as they are larger than the one that grows.
bool Arrivals::make_room(const Arrival& growing) {
  while (bytes_ > most_bytes_) {
    const auto largest =
        std::max_element(waiting_.begin(), waiting_.end(),
                         [](const Arrival* a, const Arrival* b) { return a->bytes_ < b->bytes_; });
    if (largest == waiting_.end() || (*largest)->bytes_ <= growing.bytes_) return false;
    (*largest)->drop();
  }
  return true;
}

Arrival::Arrival(Arrivals& all, std::string peer, std::function<void()> drop)
    : all_(all), peer_(std::move(peer)), drop_(std::move(drop)) {
  wait();
}

Arrival::~Arrival() {
  leave();
  all_.bytes_ -= bytes_;
}

void Arrival::wait() {
  leave();
  if (dropped_) return;
  place_ = all_.waiting_.insert(all_.waiting_.end(), this);
  waits_ = true;
}

void Arrival::leave() {
  if (waits_) all_.waiting_.erase(place_);
  waits_ = false;
}

uint64_t Arrival::hand_over() {
  leave();
  return std::exchange(bytes_, 0);
}

bool Arrival::hold(uint64_t bytes) {
  if (dropped_) return false;
  all_.bytes_ += bytes - bytes_;
  bytes_ = bytes;
  if (all_.make_room(*this)) return true;
  all_.bytes_ -= std::exchange(bytes_, 0);
  return false;
}

// Its memory counts as free at once: the connection lets go of it as soon as it is woken.
void Arrival::drop() {
  dropped_ = true;
  leave();
  all_.bytes_ -= std::exchange(bytes_, 0);
  drop_();
}

}  // namespace ktx::server
