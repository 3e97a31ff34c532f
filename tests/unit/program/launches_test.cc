// Choice and check of launches on a small program of steps: norm, gate, up, activation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "lib/formats/layout.h"
#include "lib/program/find_fused.h"
#include "lib/program/forwards_in_flight.h"
#include "lib/program/launch_choice.h"
#include "lib/program/parts.h"
#include "lib/program/verify_launches.h"

namespace ktx::program {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kHidden = 512, kWide = 1024;

Step step(StepOp op, std::vector<int32_t> in, std::vector<int32_t> out,
          std::vector<BlobId> weights = {}) {
  Step made;
  made.op = op;
  made.device = "cuda:0";
  const auto width = [](int32_t value) { return value <= 1 ? kHidden : kWide; };
  for (int32_t value : in) made.inputs.push_back({value, 0, width(value)});
  for (int32_t value : out) made.outputs.push_back({value, 0, width(value)});
  made.weights = std::move(weights);
  made.attrs = default_attrs(op);
  if (auto* norm = std::get_if<RmsNormAttrs>(&made.attrs)) norm->groups = 1;
  return made;
}

Value value(int32_t buffer, int64_t width) {
  return {.name = "v", .width = width, .buffer = buffer};
}

Blob blob(DType dtype, Layout layout, int64_t rows) {
  Blob made;
  made.dtype = dtype;
  made.layout = layout;
  made.rows = rows;
  made.cols = kHidden;
  return made;
}
constexpr BlobId kNorm = 0, kGate = 1, kUp = 2, kOtherNorm = 3;

// Values: 0 x, 1 n, 2 gate, 3 up.
Program gate_up_program() {
  Program program;
  program.values = {value(0, kHidden), value(1, kHidden), value(2, kWide), value(3, kWide)};
  const Blob norm = blob(DType::F32, Layout::Rows, 1);
  const Blob product = blob(DType::Q4_K, Layout::Marlin, kWide);
  program.blobs = {norm, product, product, norm};
  program.steps = {
      step(StepOp::RmsNorm, {0}, {1}, {kNorm}),
      step(StepOp::Matmul, {1}, {2}, {kGate}),
      step(StepOp::Matmul, {1}, {3}, {kUp}),
      step(StepOp::Glu, {2, 3}, {3}),
  };
  return program;
}

std::vector<Part> whole_gpu(const Program& program) {
  return {{.kind = Part::Kind::Gpu,
           .device = "cuda:0",
           .from = "",
           .first_step = 0,
           .step_count = static_cast<int32_t>(program.steps.size())}};
}

// With what the passes decide for it.
Program chosen(Program program, const Preferences& preferences = {}) {
  program.parts = whole_gpu(program);
  program.groups =
      find_fused(program, Uses(program), 0, static_cast<int32_t>(program.steps.size()));
  program.launches = choose_launches(program, kernels::gpu_generations(), preferences);
  return program;
}

// "kernel least-most" of the launches of these steps that a machine takes, in order.
std::vector<std::string> on(const Program& program, const std::vector<int32_t>& steps, int sm,
                            uint32_t has) {
  std::vector<std::string> out;
  for (const Launch& launch : program.launches) {
    if (launch.steps != steps || sm < launch.least_sm || sm > launch.most_sm ||
        (launch.needs & ~has) != 0) {
      continue;
    }
    const bool any = launch.most_tokens == kernels::kAnyRows;
    out.push_back(launch.kernel + " " + std::to_string(launch.least_tokens) + "-" +
                  (any ? "" : std::to_string(launch.most_tokens)));
  }
  return out;
}

TEST(Launches, AGroupIsFoundAndGetsAKernelForOneAndForFewTokens) {
  const Program program = chosen(gate_up_program());
  ASSERT_EQ(program.groups.size(), 1u);
  EXPECT_EQ(program.groups[0].op, FusedOp::GateUp);
  const std::vector<int32_t> all = {0, 1, 2, 3};
  EXPECT_EQ(program.groups[0].steps, all);
  EXPECT_THAT(on(program, all, 90, 0), ElementsAre("gate_up_gemv 1-1", "gate_up_skinny_gemm 2-96"));
  EXPECT_THAT(
      on(program, all, 90, kernels::kNeedsWgmma),
      ElementsAre("gate_up_gemm_wgmma 33-2047", "gate_up_gemv 1-1", "gate_up_skinny_gemm 2-96"));
  EXPECT_THAT(on(program, all, 80, 0), ElementsAre("gate_up_gemv 1-1"));
}

TEST(Launches, AProductsKernelFollowsTokensGenerationAndWhatTheMachineHas) {
  const Program program = chosen(gate_up_program());
  EXPECT_THAT(on(program, {1}, 75, 0), ElementsAre("marlin_gemv 1-1", "marlin_few_gemm 2-"));
  // 4 strips of 256 rows for 108 SMs: 81 blocks, 21 times 64 tokens.
  EXPECT_THAT(on(program, {1}, 80, 0),
              ElementsAre("marlin_gemv 1-1", "marlin_gemm_mma 1281-", "marlin_few_gemm 2-1280"));
  EXPECT_THAT(
      on(program, {1}, 90, kernels::kAllKernelNeeds),
      ElementsAre("cublas_gemm 2048-", "marlin_gemm_wgmma 33-", "marlin_gemv 1-1",
                  "marlin_skinny_gemm 2-96", "marlin_gemm_mma 1537-", "marlin_few_gemm 97-1536"));
  const Program alone = chosen(gate_up_program(), *parse_preferences("cublas=no,fused=no"));
  EXPECT_THAT(on(alone, {1}, 90, kernels::kNeedsCublas),
              ElementsAre("marlin_gemv 1-1", "marlin_skinny_gemm 2-96", "marlin_gemm_mma 1537-",
                          "marlin_few_gemm 97-1536"));
  EXPECT_TRUE(on(alone, {0, 1, 2, 3}, 90, 0).empty());
}

TEST(Launches, WordsThatAreNoPreferenceAreRefused) {
  const auto refused = parse_preferences("mla=absorb");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "unknown preference 'mla=absorb'; did you mean 'mla=absorbed'?; there are "
            "mla=absorbed, mla=expanded, cublas=no, fused=no, stream-experts=no, joint-experts=no, "
            "stream-experts=N, joint-experts=N");
}

TEST(Launches, WhatIsChosenPassesTheCheck) {
  const Program program = chosen(gate_up_program());
  EXPECT_TRUE(verify_parts(program).ok());
  EXPECT_TRUE(verify_groups(program).ok());
  const Status checked = verify_launches(program);
  EXPECT_TRUE(checked.ok()) << (checked.ok() ? "" : checked.error().message);
}

struct Damage {
  const char* name;
  const char* message;
  std::function<void(std::vector<Launch>&)> change;
};
Launch& group_of(std::vector<Launch>& launches) {
  return *std::find_if(launches.begin(), launches.end(),
                       [](const Launch& launch) { return launch.op.has_value(); });
}
const Damage kDamages[] = {
    {"UnknownKernel", "no GPU kernel 'fast'", [](auto& l) { l[0].kernel = "fast"; }},
    {"KernelOfAnotherOp", "kernel gpu_rope for op rms_norm",
     [](auto& l) { l[0].kernel = "gpu_rope"; }},
    {"StepsOutOfRange", "step 9 after -1 of 4 steps", [](auto& l) { l[0].steps = {9}; }},
    {"NegativeStep", "step -3 after -1 of 4 steps", [](auto& l) { l[0].steps = {-3}; }},
    {"TwoStepsWithoutAnOp", "2 steps, and no fused op",
     [](auto& l) {
       l[0].steps = {0, 1};
     }},
    {"NoSteps", "a launch has no steps", [](auto& l) { l[0].steps.clear(); }},
    {"TooManyRows", "cannot take 5 rows",
     [](auto& l) {
       for (Launch& launch : l) {
         if (launch.kernel == "marlin_gemv") launch.most_tokens = 5;
       }
     }},
    {"NoRows", "tokens 0 to 1", [](auto& l) { l[0].least_tokens = 0, l[0].most_tokens = 1; }},
    {"AnotherGeneration", "kernel cublas_gemm for sm_75",
     [](auto& l) {
       for (Launch& launch : l) {
         if (launch.kernel == "cublas_gemm") launch.least_sm = 75;
       }
     }},
    {"ANeedLess", "kernel cublas_gemm with needs 0x0",
     [](auto& l) {
       for (Launch& launch : l) {
         if (launch.kernel == "cublas_gemm") launch.needs = 0;
       }
     }},
    {"AGroupWithoutItsNorm", "is in two groups",
     [](auto& l) {
       group_of(l).steps = {1, 2, 3};
     }},
    {"AGroupThatIsNone", "are no products",
     [](auto& l) {
       group_of(l).op = FusedOp::Products;
       group_of(l).kernel = "products_gemv";
     }},
    {"RunsOfASingleStep", "which kernel gpu_rms_norm does not tell apart",
     [](auto& l) { l[0].least_run = 64; }},
    {"AStepWithoutAKernel", "has no kernel for some number of rows",
     [](auto& l) {
       std::erase_if(l, [](const Launch& launch) { return launch.kernel == "marlin_few_gemm"; });
     }},
};

class DamagedLaunches : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedLaunches, AreRefused) {
  Program program = chosen(gate_up_program());
  GetParam().change(program.launches);
  const Status checked = verify_launches(program);
  ASSERT_FALSE(checked.ok());
  EXPECT_THAT(checked.error().message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(All, DamagedLaunches, ::testing::ValuesIn(kDamages),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Launches, AGroupWhoseBufferIsUsedInBetweenIsNone) {
  Program program = gate_up_program();
  // A step between gate and the activation writes what the activation writes.
  program.steps.insert(program.steps.begin() + 2, step(StepOp::RmsNorm, {0}, {3}, {kOtherNorm}));
  EXPECT_TRUE(find_fused(program, Uses(program), 0, 5).empty());
  EXPECT_FALSE(is_fused(program, Uses(program), 0, 5, {FusedOp::GateUp, {0, 1, 3, 4}}));
}

// x = add(x, rms_norm(o)), where a step may stand between the two.
Program post_norm_program(std::optional<Step> between = {}) {
  Program program = gate_up_program();
  program.steps = {step(StepOp::RmsNorm, {1}, {2}, {kNorm}), step(StepOp::Add, {0, 2}, {0}, {})};
  if (between) program.steps.insert(program.steps.begin() + 1, *between);
  return program;
}
size_t groups_of(const Program& program) {
  return find_fused(program, Uses(program), 0, static_cast<int32_t>(program.steps.size())).size();
}

TEST(Launches, APostNormIsAddedToTheResidualAtOnce) {
  const Program program = chosen(post_norm_program());
  ASSERT_EQ(program.groups.size(), 1u);
  EXPECT_EQ(program.groups[0].op, FusedOp::NormAdd);
  EXPECT_THAT(on(program, {0, 1}, 75, 0), ElementsAre("gpu_norm_add 1-"));
}

TEST(Launches, APostNormThatOthersReadOrThatIsAddedLaterStaysAStep) {
  const Step other = step(StepOp::RmsNorm, {3}, {0}, {kNorm});
  EXPECT_EQ(groups_of(post_norm_program(other)), 0u) << "writes the residual in between";
  Step reader = other;
  reader.inputs[0].value = 2;
  reader.outputs[0].value = 3;
  EXPECT_EQ(groups_of(post_norm_program(reader)), 0u) << "reads the norm";
  reader.inputs[0].value = 0;
  reader.outputs[0].value = 1;
  EXPECT_EQ(groups_of(post_norm_program(reader)), 0u) << "writes what the norm reads";
  Program twice = post_norm_program();
  twice.steps[1].inputs[0].value = 2;
  EXPECT_EQ(groups_of(twice), 0u) << "the norm is the residual";
  Program over = post_norm_program();
  over.steps[1].outputs[0].value = 1;
  EXPECT_EQ(groups_of(over), 0u) << "written over what other threads still read";
}

// x += experts(n), x += sigmoid(score . n) * (down . glu(gate . n, up . n)), with 32 experts of 512
// by 512 and two of them for a token. Values: 0 x, 1 n, then as named.
enum Of { kX, kN, kLogits, kIds, kWeights, kOrder, kOffsets, kHiddenOf, kOut, kScore, kG, kU };
Program shared_experts_program(DType shared = DType::Q4_K) {
  Program program;
  for (int32_t v = kX; v <= kU; ++v) program.values.push_back(value(v, kHidden));
  program.values[kLogits].width = 32;
  program.values[kIds].width = program.values[kWeights].width = program.values[kOrder].width = 2;
  program.values[kScore].width = 1;
  program.values[kHiddenOf].width = 2 * kHidden;
  Blob experts = blob(DType::Q4_K, Layout::Marlin, kHidden);
  experts.matrices = 32;
  program.blobs = {experts, blob(shared, Layout::Marlin, kHidden),
                   blob(DType::F32, Layout::Rows, 1)};
  const auto add = [&](StepOp op, std::vector<int32_t> in, std::vector<int32_t> out,
                       std::vector<BlobId> weights, StepAttrs attrs) {
    program.steps.push_back(step(op, std::move(in), std::move(out), std::move(weights)));
    Step& made = program.steps.back();
    made.attrs = attrs;
    for (auto* views : {&made.inputs, &made.outputs}) {
      for (View& view : *views) {
        if (view.value != kAbsent) view.width = program.values[view.value].width;
      }
    }
  };
  RouterAttrs router;
  router.experts = 32;
  router.top_k = 2;
  add(StepOp::Router, {kLogits}, {kIds, kWeights}, {}, router);
  add(StepOp::GroupExperts, {kIds}, {kOrder, kOffsets}, {}, GroupExpertsAttrs{32, 2});
  add(StepOp::ExpertsGateUp, {kN, kAbsent, kOrder, kOffsets}, {kHiddenOf}, {0, 0},
      ExpertsAttrs{32, 2});
  add(StepOp::ExpertsDown, {kHiddenOf, kAbsent, kOrder, kOffsets, kWeights}, {kX}, {0},
      ExpertsAttrs{32, 2, 1});
  add(StepOp::Matmul, {kN}, {kG}, {1}, MatmulAttrs{});
  add(StepOp::Matmul, {kN}, {kU}, {1}, MatmulAttrs{});
  add(StepOp::Glu, {kG, kU}, {kU}, {}, GluAttrs{});
  add(StepOp::Matmul, {kU}, {kOut}, {1}, MatmulAttrs{});
  add(StepOp::Matmul, {kN}, {kScore}, {2}, MatmulAttrs{});
  add(StepOp::SigmoidScale, {kOut, kScore}, {kOut}, {}, NoAttrs{});
  add(StepOp::Add, {kX, kOut}, {kX}, {}, NoAttrs{});
  return program;
}
std::vector<FusedOp> ops_of(const Program& program) {
  std::vector<FusedOp> ops;
  for (const FusedGroup& group : program.groups) ops.push_back(group.op);
  return ops;
}

TEST(Launches, ASharedExpertIsOneMoreChoiceOfFewTokens) {
  const Program program = chosen(shared_experts_program());
  EXPECT_THAT(ops_of(program),
              ElementsAre(FusedOp::Experts, FusedOp::GateUp, FusedOp::SharedExperts));
  EXPECT_THAT(on(program, {0, 1, 2, 3}, 90, 0), ElementsAre("experts_gemv 1-4"));
  EXPECT_THAT(on(program, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 90, 0),
              ElementsAre("shared_experts_gemv 1-4"));
  const Status checked = verify_launches(program);
  EXPECT_TRUE(checked.ok()) << (checked.ok() ? "" : checked.error().message);
}

TEST(Launches, ASharedExpertWithoutAScoreIsOneToo) {
  Program program = shared_experts_program();
  program.steps.erase(program.steps.begin() + 8, program.steps.begin() + 10);
  EXPECT_THAT(on(chosen(program), {0, 1, 2, 3, 4, 5, 6, 7, 8}, 90, 0),
              ElementsAre("shared_experts_gemv 1-4"));
}

TEST(Launches, ASharedExpertOfAnotherFormatOrActivationIsLaunchedByItself) {
  const std::vector<int32_t> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_TRUE(on(chosen(shared_experts_program(DType::Q6_K)), all, 90, 0).empty());
  Program program = shared_experts_program();
  std::get<GluAttrs>(program.steps[6].attrs).limit = 7;
  EXPECT_TRUE(on(chosen(program), all, 90, 0).empty());
}

TEST(Launches, ASharedExpertThatBuffersKeepApartIsNoChoice) {
  for (const auto& [one, other] : {std::pair(kHiddenOf, kU), {kScore, kLogits}, {kU, kN}}) {
    Program program = shared_experts_program();
    program.values[one].buffer = program.values[other].buffer;
    const auto ops = ops_of(chosen(program));
    EXPECT_EQ(std::ranges::count(ops, FusedOp::SharedExperts), 0) << one << " in " << other;
  }
  Program program = shared_experts_program();
  program.steps[4].inputs[0].value = kX;  // reads what the experts have added to
  EXPECT_EQ(std::ranges::count(ops_of(chosen(program)), FusedOp::SharedExperts), 0);
}

// Two norms side by side in one value, which a product reads (before a prediction layer).
TEST(Launches, ANormOfAPartOfItsValueStaysAStep) {
  Program program = gate_up_program();
  program.steps.resize(2);
  EXPECT_EQ(groups_of(program), 1u);
  program.values[1].width = 2 * kHidden;
  program.steps[1].inputs[0].width = 2 * kHidden;
  EXPECT_EQ(groups_of(program), 0u);
}

TEST(Parts, MustHoldAllStepsOnTheirDevices) {
  Program program = gate_up_program();
  std::vector<Part>& parts = program.parts = cut_parts(program);
  ASSERT_EQ(parts, whole_gpu(program));
  parts[0].step_count = 3;
  EXPECT_THAT(verify_parts(program).error().message, HasSubstr("end at step 3 of 4"));
  parts[0].step_count = 5;
  EXPECT_THAT(verify_parts(program).error().message, HasSubstr("steps 0 to 5 of 4"));
  parts = whole_gpu(program);
  parts[0].device = "cuda:1";
  EXPECT_THAT(verify_parts(program).error().message, HasSubstr("part 0 is for cuda:1"));
  parts[0].kind = Part::Kind::Cpu;
  EXPECT_FALSE(verify_parts(program).ok());
}

// Steps with one input and one output each.
Program chain(const std::vector<std::tuple<StepOp, const char*, int32_t, int32_t>>& steps) {
  Program program;
  for (const auto& [op, device, in, out] : steps) {
    program.steps.push_back(step(op, {in}, {out}));
    program.steps.back().device = device;
    program.values.resize(std::max<size_t>(program.values.size(), static_cast<size_t>(out) + 1),
                          value(kAbsent, kHidden));
  }
  return program;
}

// Value 2 is of one layer, value 4 of the next: the rest of the first layer (from value 3) needs
// nothing that the second has made.
TEST(Parts, OfTheCpuEndWhereAStepWaitsForLaterValues) {
  const Program program = chain({{StepOp::Softcap, "cuda:0", 0, 1},
                                 {StepOp::Transfer, "cpu", 1, 2},
                                 {StepOp::Softcap, "cpu", 2, 3},
                                 {StepOp::Softcap, "cuda:0", 1, 4},
                                 {StepOp::Transfer, "cpu", 4, 5},
                                 {StepOp::Softcap, "cpu", 3, 6},
                                 {StepOp::Softcap, "cpu", 6, 7},
                                 {StepOp::Softcap, "cpu", 5, 8},
                                 {StepOp::Softcap, "cpu", 3, 9},
                                 {StepOp::Transfer, "cuda:0", 7, 10}});
  const CpuWaits waits = find_cpu_waits(program);
  EXPECT_THAT(waits.before, ElementsAre(0, 0, 1, 1, 1, 2, 2, 2, 2, 2));
  EXPECT_THAT(waits.run, ElementsAre(0, 0, 1, 0, 0, 1, 1, 2, 2, 0));
  std::vector<std::pair<std::string, int32_t>> found;
  for (const Part& part : cut_parts(program)) found.emplace_back(part.device, part.step_count);
  EXPECT_THAT(found,
              ElementsAre(std::pair("cuda:0", 2), std::pair("cpu", 1), std::pair("cuda:0", 2),
                          std::pair("cpu", 2), std::pair("cpu", 2), std::pair("cuda:0", 1)));
}

// A layer on a GPU of each of two hosts, and what follows on the first one.
TEST(ForwardsInFlight, AreAsManyAsHostsWhereTheFirstOneNeedsNothingOfBefore) {
  Program program = chain({{StepOp::Softcap, "cuda:0", 0, 1},
                           {StepOp::Transfer, "cpu", 1, 2},
                           {StepOp::Transfer, "b/cpu", 2, 3},
                           {StepOp::Transfer, "b/cuda:0", 3, 4},
                           {StepOp::Softcap, "b/cuda:0", 4, 5},
                           {StepOp::Transfer, "b/cpu", 5, 6},
                           {StepOp::Transfer, "cpu", 6, 7},
                           {StepOp::Softcap, "cpu", 7, 8}});
  program.steps[0].layer = 0;
  program.steps[4].layer = 1;
  const auto in_flight = [](Program steps) {
    steps.parts = cut_parts(steps);
    return forwards_in_flight(steps);
  };
  EXPECT_EQ(in_flight(program), 2);
  Program layer_behind = program;
  layer_behind.steps[7].layer = 2;
  EXPECT_EQ(in_flight(layer_behind), 1);
  Program reads_before = program;
  reads_before.steps[7].inputs[0].value = 2;
  EXPECT_EQ(in_flight(reads_before), 1);
  Program divided = program;
  divided.steps[7].op = StepOp::SumExperts;
  EXPECT_EQ(in_flight(divided), 1);
  const Program alone = chain({{StepOp::Softcap, "cpu", 0, 1}});
  EXPECT_EQ(in_flight(alone), 1);
}

}  // namespace
}  // namespace ktx::program
