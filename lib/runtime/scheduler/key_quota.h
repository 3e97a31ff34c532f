// What keys may take together of something that is limited: places in a queue, bytes of memory.
//
//   KeyQuota queue(64);
//   if (!queue.take("anna")) ...              // full, for this key
//   queue.give_back("anna");
//   std::shared_ptr<void> held = queue.hold("anna", 20);   // null: full
//   held.reset();                                          // the last copy gives it back
//
// A key alone may take all. Another one is then given some beyond the limit, up to the part that it
// would have among so many keys: all together stay below the limit times the logarithm of the
// number of keys.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace ktx::runtime {

class KeyQuota {
 public:
  explicit KeyQuota(int64_t most) : most_(most) {}

  // False: it is full, and nothing was taken.
  [[nodiscard]] bool take(const std::string& key, int64_t amount = 1);
  void give_back(const std::string& key, int64_t amount = 1);
  // As take(), for as long as a copy of the result is there, which this outlives.
  [[nodiscard]] std::shared_ptr<void> hold(const std::string& key, int64_t amount = 1);

  int64_t taken() const;  // by all
  int64_t most() const { return most_; }

 private:
  bool fits(const std::string& key, int64_t amount) const;

  const int64_t most_;
  mutable std::mutex mutex_;  // of what follows
  int64_t taken_ = 0;
  std::map<std::string, int64_t> of_key_;  // without those that have none
};

}  // namespace ktx::runtime
