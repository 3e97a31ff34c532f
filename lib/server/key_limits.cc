#include "lib/server/key_limits.h"

#include <algorithm>
#include <cmath>

namespace ktx::server {
namespace {

int whole_seconds(double minutes) {
  return std::max(1, static_cast<int>(std::ceil(std::min(minutes, 1440.0) * 60)));
}

// Minutes until one is left of what comes back at `rate` a minute; 0 as a rate: no limit.
double minutes_until_one(double left, double rate) {
  return rate > 0 && left < 1 ? (1 - left) / rate : 0;
}

}  // namespace

// As of now.
KeyLimits::Account& KeyLimits::account_of(const std::string& owner, const ApiKey& key,
                                          Clock::time_point now) {
  const auto requests = static_cast<double>(key.requests_per_minute);
  const auto tokens = static_cast<double>(key.tokens_per_minute);
  Account& account = accounts_[owner];
  if (!account.known) {
    account = {requests, tokens + account.tokens, now, true};
  }
  const double minutes = std::chrono::duration<double>(now - account.filled).count() / 60;
  account.filled = now;
  account.requests = std::min(requests, account.requests + minutes * requests);
  account.tokens = std::min(tokens, account.tokens + minutes * tokens);
  return account;
}

int KeyLimits::take_request(const std::string& owner, const ApiKey& key, Clock::time_point now) {
  const auto requests = static_cast<double>(key.requests_per_minute);
  const auto tokens = static_cast<double>(key.tokens_per_minute);
  if (requests == 0 && tokens == 0) return 0;
  const std::lock_guard lock(mutex_);
  Account& account = account_of(owner, key, now);
  const double wait = std::max(minutes_until_one(account.requests, requests),
                               minutes_until_one(account.tokens, tokens));
  if (wait > 0) return whole_seconds(wait);
  if (requests > 0) account.requests -= 1;
  return 0;
}

int KeyLimits::take_tokens(const std::string& owner, const ApiKey& key, int64_t tokens,
                           Clock::time_point now) {
  if (key.tokens_per_minute == 0) return 0;
  const std::lock_guard lock(mutex_);
  Account& account = account_of(owner, key, now);
  const double wait = minutes_until_one(account.tokens, static_cast<double>(key.tokens_per_minute));
  if (wait > 0) return whole_seconds(wait);
  account.tokens -= static_cast<double>(tokens);
  return 0;
}

void KeyLimits::add_tokens(const std::string& owner, int64_t tokens) {
  const std::lock_guard lock(mutex_);
  accounts_[owner].tokens -= static_cast<double>(tokens);
}

}  // namespace ktx::server
