#include "lib/runtime/cpu/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "kernels/kernel_id.h"
#include "lib/plan/memory.h"
#include "lib/runtime/cpu/cpu_step.h"
#include "tests/unit/runtime/two_layer_plan.h"

namespace ktx::runtime {
namespace {

// The tiny plan bound by hand, so that its stages can be looked at and replaced.
struct Bound {
  explicit Bound(const std::string& path, int threads, int shares = 1)
      : file(plan::PlanFile::open(path).take()), pool(places(threads, shares)) {
    layout = plan::lay_out_arena(file->program->buffers, kTokens, kTokens).take();
    arena = Arena::allocate(layout.total_bytes, "activations").take();
    kv = KvPools::create(file->program->kv_slots, plan::KvType::F16, {2, 0}).take();
    bound = bind(file.view(), kv,
                 {.arena = arena.data(),
                  .buffer_offsets = layout.offsets,
                  .isa = detect_isa(),
                  .threads = threads})
                .take();
  }

  std::vector<float> logits(Executor& executor) {
    KvTables tables;
    EXPECT_TRUE(kv.grow(tables, kTokens));
    Batch batch;
    batch.tokens = batch.outputs = kTokens;
    batch.tables.whole = {tables.whole.data()};
    for (int32_t i = 0; i < kTokens; ++i) {
      batch.ids.push_back(i * 7 % static_cast<int32_t>(kTinyVocab));
      batch.position.push_back(i);
      batch.sequence.push_back(0);
      batch.output_rows.push_back(i);
    }
    const Status done = executor.run(batch);
    EXPECT_TRUE(done.ok()) << done.error().message;
    const plan::ValueRecord& value = file->values[file->facts.logits_value];
    const auto* data = reinterpret_cast<const float*>(arena.data() + layout.offsets[value.buffer]);
    return {data, data + kTokens * kTinyVocab};
  }

  static std::vector<ThreadPlace> places(int threads, int shares) {
    std::vector<ThreadPlace> all;
    for (int thread = 0; thread < threads; ++thread) all.push_back({-1, thread % shares});
    return all;
  }

  static constexpr int64_t kTokens = 75;
  plan::PlanFile file;
  ThreadPool pool;
  plan::ArenaLayout layout;
  Arena arena;
  KvPools kv;
  BoundPlan bound;
};

std::vector<Stage> one_step_each(size_t steps) {
  std::vector<Stage> stages;
  for (size_t i = 0; i < steps; ++i) stages.push_back({{}, {{static_cast<int32_t>(i)}}});
  return stages;
}

TEST(Executor, StagesGiveTheBitsOfStepsOneByOne) {
  for (const DType dtype : {DType::F32, DType::Q8_0, DType::Q4_0}) {
    const TinyPlan plan(dtype);
    for (int threads : {1, 3}) {
      Bound apart(plan.path(), 1), grouped(plan.path(), threads);
      const size_t steps = apart.bound.steps.size();
      EXPECT_LT(grouped.bound.stages.size(), steps * 3 / 4);
      apart.bound.stages = one_step_each(steps);
      Executor one = Executor::create(std::move(apart.bound), apart.pool).take();
      Executor all = Executor::create(std::move(grouped.bound), grouped.pool).take();
      const std::vector<float> expected = apart.logits(one), got = grouped.logits(all);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
          << name(dtype) << ", " << threads << " threads";
    }
  }
}

TEST(Executor, SharesOfNodesChangeNoBit) {
  for (const DType dtype : {DType::Q8_0, DType::Q4_0}) {
    const TinyPlan plan(dtype);
    Bound one(plan.path(), 1);
    Executor alone = Executor::create(std::move(one.bound), one.pool).take();
    const std::vector<float> expected = one.logits(alone);
    for (int shares : {2, 3}) {
      Bound nodes(plan.path(), 4, shares);
      Executor executor = Executor::create(std::move(nodes.bound), nodes.pool).take();
      const std::vector<float> got = nodes.logits(executor);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
          << name(dtype) << ", " << shares << " nodes";
    }
  }
}

// Passes that a first host sends have neither.
TEST(CpuSteps, TokensWithoutAxesOrRowsOfImagesAreRefused) {
  const TinyPlan plan;
  const Bound bound(plan.path(), 1);
  const auto& steps = bound.file->program->steps;
  const auto rope = std::ranges::find(steps, StepOp::Rope, &program::Step::op);
  ASSERT_NE(rope, steps.end());
  const RopeAttrs attrs = std::get<RopeAttrs>(rope->attrs);
  RopeGridAttrs grid;
  grid.heads = attrs.heads, grid.head_dim = grid.rotary_dim = attrs.head_dim;
  const auto fault_of = [&](StepOp op, const StepAttrs& of, const Batch& batch) {
    program::Step step = *rope;
    step.op = op, step.attrs = of;
    step.kernels.fill(
        std::string(kernels::kernel_family(op, kernels::Precision::Exact, DType::F32)));
    const BindContext context{.plan = bound.file.view(),
                              .step = step,
                              .arena = bound.arena.data(),
                              .buffer_offsets = bound.layout.offsets,
                              .kv = bound.kv,
                              .isa = detect_isa()};
    const auto made = cpu_op(op)(context);
    EXPECT_TRUE(made.ok()) << made.error().message;
    const StepWork work = (*made)->begin(batch);
    return std::string(work.fault ? work.fault : "");
  };
  Batch batch;
  batch.tokens = 3;
  EXPECT_EQ(fault_of(StepOp::RopeGrid, grid, batch), "tokens without positions by line and column");
  EXPECT_EQ(fault_of(StepOp::GivenRows, GivenRowsAttrs{0}, batch),
            "tokens without room for rows of images");
  for (std::vector<int32_t>& axis : batch.axes) axis.resize(3);
  batch.given_row.resize(3, -1);
  EXPECT_EQ(fault_of(StepOp::RopeGrid, grid, batch), "");
  EXPECT_EQ(fault_of(StepOp::GivenRows, GivenRowsAttrs{0}, batch), "");
}

TEST(Executor, TimesOfStepsAddUpToThoseOfTheRun) {
  const TinyPlan plan;
  Bound bound(plan.path(), 2);
  Executor executor = Executor::create(std::move(bound.bound), bound.pool).take();
  executor.enable_times(true);
  const Timer timer;
  bound.logits(executor);
  const double wall = timer.seconds();
  double sum = 0;
  int64_t bytes = 0;
  for (const StepTotals& time : executor.times()) {
    EXPECT_EQ(time.runs, 1);
    EXPECT_GT(time.seconds, 0);
    sum += time.seconds;
    bytes += time.weight_bytes;
  }
  EXPECT_LE(sum, wall);
  EXPECT_EQ(bytes, executor.weight_bytes());
}

}  // namespace
}  // namespace ktx::runtime
