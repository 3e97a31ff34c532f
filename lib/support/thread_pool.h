// A fixed team of threads that walks through stages of work items together.
//
//   ThreadPool pool(4);                         // the caller and three helpers
//   pool.for_each(rows, [&](int64_t row, int thread) { ... });
//   pool.run(job, stages);                      // many stages, e.g. the steps of a model
//
// A stage ends when all its *items* are done, not when all threads have arrived: a thread that
// the scheduler has suspended delays the others only in the middle of an item, and the thread
// that finishes a stage's last item opens the next stage. So a busy machine costs the program
// its share of the cores and not the factor of 6 to 35 that a barrier of spinning threads
// costs. Idle threads spin for a tenth of a millisecond, then sleep on a futex.
//
//   stage 3 of 5 items, two threads:   A: 0 2 4      | opens stage 4, takes item 0
//                                      B:  1 3  spin | takes item 1 ...
//
// Which thread runs which item, and in which order, differs from run to run: the
// items of a stage must not depend on each other.
//
// Threads may have a place: a CPU to stay on and a share of the machine (a NUMA node). Each
// share has its own range of a stage's items. Its threads take these first and then help the
// other shares:
//
//   stage of 8 items, shares of 2 threads:   0 1 2 3 | 4 5 6 7
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

namespace ktx {

struct ThreadPlace {
  int cpu = -1;   // of the system's numbers; -1: wherever there is room
  int share = 0;  // from 0 on, below ThreadPool::kMaxShares
};

class ThreadPool {
 public:
  // Work in stages. Neither function may throw.
  class Job {
   public:
    virtual ~Job() = default;
    // Called by one thread when all items of earlier stages are done and their
    // results are visible. Returns the number of items, at most kMaxItems; 0
    // skips the stage. `thread` as for items.
    virtual int64_t begin_stage(int stage, int thread) = 0;
    // Items [end of share - 1, end of share) of the stage just begun are the share's:
    // rising, and `items` for the last share.
    virtual int64_t end_of_share(int64_t items, int share, int shares) {
      return items * (share + 1) / shares;
    }
    // Runs one item; `thread` is in [0, threads()), one item at a time each.
    virtual void run_item(int stage, int64_t item, int thread) = 0;
  };

  static constexpr int64_t kMaxItems = 1 << 22;
  static constexpr int kMaxStages = 1 << 16;
  static constexpr int kMaxThreads = 1024;
  static constexpr int kMaxShares = 64;

  // Starts threads - 1 helpers; numbers outside of [1, kMaxThreads] are moved into
  // it. When the system refuses to start a thread the team stays smaller.
  explicit ThreadPool(int threads);
  // One thread for each place; the caller's is the first, and is held there during
  // run() only. A CPU that may not be used is no failure.
  explicit ThreadPool(std::span<const ThreadPlace> places);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Threads that take part in a run, the caller's included.
  int threads() const;
  int shares() const;

  // Runs all stages and returns when the last item is done. Calls from several
  // threads take turns; a call from within an item is our bug.
  void run(Job& job, int stages);

  // Threads without work do not sleep before some milliseconds have passed, until the
  // object goes: for one who is going to have work again and again, each time after a wait
  // for another device (a GPU) that is shorter than it takes to wake them all.
  class Awake {
   public:
    explicit Awake(ThreadPool& pool);
    ~Awake();
    Awake(const Awake&) = delete;
    Awake& operator=(const Awake&) = delete;

   private:
    ThreadPool& pool_;
  };

  // One stage: body(item, thread) for every item in [0, items).
  template <class Body>
  void for_each(int64_t items, Body&& body) {
    // More items than a stage can count: neighbours share one.
    const int64_t grain = (items + kMaxItems - 1) / kMaxItems;
    struct ForEach final : Job {
      ForEach(int64_t items, int64_t grain, std::remove_reference_t<Body>& body)
          : items(items), grain(grain), body(body) {}
      int64_t begin_stage(int, int) override { return (items + grain - 1) / grain; }
      void run_item(int, int64_t item, int thread) override {
        const int64_t end = item * grain + grain < items ? item * grain + grain : items;
        for (int64_t i = item * grain; i < end; ++i) body(i, thread);
      }
      int64_t items, grain;
      std::remove_reference_t<Body>& body;
    };
    if (items <= 0) return;
    ForEach job(items, grain, body);
    run(job, 1);
  }

 private:
  struct Team;
  std::unique_ptr<Team> team_;
};

}  // namespace ktx
