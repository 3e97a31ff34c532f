// Parts (partitions): consecutive steps for one device, which the host hands over in order.
//
//   part 0  cpu      embed
//   part 1  cuda:0   x from the CPU, attention, router; three values to the CPU
//   part 2  cuda:0   shared experts                          (queued behind part 1)
//   part 3  cpu      routed experts            waits for part 1, not for part 2
//   part 4  cuda:0   their sum from the CPU, the next layer ...
//
// Where two experts groups of the CPU follow each other, the first may need no more than an earlier
// part gave (deferred experts). So a part of the CPU ends where a step waits for later values of a
// GPU than the steps before it:
//
//   part 3  cuda:0   attention, router of layer 8
//   part 4  cpu      deferred experts of layer 7   needs nothing new: runs beside part 3
//   part 5  cpu      experts of layer 8            waits for part 3
//
// A GPU's part is queued and can be captured as a graph. It ends after values for the CPU, so that
// the CPU waits for these alone. Transfers from GPU to GPU are parts of their own. The last
// transfer, of a GPU's logits, is in no part, because the wanted rows differ from run to run
// (lib/runtime/gpu/gpu_logits.h).
//
// Where GPUs compute a layer together, each adds up what all of them have (all_reduce). That is a
// part of its own, so that it can be kernels over each other's memory within one graph of a GPU's
// parts, or copies:
//
//   part 1  cuda:0   attention of its heads, its part of o
//   part 2  cuda:1   the same of its own
//   part 3  reduce   x of cuda:0
//   part 4  reduce   x of cuda:1
//   part 5  cuda:0   its part of the feed-forward network ...
//
// Where a model runs on several hosts, values go from the CPU of one to that of another. Such
// transfers are parts as well, of the network; those of one boundary follow each other:
//
//   part 0  cpu      embed, layers 0 to 15
//   part 1  network  x from cpu to b/cpu
//   part 2  b/cpu    layers 16 to 31
//   part 3  network  x from b/cpu to cpu
//   part 4  cpu      head
#pragma once

#include <string>
#include <vector>

#include "lib/program/program.h"

namespace ktx::program {

std::vector<Part> cut_parts(const Program& program);

// What steps of the CPU wait for, in runs of transfers to the CPU that follow each other, counted
// from 1.
struct CpuWaits {
  std::vector<int32_t> before;  // by step: how many runs have begun before it
  // By step of the CPU: the last run that it, or a step of the CPU's part before it, is made of; 0:
  // none. 0 of other steps.
  std::vector<int32_t> run;
  // Whether the CPU's part ends before this step.
  bool later(size_t step) const {
    return step > 0 && run[step - 1] > 0 && run[step] > run[step - 1];
  }
};
CpuWaits find_cpu_waits(const Program& program);

// Whose work a step is, as a part of that step alone.
Part part_of(const Program& program, const std::vector<std::string>& value_devices, int32_t step);

// Whether the last step is the transfer of a GPU's logits to the CPU.
bool ends_with_logits(const Program& program);

}  // namespace ktx::program
