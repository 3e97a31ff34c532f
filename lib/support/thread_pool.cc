#include "lib/support/thread_pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "lib/support/cpu_pin.h"
#include "lib/support/result.h"
#include "lib/support/signal_block.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ktx {
namespace {

// The state of a share of a stage in one word, so that one atomic add claims an item
// and holds the number of its stage:  stage:16 | end:24 | next:24.
// Threads look before they add, so `next` passes `end` by at most one per thread and
// never runs into its neighbour.
constexpr int kItemBits = 24;
constexpr uint64_t kItemMask = (uint64_t{1} << kItemBits) - 1;

uint64_t pack(int stage, int64_t end, int64_t next) {
  return static_cast<uint64_t>(stage) << (2 * kItemBits) | static_cast<uint64_t>(end) << kItemBits |
         static_cast<uint64_t>(next);
}
int stage_of(uint64_t word) {
  return static_cast<int>(word >> (2 * kItemBits));
}
int64_t end_of(uint64_t word) {
  return (word >> kItemBits) & kItemMask;
}
int64_t next_of(uint64_t word) {
  return word & kItemMask;
}

// Looks at a word this many times before sleeping, about 100 us. A stage of a decode step
// takes 5 to 500 us, and being woken 5 to 50, up to 300 where a host has given the CPU
// away meanwhile, so nearly all waits should end while spinning: with 20 us a twentieth of
// the threads' time went into late starts. More would eat the time slice that the work
// needs when other programs want the cores.
constexpr int kSpins = 4000;
// The same while an Awake exists, about 3 ms: between the experts of two layers a
// GPU takes 50 to 200 us, and waking 15 threads as long again.
constexpr int kAwakeSpins = 20 * kSpins;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr,
          0);
}
void futex_wake(std::atomic<uint32_t>& word, int threads) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, threads, nullptr,
          nullptr, 0);
}

}  // namespace

struct ThreadPool::Team {
  // Each on its own cache line: they are written by different threads at
  // different times.
  struct alignas(64) Share {
    std::atomic<uint64_t> word{0};
  };
  std::vector<ThreadPlace> places;
  std::unique_ptr<Share[]> share;
  int shares = 1;
  alignas(64) std::atomic<int64_t> done{0};     // items finished in this stage
  alignas(64) std::atomic<uint32_t> signal{0};  // changes when there may be something to do
  alignas(64) std::atomic<int> sleepers{0};
  std::atomic<bool> running{false};
  std::atomic<bool> stop{false};
  std::atomic<int> awake{0};
  Job* job = nullptr;  // written before the words, read after a claim
  int stages = 0;
  int64_t items = 0;  // of this stage; likewise
  std::mutex turn;
  std::vector<std::thread> helpers;

  void notify(int64_t wanted) {
    signal.fetch_add(1, std::memory_order_seq_cst);
    // A thread that is about to sleep has counted itself before the kernel
    // compares `signal`: it either is seen here or sees the change.
    if (sleepers.load(std::memory_order_seq_cst) > 0) {
      futex_wake(signal, static_cast<int>(std::min<int64_t>(wanted, INT_MAX)));
    }
  }

  // Opens the first stage at or after `stage` that has items and claims one of them
  // for the caller, or ends the run. Called by one thread at a time, after all
  // earlier items are done. The returned word is the claim; 0: the run is over.
  uint64_t open_stage(int stage, int thread) {
    for (; stage < stages; ++stage) {
      const int64_t count = job->begin_stage(stage, thread);
      KTX_ASSERT(count >= 0 && count <= kMaxItems);
      if (count == 0) continue;
      done.store(0, std::memory_order_relaxed);
      items = count;
      const uint64_t claimed = open_shares(stage, places[thread].share);
      if (count > 1) notify(count - 1);
      return claimed;
    }
    for (int s = 0; s < shares; ++s) share[s].word.store(0, std::memory_order_release);
    running.store(false, std::memory_order_release);
    notify(INT_MAX);  // the caller of run() may sleep
    return 0;
  }

  // The first item of the caller's share, or of the first that has one, is claimed.
  uint64_t open_shares(int stage, int own) {
    int64_t ends[kMaxShares];
    for (int s = 0; s < shares; ++s) ends[s] = job->end_of_share(items, s, shares);
    const auto begin_of = [&](int s) { return s == 0 ? 0 : ends[s - 1]; };
    KTX_ASSERT(ends[shares - 1] == items);
    if (begin_of(own) == ends[own]) {
      for (own = 0; begin_of(own) == ends[own];) ++own;
    }
    for (int s = 0; s < shares; ++s) {
      KTX_ASSERT(begin_of(s) <= ends[s]);
      share[s].word.store(pack(stage, ends[s], begin_of(s) + (s == own)),
                          std::memory_order_release);
    }
    return pack(stage, ends[own], begin_of(own));
  }

  // An item of the current stage, of the thread's own share if there is one left, or 0.
  uint64_t claim(int thread) {
    const int own = places[thread].share;
    for (int i = 0; i < shares; ++i) {
      std::atomic<uint64_t>& word = share[own + i < shares ? own + i : own + i - shares].word;
      const uint64_t seen = word.load(std::memory_order_relaxed);
      if (next_of(seen) >= end_of(seen)) continue;
      const uint64_t mine = word.fetch_add(1, std::memory_order_acq_rel);
      if (next_of(mine) < end_of(mine)) return mine;
    }
    return 0;
  }

  // Runs items until there is none to claim.
  void work(uint64_t mine, int thread) {
    while (mine) {
      job->run_item(stage_of(mine), next_of(mine), thread);
      const int64_t all = items;  // read before this item counts as done
      const bool last = done.fetch_add(1, std::memory_order_acq_rel) + 1 == all;
      mine = last ? open_stage(stage_of(mine) + 1, thread) : claim(thread);
    }
  }

  // Returns when `signal` no longer is `seen` (or for no reason).
  void wait(uint32_t seen) {
    for (int i = 0; i < (awake.load(std::memory_order_relaxed) > 0 ? kAwakeSpins : kSpins); ++i) {
      if (signal.load(std::memory_order_acquire) != seen) return;
      pause();
    }
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(signal, seen);
    sleepers.fetch_sub(1, std::memory_order_relaxed);
  }

  void help(int thread) {
    const CpuPin pin(places[thread].cpu);
    while (!stop.load(std::memory_order_acquire)) {
      const uint32_t seen = signal.load(std::memory_order_acquire);
      if (const uint64_t mine = claim(thread)) {
        work(mine, thread);
      } else if (!stop.load(std::memory_order_acquire)) {
        wait(seen);
      }
    }
  }
};

ThreadPool::ThreadPool(int threads)
    : ThreadPool(std::vector<ThreadPlace>(std::clamp(threads, 1, kMaxThreads))) {}

ThreadPool::ThreadPool(std::span<const ThreadPlace> places) : team_(std::make_unique<Team>()) {
  KTX_ASSERT(!places.empty() && places.size() <= kMaxThreads);
  team_->places.assign(places.begin(), places.end());
  for (const ThreadPlace& place : places) {
    KTX_ASSERT(place.share >= 0 && place.share < kMaxShares);
    team_->shares = std::max(team_->shares, place.share + 1);
  }
  team_->share = std::make_unique<Team::Share[]>(team_->shares);
  const int threads = static_cast<int>(places.size());
  team_->helpers.reserve(threads - 1);
  const SignalBlock block;  // inherited by the helpers
  for (int thread = 1; thread < threads; ++thread) {
    try {
      team_->helpers.emplace_back([team = team_.get(), thread] { team->help(thread); });
    } catch (const std::system_error&) {
      break;  // a limit on processes: go on with those we have
    }
  }
}

ThreadPool::~ThreadPool() {
  team_->stop.store(true, std::memory_order_seq_cst);
  team_->notify(INT_MAX);
  for (std::thread& helper : team_->helpers) helper.join();
}

ThreadPool::Awake::Awake(ThreadPool& pool) : pool_(pool) {
  pool_.team_->awake.fetch_add(1, std::memory_order_relaxed);
}
ThreadPool::Awake::~Awake() {
  pool_.team_->awake.fetch_sub(1, std::memory_order_relaxed);
}

int ThreadPool::threads() const {
  return 1 + static_cast<int>(team_->helpers.size());
}

int ThreadPool::shares() const {
  return team_->shares;
}

void ThreadPool::run(Job& job, int stages) {
  KTX_ASSERT(stages >= 0 && stages <= kMaxStages);
  Team& team = *team_;
  const std::lock_guard lock(team.turn);
  const CpuPin pin(team.places[0].cpu);
  team.job = &job;
  team.stages = stages;
  team.running.store(true, std::memory_order_relaxed);
  team.work(team.open_stage(0, 0), 0);
  while (team.running.load(std::memory_order_acquire)) {
    const uint32_t seen = team.signal.load(std::memory_order_acquire);
    if (const uint64_t mine = team.claim(0)) {
      team.work(mine, 0);
    } else if (team.running.load(std::memory_order_acquire)) {
      team.wait(seen);
    }
  }
}

}  // namespace ktx
