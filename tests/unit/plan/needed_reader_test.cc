#include "lib/plan/needed_reader.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "lib/ops/fused_ops.h"
#include "tests/unit/plan/tiny_plan.h"

namespace ktx::plan {
namespace {

uint32_t with_step(StepOp op, size_t attrs_size) {
  PlanContents plan = make_tiny_plan().contents;
  StepRecord step = {};
  step.op = static_cast<uint32_t>(op);
  step.attrs_size = static_cast<uint32_t>(attrs_size);
  plan.steps.push_back(step);
  return needed_reader(plan);
}

uint32_t with_launch(FusedOp op) {
  PlanContents plan = make_tiny_plan().contents;
  LaunchRecord launch = {};
  launch.fused_op = static_cast<uint32_t>(op);
  plan.launches.push_back(launch);
  return needed_reader(plan);
}

TEST(NeededReader, APlanAsTheFirstFormatHadItIsReadByAll) {
  EXPECT_EQ(needed_reader(make_tiny_plan().contents), 0u);
  EXPECT_EQ(with_step(StepOp::Matmul, sizeof(MatmulAttrs)), 0u);
  EXPECT_EQ(with_step(StepOp::GroupExperts, GroupExpertsAttrs::kFirstBytes), 0u);
  EXPECT_EQ(with_launch(FusedOp::Experts), 0u);
}

TEST(NeededReader, EachRowIsFound) {
#define KTX_STEPS(minor, op) EXPECT_EQ(with_step(StepOp::op, 0), uint32_t{minor}) << #op;
#define KTX_ATTRIBUTE(minor, op, attribute)                                                       \
  EXPECT_EQ(with_step(StepOp::op, offsetof(AttrsOf<StepOp::op>, attribute) + 4), uint32_t{minor}) \
      << #op << " " << #attribute;
#define KTX_LAUNCHES(minor, op) EXPECT_EQ(with_launch(FusedOp::op), uint32_t{minor}) << #op;
#define KTX_FOUND(minor, function)
#include "lib/plan/needed_reader.def"
#undef KTX_FOUND
#undef KTX_LAUNCHES
#undef KTX_ATTRIBUTE
#undef KTX_STEPS
}

TEST(NeededReader, TheLatestThingCounts) {
  PlanContents plan = make_tiny_plan().contents;
  const std::byte within[1] = {};
  plan.drafter = within;
  EXPECT_EQ(needed_reader(plan), 3u);
  plan.facts.given_width = 1;
  EXPECT_EQ(needed_reader(plan), 4u);
  plan.facts.image.size = 1;
  EXPECT_EQ(needed_reader(plan), 9u);
}

}  // namespace
}  // namespace ktx::plan
