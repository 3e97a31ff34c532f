// Limits of requests and tokens per minute, for each key.
//
//   KeyLimits limits;
//   if (const int wait = limits.take_request(owner, key, now)) -> 429, Retry-After: wait
//   limits.add_tokens(owner, 1200);                            // when an answer has ended
//
// A key may use its minute's share at once; then it comes back evenly. Tokens of texts are known
// when an answer has ended, those of images before they are looked at. The last request may go
// beyond the limit; what is missing is waited for.
// Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "lib/server/api_keys.h"

namespace ktx::server {

class KeyLimits {
 public:
  using Clock = std::chrono::steady_clock;

  // Counts a request and gives 0, or the seconds until one is possible.
  int take_request(const std::string& owner, const ApiKey& key, Clock::time_point now);
  void add_tokens(const std::string& owner, int64_t tokens);
  // Counts tokens before they are computed, and gives 0; or the seconds until some are possible.
  int take_tokens(const std::string& owner, const ApiKey& key, int64_t tokens,
                  Clock::time_point now);

 private:
  struct Account {
    double requests = 0, tokens = 0;  // what is left
    Clock::time_point filled{};
    bool known = false;
  };
  Account& account_of(const std::string& owner, const ApiKey& key, Clock::time_point now);

  std::mutex mutex_;
  std::map<std::string, Account> accounts_;  // as many as keys were used
};

}  // namespace ktx::server
