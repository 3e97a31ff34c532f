#include "lib/runtime/cpu/node_weights.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/unit/runtime/two_layer_plan.h"

namespace ktx::runtime {
namespace {

TEST(NodeWeights, EveryByteOfAProductsWeightHasOneShare) {
  const TinyPlan made;
  const auto file = plan::PlanFile::open(made.path());
  ASSERT_TRUE(file.ok());
  const plan::PlanView& plan = file->view();
  for (int shares : {2, 3}) {
    std::set<const std::byte*> seen;
    size_t total[3] = {};
    for (const NodeRun& run : split_weights(plan, shares)) {
      ASSERT_LT(run.share, shares);
      total[run.share] += run.bytes.size();
      for (const std::byte& byte : run.bytes) ASSERT_TRUE(seen.insert(&byte).second);
    }
    size_t weights = 0;
    std::set<uint32_t> blobs;
    for (const plan::StepRecord& step : plan.steps) {
      const auto op = static_cast<StepOp>(step.op);
      if (op != StepOp::Matmul && op != StepOp::ExpertsGateUp && op != StepOp::ExpertsDown)
        continue;
      for (uint32_t blob : plan.weights(step)) {
        if (blob != plan::kNone && blobs.insert(blob).second)
          weights += plan.blob_bytes(blob).size();
      }
    }
    EXPECT_EQ(seen.size(), weights);
    EXPECT_LE(total[0], weights / static_cast<size_t>(shares) + 64);
    EXPECT_GT(total[shares - 1], 0u);
  }
  EXPECT_TRUE(split_weights(plan, 1).empty());
  EXPECT_TRUE(split_weights(plan, 0).empty());
}

}  // namespace
}  // namespace ktx::runtime
