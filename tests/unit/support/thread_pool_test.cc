#include "lib/support/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/cpu_time.h"

namespace ktx {
namespace {

TEST(ThreadPool, RunsEveryItemOnce) {
  for (int threads = 1; threads <= 5; ++threads) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    for (int64_t items : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(items);
      std::atomic<bool> good_thread{true};
      pool.for_each(items, [&](int64_t item, int thread) {
        runs[item].fetch_add(1);
        if (thread < 0 || thread >= threads) good_thread = false;
      });
      for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
      EXPECT_TRUE(good_thread);
    }
  }
}

TEST(ThreadPool, SharesStagesWithMoreItemsThanItCanCount) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  const int64_t items = ThreadPool::kMaxItems * 2 + 3;
  pool.for_each(items, [&](int64_t item, int) {
    if (item % 1024 == 0 || item == items - 1) sum.fetch_add(item);
  });
  int64_t expected = items - 1;
  for (int64_t i = 0; i < items; i += 1024) expected += i;
  EXPECT_EQ(sum.load(), expected);
}

TEST(ThreadPool, MovesThreadCountsIntoRange) {
  EXPECT_EQ(ThreadPool(0).threads(), 1);
  EXPECT_EQ(ThreadPool(-3).threads(), 1);
}

// Stage s adds its number to every cell and checks that stage s - 1 was there.
struct Chain final : ThreadPool::Job {
  explicit Chain(int64_t width) : cells(width, -1) {}
  int64_t begin_stage(int stage, int) override {
    for (int64_t cell : cells) {
      if (cell != last_run(stage - 1)) broken = true;
    }
    return stage % 3 == 2 ? 0 : stage % 5 == 1 ? 1 : static_cast<int64_t>(cells.size());
  }
  static int64_t last_run(int stage) { return stage >= 0 && stage % 3 == 2 ? stage - 1 : stage; }
  void run_item(int stage, int64_t item, int) override {
    if (stage % 5 == 1) {
      for (int64_t& cell : cells) cell = stage;
    } else {
      if (cells[item] != last_run(stage - 1)) broken = true;
      cells[item] = stage;
    }
  }
  std::vector<int64_t> cells;
  std::atomic<bool> broken{false};
};

TEST(ThreadPool, KeepsStagesApartWithShares) {
  for (int shares : {2, 3, 5}) {
    std::vector<ThreadPlace> places;
    for (int thread = 0; thread < 5; ++thread) places.push_back({-1, thread % shares});
    ThreadPool pool(places);
    EXPECT_EQ(pool.shares(), shares);
    for (int round = 0; round < 20; ++round) {
      Chain chain(13);
      pool.run(chain, 500);
      EXPECT_FALSE(chain.broken);
      EXPECT_EQ(chain.cells[12], Chain::last_run(499));
    }
  }
}

// Items 0 to 2 are share 0's, 3 is share 1's; share 2 has none.
struct Uneven final : ThreadPool::Job {
  int64_t begin_stage(int, int) override { return 4; }
  int64_t end_of_share(int64_t, int share, int) override { return share == 0 ? 3 : 4; }
  void run_item(int, int64_t item, int) override { ++runs[item]; }
  std::atomic<int> runs[4] = {};
};

TEST(ThreadPool, SharesMayBeEmptyAndOthersHelp) {
  const ThreadPlace places[] = {{-1, 2}};  // the one thread has no item of its own
  ThreadPool pool(places);
  Uneven job;
  pool.run(job, 100);
  for (const auto& runs : job.runs) EXPECT_EQ(runs.load(), 100);
}

TEST(ThreadPool, AThreadTakesItsOwnShareFirst) {
  const ThreadPlace places[] = {{-1, 1}};
  // (Of one thread, two shares: the order is certain.)
  struct Order final : ThreadPool::Job {
    int64_t begin_stage(int, int) override { return 4; }
    void run_item(int, int64_t item, int) override { order.push_back(item); }
    std::vector<int64_t> order;
  } job;
  ThreadPool pool(places);
  pool.run(job, 1);
  EXPECT_EQ(job.order, (std::vector<int64_t>{2, 3, 0, 1}));
}

TEST(ThreadPool, HoldsItsThreadsOnTheirProcessorsWhileTheyRun) {
  const auto allowed = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    return set;
  };
  const cpu_set_t before = allowed();
  int cpu = 0;
  while (cpu < CPU_SETSIZE && !CPU_ISSET(cpu, &before)) ++cpu;
  if (cpu == CPU_SETSIZE) GTEST_SKIP() << "more processors than a cpu_set_t holds";
  const ThreadPlace places[] = {{cpu, 0}, {cpu, 0}, {-1, 0}, {60000, 0}};
  ThreadPool pool(places);
  std::atomic<int> wrong{0};
  pool.for_each(64, [&](int64_t, int thread) {
    const cpu_set_t now = allowed();
    if (thread < 2 && (CPU_COUNT(&now) != 1 || !CPU_ISSET(cpu, &now))) ++wrong;
    if (thread >= 2 && !CPU_EQUAL(&now, &before)) ++wrong;
  });
  EXPECT_EQ(wrong.load(), 0);
  const cpu_set_t after = allowed();
  EXPECT_TRUE(CPU_EQUAL(&after, &before));
}

TEST(ThreadPool, KeepsStagesApart) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 20; ++round) {
      Chain chain(13);
      pool.run(chain, 500);
      EXPECT_FALSE(chain.broken);
      EXPECT_EQ(chain.cells[12], Chain::last_run(499));
    }
  }
}

TEST(ThreadPool, SkipsEmptyStagesAndEmptyRuns) {
  struct Empty final : ThreadPool::Job {
    int64_t begin_stage(int, int) override { return ++stages, 0; }
    void run_item(int, int64_t, int) override {}
    int stages = 0;
  } job;
  ThreadPool pool(2);
  pool.run(job, 0);
  EXPECT_EQ(job.stages, 0);
  pool.run(job, 9);
  EXPECT_EQ(job.stages, 9);
}

TEST(ThreadPool, TakesTurnsWhenCalledFromSeveralThreads) {
  ThreadPool pool(3);
  std::atomic<int64_t> total{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) pool.for_each(10, [&](int64_t, int) { total.fetch_add(1); });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total.load(), 4 * 50 * 10);
}

// About `units` * 1 us of arithmetic.
void burn(int units) {
  volatile int sink = 0;
  for (int i = 0; i < units * 400; ++i) sink = i;
  (void)sink;
}

struct Steps final : ThreadPool::Job {
  int64_t begin_stage(int, int) override { return 8; }
  void run_item(int, int64_t, int) override { burn(5); }
};

// Processor time of one run, of all threads of this process.
double seconds_of_run(ThreadPool& pool) {
  Steps steps;
  const double begin = testing::cpu_seconds();
  pool.run(steps, 2000);
  return testing::cpu_seconds() - begin;
}

TEST(ThreadPool, ThreadsThatAreKeptAwakeTakeWorkAfterPausesAndLetThePoolEnd) {
  std::atomic<int64_t> sum = 0;
  {
    ThreadPool pool(4);
    for (const int pause_us : {0, 100, 1000, 10000}) {  // while they look, and asleep again
      const ThreadPool::Awake awake(pool);
      pool.for_each(100, [&](int64_t item, int) { sum += item; });
      std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
      const ThreadPool::Awake twice(pool);
      pool.for_each(100, [&](int64_t item, int) { sum += item; });
    }
  }
  EXPECT_EQ(sum, 8 * 4950);
}

// As many busy programs as cores: half of the machine is left. Threads that spin at a barrier until
// one comes that has no core would spend ten times the processor time; those that sleep there spend
// hardly more than alone.
TEST(ThreadPool, KeepsItsShareOfABusyMachine) {
  const int cores = std::min(8u, std::max(1u, std::thread::hardware_concurrency()));
  // Processes, whose time is not this one's; made before the pool has threads.
  std::vector<pid_t> others;
  for (int i = 0; i < cores; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      while (true) burn(100);
    }
    others.push_back(child);
  }
  ThreadPool pool(cores);
  const double shared = std::min(seconds_of_run(pool), seconds_of_run(pool));
  for (const pid_t child : others) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  const double alone = std::max(seconds_of_run(pool), seconds_of_run(pool));
  std::printf("processor time: alone %.1f ms, beside %d busy programs %.1f ms\n", alone * 1e3,
              cores, shared * 1e3);
  EXPECT_LT(shared, 5 * alone);
}

}  // namespace
}  // namespace ktx
