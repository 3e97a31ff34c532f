#include "lib/runtime/scheduler/key_shares.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "lib/support/result.h"

namespace ktx::runtime {
namespace {

constexpr size_t kMostAccounts = 1024;  // of keys that are away

bool same_request(const ShareItem& a, const ShareItem& b) {
  return a.share->request != 0 && a.share->request == b.share->request;
}

// The places that the request of `item` has; 0 where requests do not share.
int64_t places_of_request(const ShareItem& item, std::span<const ShareItem> running) {
  return std::ranges::count_if(running, [&](const ShareItem& r) { return same_request(r, item); });
}

// The youngest one, of the last priority, of those for which `test` holds.
template <class Test>
std::optional<size_t> youngest(std::span<const ShareItem> running, const Test& test) {
  std::optional<size_t> best;
  const auto rank = [&](size_t i) { return std::pair(running[i].share->priority, running[i].id); };
  for (size_t i = 0; i < running.size(); ++i) {
    if (test(i) && (!best || rank(i) > rank(*best))) best = i;
  }
  return best;
}

}  // namespace

const KeyShares::Account& KeyShares::account(const ShareItem& item) const {
  const auto at = accounts_.find(item.share->key);
  KTX_ASSERT(at != accounts_.end());
  return at->second;
}

void KeyShares::enter(const ShareOf& share) {
  if (accounts_.size() > kMostAccounts) forget_old();
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [key, other] : accounts_) {
    if (other.open > 0) least = std::min(least, other.meter);
  }
  if (active_ > 0) clock_ = std::max(clock_, least);
  const auto [at, fresh] = accounts_.try_emplace(share.key, Account{.meter = clock_ - kTurn});
  Account& account = at->second;
  account.weight = std::max(share.weight, 1e-3);
  if (account.open++ > 0) return;
  ++active_;
  account.meter = std::max(account.meter, clock_ - kTurn);
}

void KeyShares::leave(const ShareOf& share) {
  Account& account = accounts_.at(share.key);
  if (--account.open > 0) return;
  // What a key computed while no other one was there is not held against it.
  if (--active_ == 0) clock_ = std::max(clock_, account.meter);
}

void KeyShares::charge(const ShareOf& share, double tokens) {
  Account& account = accounts_.at(share.key);
  account.meter += tokens / account.weight;
}

void KeyShares::forget_old() {
  std::erase_if(accounts_, [&](const auto& entry) { return entry.second.open == 0; });
}

KeyShares::HeldByKey KeyShares::held(std::span<const ShareItem> running) const {
  HeldByKey out;
  for (const ShareItem& item : running) {
    Held& key = out[item.share->key];
    const double weight = account(item).weight;
    key.places += 1 / weight;
    key.blocks += static_cast<double>(item.blocks) / weight;
    ++key.count;
  }
  return out;
}

std::optional<size_t> KeyShares::next(std::span<const ShareItem> waiting,
                                      std::span<const ShareItem> running, const Skip& skip) const {
  HeldByKey by_key = held(running);
  std::optional<size_t> best;
  const auto rank = [&](size_t i) {
    const ShareItem& item = waiting[i];
    return std::tuple(by_key[item.share->key].places, account(item).meter);
  };
  const auto rank_in_key = [&](size_t i) {
    const ShareItem& item = waiting[i];
    return std::tuple(item.share->priority, places_of_request(item, running), item.id);
  };
  for (size_t i = 0; i < waiting.size(); ++i) {
    const ShareItem& item = waiting[i];
    if (skip(i) || (most_places_ > 0 && by_key[item.share->key].count >= most_places_)) continue;
    if (!best) {
      best = i;
      continue;
    }
    const bool same_key = item.share->key == waiting[*best].share->key;
    const auto mine = rank(i), other = rank(*best);
    if (same_key        ? rank_in_key(i) < rank_in_key(*best)
        : mine != other ? mine < other
                        : item.id < waiting[*best].id) {
      best = i;
    }
  }
  return best;
}

// Whether a key without a place may take its turn from one that is ahead of it. Where both requests
// are in their prompts, a much shorter one need not wait that long.
bool KeyShares::takes_turn(const ShareItem& claim, const ShareItem& other) const {
  const double behind = account(other).meter - account(claim).meter;
  const bool shorter = claim.in_prompt && other.in_prompt && claim.remaining * 2 <= other.remaining;
  return behind >= kTurn || (shorter && behind >= 0);
}

std::optional<size_t> KeyShares::gives_place(const ShareItem& claim,
                                             std::span<const ShareItem> running,
                                             const May& may) const {
  HeldByKey by_key = held(running);
  const std::string_view own = claim.share->key;
  const Held mine = by_key[own];
  const double weight = account(claim).weight;
  // Down to equal numbers: of the key with the most.
  const auto more_than = [&](const ShareItem& item) {
    const double one = 1 / account(item).weight;
    return item.share->key != own &&
           mine.places + 1 / weight <= by_key[item.share->key].places - one;
  };
  const ShareItem* most = nullptr;
  const auto rank = [&](const ShareItem& item) {
    return std::tuple(by_key[item.share->key].places, account(item).meter);
  };
  for (size_t i = 0; i < running.size(); ++i) {
    if (!may(i) || !more_than(running[i])) continue;
    if (most == nullptr || rank(running[i]) > rank(*most)) most = &running[i];
  }
  if (most != nullptr) {
    return youngest(running,
                    [&](size_t i) { return may(i) && running[i].share->key == most->share->key; });
  }
  if (claim.share->request != 0) {
    const int64_t places = places_of_request(claim, running);
    const auto found = youngest(running, [&](size_t i) {
      return may(i) && running[i].share->key == own &&
             places_of_request(running[i], running) >= places + 2;
    });
    if (found) return found;
  }
  if (mine.count > 0) return std::nullopt;
  std::optional<size_t> ahead;
  for (size_t i = 0; i < running.size(); ++i) {
    if (!may(i) || running[i].share->key == own || !takes_turn(claim, running[i])) continue;
    const auto order = [&](size_t at) {
      return std::tuple(account(running[at]).meter, running[at].share->priority, running[at].id);
    };
    if (!ahead || order(i) > order(*ahead)) ahead = i;
  }
  return ahead;
}

std::optional<size_t> KeyShares::gives_blocks(const ShareItem& claim, int64_t missing,
                                              std::span<const ShareItem> running,
                                              const May& may) const {
  HeldByKey by_key = held(running);
  const std::string_view own = claim.share->key;
  const Held mine = by_key[own];
  const double wanted = mine.blocks + static_cast<double>(claim.blocks) / account(claim).weight;
  const auto gives = [&](size_t i) {
    const ShareItem& item = running[i];
    if (!may(i) || item.share->key == own) return false;
    const bool holds_more =
        by_key[item.share->key].blocks > wanted && account(item).meter >= account(claim).meter;
    return holds_more || (mine.count == 0 && takes_turn(claim, item));
  };
  int64_t possible = 0;
  for (size_t i = 0; i < running.size(); ++i) possible += gives(i) ? running[i].blocks : 0;
  if (possible < missing) return std::nullopt;  // no request makes room in vain
  std::optional<size_t> best;
  const auto rank = [&](size_t i) {
    return std::tuple(by_key[running[i].share->key].blocks, running[i].share->priority,
                      running[i].id);
  };
  for (size_t i = 0; i < running.size(); ++i) {
    if (gives(i) && (!best || rank(i) > rank(*best))) best = i;
  }
  return best;
}

size_t KeyShares::gives_way(std::span<const ShareItem> running) const {
  HeldByKey by_key = held(running);
  const auto rank = [&](const ShareItem& item) {
    return std::tuple(by_key[item.share->key].blocks, account(item).meter, item.share->key,
                      item.share->priority, item.id);
  };
  const auto last = std::ranges::max_element(
      running, [&](const ShareItem& a, const ShareItem& b) { return rank(a) < rank(b); });
  return static_cast<size_t>(last - running.begin());
}

}  // namespace ktx::runtime
