#include "lib/runtime/scheduler/key_shares.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace ktx::runtime {
namespace {

// A batch of places as the scheduler keeps it, without an engine: requests enter, get places, and
// each pass computes a token for each that has one.
class Places {
 public:
  explicit Places(size_t places, int64_t most_of_a_key = 0)
      : places_(places), shares_(most_of_a_key) {}

  struct Wanted {
    std::string key;
    double weight = 1;
    int priority = 0;
    uint64_t request = 0;
    int64_t prompt = 1, answer = 1000;
  };
  uint64_t come(const Wanted& wanted) {
    Text& text = texts_.emplace_back();
    text.share = {wanted.key, wanted.weight, wanted.priority, wanted.request};
    text.item = {&text.share, ++last_id_, wanted.prompt, true, 1};
    text.left = wanted.answer;
    shares_.enter(text.share);
    waiting_.push_back(&text);
    return text.item.id;
  }
  void come(int times, const Wanted& wanted) {
    for (int i = 0; i < times; ++i) come(wanted);
  }

  // Gives places, then computes up to `chunk` tokens of a prompt or one of an answer of each.
  void pass(int64_t chunk = 1 << 20) {
    admit();
    for (size_t i = 0; i < running_.size(); ++i) {
      Text& text = *running_[i];
      ++text.passes;
      if (text.item.in_prompt) {
        const int64_t taken = std::min(chunk, text.item.remaining);
        shares_.charge(text.share, static_cast<double>(taken) * KeyShares::kPromptToken);
        text.item.remaining -= taken;
        if (text.item.remaining > 0) continue;
        text.item.in_prompt = false;
        text.item.remaining = 1;
      }
      shares_.charge(text.share, 1);
      ++text.said;
      --text.left;
    }
    std::erase_if(running_, [&](Text* text) {
      if (text->left > 0) return false;
      shares_.leave(text->share);
      ended_.push_back(text->item.id);
      return true;
    });
    ++passes_;
  }
  int64_t said(uint64_t id) const { return texts_[id - 1].said; }
  // Tokens of a key.
  int64_t said(const std::string& key) const {
    int64_t sum = 0;
    for (const Text& text : texts_) sum += text.share.key == key ? text.said : 0;
    return sum;
  }
  int64_t count(const std::string& key) const {
    return std::count_if(running_.begin(), running_.end(),
                         [&](Text* text) { return text->share.key == key; });
  }
  bool runs(uint64_t id) const {
    return std::any_of(running_.begin(), running_.end(),
                       [&](Text* text) { return text->item.id == id; });
  }
  const std::vector<uint64_t>& ended() const { return ended_; }
  bool idle() const { return running_.empty() && waiting_.empty(); }

 private:
  struct Text {
    ShareOf share;
    ShareItem item;
    int64_t left = 0, said = 0, passes = 0;
  };
  std::vector<ShareItem> items(const std::vector<Text*>& texts) const {
    std::vector<ShareItem> out;
    for (Text* text : texts) out.push_back(text->item);
    return out;
  }
  void admit() {
    std::vector<uint64_t> cannot;
    for (;;) {
      const auto waiting = items(waiting_);
      const auto next = shares_.next(waiting, items(running_), [&](size_t i) {
        return std::find(cannot.begin(), cannot.end(), waiting[i].id) != cannot.end();
      });
      if (!next) return;
      Text* const text = waiting_[*next];
      if (running_.size() == places_) {
        const auto gives =
            shares_.gives_place(text->item, items(running_), [](size_t) { return true; });
        if (!gives) {
          cannot.push_back(text->item.id);
          continue;
        }
        waiting_.push_back(running_[*gives]);
        running_.erase(running_.begin() + static_cast<ptrdiff_t>(*gives));
      }
      running_.push_back(text);
      std::erase(waiting_, text);
    }
  }

  size_t places_;
  KeyShares shares_;
  uint64_t last_id_ = 0;
  int64_t passes_ = 0;
  std::deque<Text> texts_;
  std::vector<Text*> waiting_, running_;
  std::vector<uint64_t> ended_;
};

TEST(KeyShares, AKeyAloneHasAllPlacesAndGivesWayAtOnce) {
  Places batch(8);
  batch.come(16, {.key = "a"});
  for (int i = 0; i < 500; ++i) batch.pass();
  EXPECT_EQ(batch.count("a"), 8);
  const uint64_t first = batch.come({.key = "b", .answer = 2});
  batch.pass();
  EXPECT_EQ(batch.said(first), 1) << "the first token comes with the first pass";
  EXPECT_EQ(batch.count("a"), 7);
  EXPECT_FALSE(batch.runs(8)) << "the youngest of the eight waits";
  batch.pass();
  batch.pass();
  EXPECT_EQ(batch.count("a"), 8);
  EXPECT_TRUE(batch.runs(8)) << "and is the first to go on";
}

TEST(KeyShares, KeysEndWithEqualNumbers) {
  Places batch(8);
  batch.come(16, {.key = "a"});
  batch.pass();
  batch.come(16, {.key = "b"});
  batch.pass();
  EXPECT_EQ(batch.count("a"), 4);
  EXPECT_EQ(batch.count("b"), 4);
  batch.come(1, {.key = "c"});
  batch.pass();
  EXPECT_EQ(batch.count("c"), 1);
  const int64_t before = batch.said(1);
  for (int i = 0; i < 100; ++i) batch.pass();
  EXPECT_EQ(batch.said(1), before + 100) << "nobody changes places without need";
}

TEST(KeyShares, WeightsArePartsOfTheBatch) {
  Places batch(8);
  batch.come(16, {.key = "a"});
  batch.pass();
  batch.come(16, {.key = "b", .weight = 3});
  batch.pass();
  EXPECT_EQ(batch.count("a"), 2);
  EXPECT_EQ(batch.count("b"), 6);
}

// More keys than places: each gets its part, and a new one need not wait for its turn.
TEST(KeyShares, PlacesGoRoundAmongManyKeys) {
  Places batch(4);
  const auto name = [](int key) { return std::string(1, static_cast<char>('a' + key)); };
  for (int key = 0; key < 10; ++key) batch.come(3, {.key = name(key), .answer = 100000});
  for (int i = 0; i < 20000; ++i) batch.pass();
  for (int key = 0; key < 10; ++key) {
    EXPECT_NEAR(static_cast<double>(batch.said(name(key))), 8000, 2 * KeyShares::kTurn) << key;
  }
  const uint64_t late = batch.come({.key = "late", .answer = 10});
  batch.pass();
  EXPECT_EQ(batch.said(late), 1);
}

// Where keys take turns in one place, a weight is a part of the time.
TEST(KeyShares, WeightsArePartsOfTheTurns) {
  Places batch(1);
  batch.come({.key = "a", .answer = 100000});
  batch.come({.key = "b", .weight = 3, .answer = 100000});
  for (int i = 0; i < 40000; ++i) batch.pass();
  EXPECT_NEAR(static_cast<double>(batch.said("b")), 30000, 8 * KeyShares::kTurn);
}

// A key that keeps sending short requests gets half of the passes, not all.
TEST(KeyShares, ManyShortRequestsStarveNoLongOne) {
  Places batch(1);
  const uint64_t one = batch.come({.key = "a", .answer = 4000});
  uint64_t next = 0;
  int64_t passes = 0;
  for (; batch.said(one) < 4000 && passes < 20000; ++passes) {
    if (next == 0 || batch.said(next) == 20) next = batch.come({.key = "b", .answer = 20});
    batch.pass();
  }
  EXPECT_LT(passes, 8000 + 3 * KeyShares::kTurn);
}

// One place, a prompt of many chunks: a short question of another key is answered within one pass.
TEST(KeyShares, AShortPromptGoesBeforeALongOne) {
  Places batch(1);
  batch.come({.key = "a", .prompt = 100000});
  batch.pass(500);
  batch.pass(500);
  const uint64_t other = batch.come({.key = "b", .prompt = 40, .answer = 3});
  batch.pass(500);
  EXPECT_EQ(batch.said(other), 1);
  for (int i = 0; i < 3; ++i) batch.pass(500);
  EXPECT_EQ(batch.count("a"), 1);
}

TEST(KeyShares, OrderWithinAKeyIsThatOfArrivalButForPriority) {
  Places batch(2);
  for (int i = 0; i < 4; ++i) batch.come({.key = "a", .answer = 3});
  const uint64_t soon = batch.come({.key = "a", .priority = -1, .answer = 3});
  const uint64_t late = batch.come({.key = "a", .priority = 5, .answer = 3});
  batch.come({.key = "a", .answer = 3});
  while (!batch.idle()) batch.pass();
  EXPECT_EQ(batch.ended(), (std::vector<uint64_t>{soon, 1, 2, 3, 4, 7, late}));
}

TEST(KeyShares, AKeyNeverHasMoreThanItsMostPlaces) {
  Places batch(8, 3);
  batch.come(16, {.key = "a"});
  batch.pass();
  EXPECT_EQ(batch.count("a"), 3);
  batch.come(16, {.key = "b"});
  batch.pass();
  EXPECT_EQ(batch.count("a"), 3);
  EXPECT_EQ(batch.count("b"), 3);
}

// Without keys: many answers of one request leave room for another request of the same client.
TEST(KeyShares, RequestsOfAClientShareItsPlaces) {
  Places batch(4);
  batch.come(16, {.key = "here", .request = 1});
  batch.pass();
  const uint64_t other = batch.come({.key = "here", .request = 2, .answer = 2});
  batch.pass();
  EXPECT_EQ(batch.said(other), 1);
  // Single ones keep their order: no answer waits for one that came later.
  Places singles(2);
  for (uint64_t i = 1; i <= 6; ++i) singles.come({.key = "here", .request = i, .answer = 600});
  while (!singles.idle()) singles.pass();
  EXPECT_EQ(singles.ended(), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6}));
}

// What a key computed while it was alone is not held against it.
TEST(KeyShares, IdleCapacityIsFree) {
  Places batch(1);
  batch.come({.key = "a", .answer = 5000});
  for (int i = 0; i < 5001; ++i) batch.pass();
  ASSERT_TRUE(batch.idle());
  batch.come({.key = "b", .answer = 5000});
  for (int i = 0; i < 10; ++i) batch.pass();
  const uint64_t again = batch.come({.key = "a", .answer = 5000});
  for (int i = 0; i < 2000; ++i) batch.pass();
  EXPECT_GT(batch.said(again), 700);
}

TEST(KeyShares, TheKeyThatHoldsMostOfTheCacheGivesWay) {
  KeyShares shares;
  const ShareOf a{.key = "a"}, b{.key = "b"};
  for (const ShareOf* key : {&a, &a, &b}) shares.enter(*key);
  const ShareItem running[] = {{&a, 1, 1, false, 10}, {&b, 2, 1, false, 12}, {&a, 3, 1, false, 5}};
  EXPECT_EQ(shares.gives_way(running), 2u) << "a has 15, its youngest is 3";
  const ShareItem small{&b, 4, 3, true, 1}, large{&b, 4, 300, true, 4};
  const auto may = [](size_t) { return true; };
  EXPECT_EQ(shares.gives_blocks(small, 1, running, may), 2u);
  EXPECT_EQ(shares.gives_blocks(large, 1, running, may), std::nullopt)
      << "16 would be more than 15";
  EXPECT_EQ(shares.gives_blocks(small, 16, running, may), std::nullopt) << "it would not be enough";
}

}  // namespace
}  // namespace ktx::runtime
