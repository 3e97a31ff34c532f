#include "lib/server/http/call_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>

namespace ktx::server {
namespace {

TEST(CallThreads, CallsThatWaitHoldUpNone) {
  CallThreads threads;
  std::latch all(8);
  std::atomic<int> done = 0;
  for (int i = 0; i < 8; ++i) {
    threads.run([&] {
      all.arrive_and_wait();  // it would hang where two had one thread
      ++done;
    });
  }
  threads.join();
  EXPECT_EQ(done, 8);
}

TEST(CallThreads, WhatACallHoldsGoesWithIt) {
  CallThreads threads;
  const auto held = std::make_shared<int>(1);
  threads.run([held] {});
  threads.join();
  EXPECT_EQ(held.use_count(), 1);
  threads.run([held] { ADD_FAILURE() << "it has ended"; });
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace ktx::server
