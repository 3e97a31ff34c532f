#include "lib/runtime/scheduler/key_quota.h"

namespace ktx::runtime {

bool KeyQuota::fits(const std::string& key, int64_t amount) const {
  if (amount <= most_ - taken_) return true;
  const auto own = of_key_.find(key);
  const bool there = own != of_key_.end();
  const auto keys = static_cast<int64_t>(of_key_.size()) + (there ? 0 : 1);
  return amount <= most_ / keys - (there ? own->second : 0);
}

bool KeyQuota::take(const std::string& key, int64_t amount) {
  const std::lock_guard lock(mutex_);
  if (!fits(key, amount)) return false;
  if (amount == 0) return true;
  taken_ += amount;
  of_key_[key] += amount;
  return true;
}

void KeyQuota::give_back(const std::string& key, int64_t amount) {
  if (amount == 0) return;
  const std::lock_guard lock(mutex_);
  const auto own = of_key_.find(key);
  taken_ -= amount;
  own->second -= amount;
  if (own->second == 0) of_key_.erase(own);
}

std::shared_ptr<void> KeyQuota::hold(const std::string& key, int64_t amount) {
  if (!take(key, amount)) return nullptr;
  // The pointer may be any pointer that is not null: there is nothing to be deleted.
  return {static_cast<void*>(this), [this, key, amount](void*) { give_back(key, amount); }};
}

int64_t KeyQuota::taken() const {
  const std::lock_guard lock(mutex_);
  return taken_;
}

}  // namespace ktx::runtime
