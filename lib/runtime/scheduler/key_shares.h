// Shares of the batch by key: who gets the next place, and who gives one back.
//
//   8 places, key a with 16 requests:     a a a a a a a a       alone a key may have all
//   key b comes with one:                 a a a a a a a b       at once, the youngest of a waits
//   key b comes with nine more:           a a a a b b b b       down to equal numbers
//
// With more keys than places, places go round: each key has a meter of what was computed for it
// (a token of an answer counts 1, one of a prompt 1/16, what is computed again nothing), and a key
// without a place takes that of a key whose meter is kTurn ahead. A key that was away begins kTurn
// behind the others: its first token need not wait, and coming and going gains nothing. Meters
// and numbers of places are divided by the key's weight.
//
// Within a key the order of arrival stays, but for the priority that requests have among each
// other. Where there are no keys, a key is a client's address, and the requests of one (with n: 16,
// say) share its places in the same way: equal numbers, without turns.
//
// Not thread-safe: the engine's thread owns it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace ktx::runtime {

// Whose part of the batch a request takes.
struct ShareOf {
  std::string key;       // "": one like others
  double weight = 1;     // of the key; the latest counts
  int priority = 0;      // among the requests of the key; lower is sooner
  uint64_t request = 0;  // several answers of one request share; 0: the order of arrival stays
};

// A request that waits or runs, as far as shares need it.
struct ShareItem {
  const ShareOf* share = nullptr;
  uint64_t id = 0;        // lower: earlier
  int64_t remaining = 0;  // tokens to compute until it has its next one
  bool in_prompt = false;
  int64_t blocks = 0;  // that its text takes
};

class KeyShares {
 public:
  static constexpr double kTurn = 256, kPromptToken = 1.0 / 16;

  explicit KeyShares(int64_t most_places = 0) : most_places_(most_places) {}

  // A request of the key has come, or has ended.
  void enter(const ShareOf& share);
  void leave(const ShareOf& share);
  void charge(const ShareOf& share, double tokens);

  // Which of `waiting` is the next to get a place: of the key with the fewest places, and of two
  // the one whose meter is behind. `skip`: those that cannot have one now. A key never has more
  // than the most places.
  using Skip = std::function<bool(size_t)>;
  std::optional<size_t> next(std::span<const ShareItem> waiting, std::span<const ShareItem> running,
                             const Skip& skip) const;
  // Which of `running` gives its place to `claim`; none: it has to wait. `may`: those that could.
  using May = std::function<bool(size_t)>;
  std::optional<size_t> gives_place(const ShareItem& claim, std::span<const ShareItem> running,
                                    const May& may) const;
  // The same for blocks of the cache, of which `missing` are short: of keys that hold more than
  // the claim's would.
  std::optional<size_t> gives_blocks(const ShareItem& claim, int64_t missing,
                                     std::span<const ShareItem> running, const May& may) const;
  // The cache is full in the middle of answers: who waits.
  size_t gives_way(std::span<const ShareItem> running) const;

 private:
  struct Account {
    double meter = 0, weight = 1;
    int64_t open = 0;  // requests that wait or run
  };
  struct Held {
    double places = 0, blocks = 0;  // divided by the weight
    int64_t count = 0;
  };
  using HeldByKey = std::map<std::string_view, Held>;

  HeldByKey held(std::span<const ShareItem> running) const;
  const Account& account(const ShareItem& item) const;
  bool takes_turn(const ShareItem& claim, const ShareItem& other) const;
  void forget_old();

  int64_t most_places_;
  int64_t active_ = 0;
  double clock_ = 0;  // what the meters of those who were here have reached
  std::map<std::string, Account, std::less<>> accounts_;
};

}  // namespace ktx::runtime
