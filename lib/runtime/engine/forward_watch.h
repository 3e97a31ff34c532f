// Observes the progress of a pass through the steps, and may cancel it.
//
// A cancelled pass leaves its sequences as they were, with undefined entries in the cache
// behind their lengths; those are written again before they are read. On the CPU a pass ends
// within an item of work (well below a millisecond); work queued on a GPU is awaited.
#pragma once

#include <atomic>
#include <functional>

namespace ktx::runtime {

struct ForwardWatch {
  const std::atomic<bool>* stop = nullptr;  // true: the pass ends; null: never
  // The share that is done, from 0 to 1; called by any of the engine's threads, one at a
  // time, some hundred times a pass. May be empty.
  std::function<void(double share)> progress;

  const std::atomic<bool>* failed =
      nullptr;  // true: a host is lost, and the pass ends; null: never

  bool stopped() const {
    return (stop && stop->load(std::memory_order_relaxed)) ||
           (failed && failed->load(std::memory_order_relaxed));
  }
};

}  // namespace ktx::runtime
