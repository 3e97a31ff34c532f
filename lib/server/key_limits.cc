#include "lib/server/key_limits.h"

#include <algorithm>
#include <cmath>

namespace ktx::server {

int KeyLimits::take_request(const std::string& owner, const ApiKey& key, Clock::time_point now) {
  const auto requests = static_cast<double>(key.requests_per_minute);
  const auto tokens = static_cast<double>(key.tokens_per_minute);
  if (requests == 0 && tokens == 0) return 0;
  const std::lock_guard lock(mutex_);
  Account& account = accounts_[owner];
  if (!account.known) {
    account = {requests, tokens + account.tokens, now, true};
  }
  const double minutes = std::chrono::duration<double>(now - account.filled).count() / 60;
  account.filled = now;
  account.requests = std::min(requests, account.requests + minutes * requests);
  account.tokens = std::min(tokens, account.tokens + minutes * tokens);
  double wait = 0;  // minutes
  if (requests > 0 && account.requests < 1) wait = (1 - account.requests) / requests;
  if (tokens > 0 && account.tokens < 1) wait = std::max(wait, (1 - account.tokens) / tokens);
  if (wait > 0) return std::max(1, static_cast<int>(std::ceil(std::min(wait, 1440.0) * 60)));
  if (requests > 0) account.requests -= 1;
  return 0;
}

void KeyLimits::add_tokens(const std::string& owner, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  accounts_[owner].tokens -= static_cast<double>(tokens);
}

}  // namespace ktx::server
