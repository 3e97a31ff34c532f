#include "lib/runtime/scheduler/turn_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace ktx::runtime {
namespace {

// Threads that take turns and note whose it was, while the test holds the first one.
class Comers {
 public:
  explicit Comers(TurnLine& line) : line_(line) {}
  ~Comers() { join(); }

  // Comes when all before it wait: the order is that of the calls.
  void come(const std::string& key, double weight = 1) {
    const int64_t before = line_.waiting();
    threads_.emplace_back([this, key, weight] {
      const auto turn = line_.wait({.key = key, .weight = weight});
      const std::lock_guard lock(mutex_);
      order_ += key;
    });
    while (line_.waiting() == before) std::this_thread::yield();
  }
  std::string join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return order_;
  }

 private:
  TurnLine& line_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::string order_;
};

TEST(TurnLine, AKeyThatComesWithItsFirstIsNext) {
  TurnLine line(1);
  Comers comers(line);
  {
    const auto first = line.wait({.key = "a"});
    for (int i = 0; i < 40; ++i) comers.come("a");
    comers.come("b");
    comers.come("c");
  }
  const std::string order = comers.join();
  EXPECT_EQ(order.size(), 42u);
  EXPECT_LT(order.find('b'), 2u) << order;
  EXPECT_LT(order.find('c'), 3u) << order;
}

TEST(TurnLine, WhatThrowsLeavesNoPlaceBehind) {
  TurnLine line(1);
  {
    const auto turn = line.wait({.key = "a"});
    const auto throws = []() -> bool { throw std::bad_alloc(); };
    EXPECT_THROW(line.wait({.key = "b"}, throws), std::bad_alloc);
    EXPECT_EQ(line.waiting(), 0);
  }
  EXPECT_TRUE(line.wait({.key = "a"}));
}

TEST(TurnLine, KeysGoRoundHoweverManyEachHasWaiting) {
  TurnLine line(1);
  Comers comers(line);
  {
    const auto first = line.wait({.key = "a"});
    for (int i = 0; i < 30; ++i) comers.come("a");
    for (int i = 0; i < 10; ++i) comers.come("b");
  }
  const std::string order = comers.join();
  // One turn of the other key between two of b, but for the one that b is behind at first.
  EXPECT_LE(order.rfind('b'), 20u) << order;
  EXPECT_GE(std::ranges::count(order.substr(0, 20), 'a'), 9) << order;
}

TEST(TurnLine, AWeightIsThatManyTurns) {
  TurnLine line(1);
  Comers comers(line);
  {
    const auto first = line.wait({.key = "a"});
    for (int i = 0; i < 30; ++i) comers.come("a");
    for (int i = 0; i < 30; ++i) comers.come("b", 3);
  }
  const std::string order = comers.join();
  const auto of_b = std::ranges::count(order.substr(0, 24), 'b');
  EXPECT_GE(of_b, 16) << order;
  EXPECT_LE(of_b, 20) << order;
}

TEST(TurnLine, AKeyLeavesAPlaceToOthers) {
  TurnLine line(3, 2);
  const auto one = line.wait({.key = "a"}), two = line.wait({.key = "a"});
  ASSERT_TRUE(one && two);
  std::atomic<bool> waits = true;
  std::thread third([&] {
    EXPECT_FALSE(line.wait({.key = "a"}, [&] { return waits.load(); })) << "two are the most";
  });
  while (line.waiting() == 0) std::this_thread::yield();
  EXPECT_TRUE(line.wait({.key = "b"})) << "it would hang";
  waits = false;
  third.join();
  EXPECT_EQ(line.waiting(), 0);
}

TEST(TurnLine, OnesThatLeaveHoldUpNone) {
  TurnLine line(1);
  Comers comers(line);
  {
    const auto first = line.wait({.key = "a"});
    std::atomic<bool> waits = true;
    std::vector<std::thread> leaving;
    for (int i = 0; i < 10; ++i) {
      leaving.emplace_back(
          [&] { EXPECT_FALSE(line.wait({.key = "b"}, [&] { return waits.load(); })); });
    }
    while (line.waiting() < 10) std::this_thread::yield();
    comers.come("c");
    waits = false;
    for (std::thread& thread : leaving) thread.join();
    EXPECT_EQ(line.waiting(), 1);
  }
  EXPECT_EQ(comers.join(), "c");
}

}  // namespace
}  // namespace ktx::runtime
