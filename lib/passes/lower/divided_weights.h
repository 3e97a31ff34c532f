// Weights and KV slots of layers that several GPUs compute together (split_steps.cc): of each GPU
// its part, or a copy.
//
//   blk.0.attn_q.weight@cuda:0       rows 0 to 2047 for cuda:0, 2048 to 4095 for cuda:1
//   blk.0.attn_output.weight@cuda:0  the first half of each row, the second half
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "lib/program/program.h"

namespace ktx::passes {

class DividedWeights {
 public:
  // Rows, or of a vector its elements; parts of all rows; all of it.
  enum class How { Rows, Columns, Whole };

  DividedWeights(program::Program& program, const std::vector<std::string>& team)
      : program_(program), team_(team) {}

  // The part of `whole` that GPU number `gpu` of the team has; kAbsent of kAbsent. Rows and columns
  // come out even (divided_units.h).
  program::BlobId of_gpu(program::BlobId whole, size_t gpu, How how);
  // The slot with this GPU's heads of slot `slot`.
  int32_t slot_of(int32_t slot, size_t gpu);
  // Takes out the blobs that no step reads: those that were divided.
  void drop_unused();

 private:
  program::Program& program_;
  const std::vector<std::string>& team_;
  std::map<std::tuple<program::BlobId, size_t, How>, program::BlobId> parts_;  // by the whole
  std::map<int32_t, std::vector<int32_t>> slots_;  // of each KV slot, by GPU
};

}  // namespace ktx::passes
