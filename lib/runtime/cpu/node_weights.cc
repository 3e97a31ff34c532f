#include "lib/runtime/cpu/node_weights.h"

#include "lib/program/program.h"

namespace ktx::runtime {
namespace {

// How many matrices of the blob are cut one by one; 0: the step reads all of it
// everywhere, or hardly any.
int64_t cut_matrices(StepOp op, const program::Blob& blob) {
  if (op == StepOp::Matmul || op == StepOp::MatmulHeads) return 1;
  const bool experts = op == StepOp::ExpertsGateUp || op == StepOp::ExpertsDown;
  return experts ? blob.matrices : 0;
}

}  // namespace

std::vector<NodeRun> split_weights(const plan::PlanView& plan, int shares) {
  std::vector<NodeRun> runs;
  if (shares < 2) return runs;
  std::vector<bool> seen(plan.program->blobs.size(), false);
  for (const program::Step& step : plan.program->steps) {
    if (step.device != "cpu") continue;
    for (const program::BlobId blob : step.weights) {
      if (blob == program::kAbsent || seen[blob]) continue;
      const int64_t matrices = cut_matrices(step.op, plan.program->blobs[blob]);
      if (matrices == 0) continue;
      seen[blob] = true;
      const std::span<const std::byte> bytes = plan.blob_bytes(blob);
      const size_t each = bytes.size() / static_cast<size_t>(matrices);
      for (int64_t m = 0; m < matrices; ++m) {
        const auto matrix = bytes.subspan(static_cast<size_t>(m) * each, each);
        size_t begin = 0;
        for (int share = 0; share < shares; ++share) {
          const size_t end = each * static_cast<size_t>(share + 1) / static_cast<size_t>(shares);
          if (end > begin) runs.push_back({matrix.subspan(begin, end - begin), share});
          begin = end;
        }
      }
    }
  }
  return runs;
}

}  // namespace ktx::runtime
