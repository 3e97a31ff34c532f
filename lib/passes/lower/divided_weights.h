// Weights, KV slots and states of layers that several GPUs compute together (split_steps.cc): each
// GPU has its part, or a copy.
//
//   blk.0.attn_q.weight@cuda:0       rows 0 to 2047 for cuda:0, 2048 to 4095 for cuda:1
//   blk.0.attn_output.weight@cuda:0  the first half of each row, the second half
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "lib/passes/lower/division.h"
#include "lib/program/program.h"

namespace ktx::passes {

class DividedWeights {
 public:
  DividedWeights(program::Program& program, const std::vector<std::string>& team);

  // What GPU `gpu` of the team has of blob `whole`, by the kind of part; kAbsent for kAbsent.
  program::BlobId copy(program::BlobId whole, size_t gpu);
  // A run of elements of each row, which is one of equal pieces of the row (divided_units.h).
  program::BlobId columns(program::BlobId whole, size_t gpu, const Run& run);
  // Rows, or the elements of a vector.
  program::BlobId rows(program::BlobId whole, size_t gpu, const Division& division);
  // An equal part of the matrices.
  program::BlobId matrices(program::BlobId whole, size_t gpu);
  // The slot with this GPU's heads of slot `slot`, a copy where it has one head.
  int32_t slot(int32_t slot, size_t gpu);
  // The state of this GPU's step, whose whole is state `state`.
  int32_t state(int32_t state, size_t gpu);
  // Takes out the blobs that no step reads: those that were divided.
  void drop_unused();

 private:
  enum class How { Copy, Columns, Rows, Matrices };
  int64_t gpus() const { return static_cast<int64_t>(team_.size()); }
  template <class Cut>
  program::BlobId part(program::BlobId whole, size_t gpu, How how, const Cut& cut,
                       int64_t piece = 0);

  program::Program& program_;
  const std::vector<std::string>& team_;
  // By the whole; the piece of a row.
  std::map<std::tuple<program::BlobId, size_t, How, int64_t>, program::BlobId> parts_;
  std::map<int32_t, std::vector<int32_t>> slots_;   // of each KV slot, by GPU
  std::map<int32_t, std::vector<int32_t>> states_;  // of each state, by GPU
  int32_t next_state_ = 0;
};

}  // namespace ktx::passes
