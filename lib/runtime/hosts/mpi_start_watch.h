// Notices processes that are ended, or stand still, while MPI starts: MPI_Init waits for all of
// them without end and without a name. After it host_group.h watches.
//
// Processes publish signs of life with mpirun by PMIx (the interface by which MPI itself is
// started; https://pmix.github.io/standard, Publish and Lookup), twice a second, from a thread of
// their own. One whose signs no longer come is missing; one without any sign yet has longer, since
// its program may still be read over a network. Without PMIx (MPICH, an Open MPI with one of its
// own), or where mpirun publishes nothing, there is no watch.
//
// Part of the library ktx-mpi.so.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lib/runtime/hosts/open_mpi.h"

namespace ktx::runtime {

class MpiStartWatch {
 public:
  // `missing` is called on one process of those that wait; then mpirun ends all.
  explicit MpiStartWatch(RanksMissing missing);
  // MPI has started on this process.
  ~MpiStartWatch();

 private:
  // What is known of a process.
  struct Process {
    int signs = 0;      // that have been seen
    int heard = 0;      // look at which the last one was seen
    bool over = false;  // MPI has started there
  };
  class Board;  // where signs are published

  void watch();
  std::vector<int> missing(int look) const;

  const RanksMissing missing_;
  std::unique_ptr<Board> board_;  // null: no watch
  std::vector<Process> processes_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool started_ = false;
  std::thread thread_;
};

}  // namespace ktx::runtime
