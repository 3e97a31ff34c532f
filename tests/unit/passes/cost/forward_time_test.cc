#include "lib/passes/cost/forward_time.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lib/passes/cost/launched_steps.h"
#include "lib/passes/placement/stream_experts.h"
#include "tests/unit/passes/placed_model.h"

namespace ktx::passes {
namespace {

constexpr double kReadGbps = 100, kGpuGbps = 1000, kPcieGbps = 20;

target::Target machine() {
  target::Target target;
  target.cpu.isa = Isa::Avx512;
  target.cpu.cores = 8;
  target.cpu.read_gbps = kReadGbps;
  target.cpu.int8_tops = 1;
  target.gpus.resize(1);
  target::GpuTarget& gpu = target.gpus[0];
  gpu.compute_major = 9;
  gpu.memory_bytes = uint64_t{80} << 30;
  gpu.read_gbps = kGpuGbps;
  gpu.tflops = 100;
  gpu.pcie_gbps = kPcieGbps;
  gpu.launch_us = 4;
  gpu.hand_over_us = 20;
  return target;
}

ForwardTime predict(const testing::PlacedModel& model, int64_t tokens) {
  const auto graph = launched_steps(model.state);
  EXPECT_TRUE(graph) << graph.error().message;
  return predict_forward(*graph, model.state.target, {.tokens = tokens});
}

TEST(ForwardTime, OfATokenOnTheCpuIsThatOfReadingWhatItUses) {
  const testing::PlacedModel model(machine(), "cpu", "cpu");
  const ForwardTime time = predict(model, 1);
  ASSERT_TRUE(time.known);
  ASSERT_EQ(time.devices.size(), 1u);
  EXPECT_EQ(time.hand_overs, 0);
  EXPECT_EQ(time.devices[0].launches, 0);
  EXPECT_NEAR(time.seconds, static_cast<double>(time.devices[0].read_bytes) / (kReadGbps * 1e9),
              0.01 * time.seconds);
  // A token reads 3 of the 8 experts.
  EXPECT_LT(time.devices[0].read_bytes, predict(model, 64).devices[0].read_bytes * 2 / 3);
}

TEST(ForwardTime, CountsKernelsAndHandOvers) {
  const testing::PlacedModel whole(machine(), "cuda:0", "cuda:0");
  const ForwardTime alone = predict(whole, 1);
  ASSERT_TRUE(alone.known);
  EXPECT_EQ(alone.hand_overs, 1) << "behind the embedding";
  EXPECT_GT(alone.devices.back().launches, 0);
  const testing::PlacedModel hybrid(machine(), "cuda:0", "cpu");
  const ForwardTime both = predict(hybrid, 1);
  EXPECT_EQ(both.hand_overs, 1 + 2 * hybrid.layers());
  EXPECT_DOUBLE_EQ(both.hand_over_seconds, both.hand_overs * 20e-6);
}

TEST(ForwardTime, OfStreamedExpertsIsThatOfTheirCopy) {
  testing::PlacedModel model(machine(), "cuda:0", "cpu");
  model.state.prefer.stream_tokens = 64;
  EXPECT_EQ(predict(model, 63).devices.back().copied_bytes, 0u);
  const ForwardTime time = predict(model, 64);
  const DeviceTime& gpu = time.devices.back();
  ASSERT_GT(gpu.copied_bytes, 0u);
  EXPECT_GE(gpu.seconds, static_cast<double>(gpu.copied_bytes) / (kPcieGbps * 1e9));
  EXPECT_EQ(time.hand_overs, 1);
}

// With room for whole layers the copy of all but the first hides behind the arithmetic, or that
// behind the copy; smaller pieces hide less, as less is copied ahead.
TEST(ForwardTime, OfStreamedExpertsOverlapsWithTheirCopyAsFarAsSlotsAllow) {
  testing::PlacedModel model(machine(), "cuda:0", "cpu");
  model.state.prefer.stream_tokens = 64;
  for (const int64_t tokens : {int64_t{64}, int64_t{512}, int64_t{4096}}) {
    const auto of = [&](double pcie, plan::StreamSlots slots) {
      model.state.target.gpus[0].pcie_gbps = pcie;
      const auto graph = launched_steps(model.state);
      return predict_forward(*graph, model.state.target, {.tokens = tokens, .slots = slots});
    };
    const ForwardTime free = of(1e6, plan::StreamSlots::Layer);  // a copy takes no time
    double last = 0;
    for (const plan::StreamSlots slots : plan::kStreamSlots) {
      const ForwardTime time = of(kPcieGbps, slots);
      const double copy = static_cast<double>(time.devices.back().copied_bytes) / (kPcieGbps * 1e9);
      EXPECT_GE(time.seconds, std::max(copy, free.seconds)) << tokens;
      const double pieces = 3.0 * plan::kStreamParts * model.layers();  // at most, of 4 us each
      EXPECT_LE(time.seconds, copy + free.seconds + pieces * 4e-6) << tokens;
      if (slots == plan::StreamSlots::Layer) {
        const double layer = copy / model.layers();
        EXPECT_LE(time.seconds,
                  std::max(copy, free.seconds) + 2 * layer + 2 * free.seconds / model.layers());
      }
      EXPECT_GE(time.seconds, 0.9 * last) << tokens;
      last = time.seconds;
    }
  }
}

// The CPU computes some of the experts while the others are copied.
TEST(ForwardTime, OfStreamedExpertsCopiesLessWhereTheCpuComputesSome) {
  target::Target target = machine();
  target.cpu.read_gbps = 1e6;  // arithmetic is what counts
  testing::PlacedModel model(target, "cuda:0", "cpu");
  model.state.check.shape.step_tokens = 4096;
  model.choose_stream_tokens();
  const int64_t joint = model.state.prefer.joint_tokens;
  ASSERT_GT(joint, 0);
  model.state.prefer.stream_tokens = 1;
  const auto graph = launched_steps(model.state);
  const auto of = [&](int64_t tokens, int64_t with) {
    return predict_forward(*graph, model.state.target, {.tokens = tokens, .joint = with});
  };
  const ForwardTime alone = of(joint, 0), both = of(joint, joint);
  EXPECT_NEAR(static_cast<double>(both.devices.back().copied_bytes),
              static_cast<double>(alone.devices.back().copied_bytes) / 2,
              static_cast<double>(alone.devices.back().copied_bytes) * 0.1);
  EXPECT_EQ(of(10 * joint, joint).seconds, of(10 * joint, 0).seconds);
}

TEST(ForwardTime, IsUnknownWhereARateIs) {
  target::Target target = machine();
  target.cpu.read_gbps = 0;
  EXPECT_FALSE(predict(testing::PlacedModel(target, "cuda:0", "cpu"), 1).known);
}

TEST(StreamTokens, FollowTheRatesOfTheMachine) {
  const auto chosen = [](target::Target target, const std::string& experts = "cpu") {
    testing::PlacedModel model(std::move(target), "cuda:0", experts);
    model.state.check.shape.step_tokens = 4096;
    model.choose_stream_tokens();
    return model.state.prefer.stream_tokens;
  };
  const int64_t tokens = chosen(machine());
  EXPECT_GT(tokens, 0);
  EXPECT_EQ(tokens % 32, 0);
  target::Target slow = machine(), fast = machine();
  slow.cpu.int8_tops = 0.5;
  fast.gpus[0].pcie_gbps *= 2;
  EXPECT_NEAR(static_cast<double>(chosen(slow)), static_cast<double>(tokens) / 2, 32);
  EXPECT_NEAR(static_cast<double>(chosen(fast)), static_cast<double>(tokens) / 2, 32);
  EXPECT_EQ(chosen(machine(), "cuda:0"), 0) << "no experts on the CPU";
}

TEST(StreamTokens, OfTheUserStay) {
  testing::PlacedModel model(machine(), "cuda:0", "cpu");
  model.state.prefer.stream_chosen = true;
  model.state.check.shape.step_tokens = 4096;
  model.choose_stream_tokens();
  EXPECT_EQ(model.state.prefer.stream_tokens, 0);
}

// A layer's deferred experts run beside the next layer's attention.
TEST(ForwardTime, OfDeferredExpertsHidesTheGpu) {
  testing::PlacedModel model(machine(), "cuda:0", "cpu");
  const ForwardTime plain = predict(model, 1);
  EXPECT_EQ(plain.beside_seconds, 0);
  for (ir::Module& module : model.state.modules.modules) {
    if (module.role == ir::Role::Experts) module.decision.deferred = 1;
  }
  const ForwardTime deferred = predict(model, 1);
  EXPECT_EQ(deferred.hand_overs, plain.hand_overs);
  EXPECT_NEAR(static_cast<double>(deferred.devices[0].read_bytes),
              static_cast<double>(plain.devices[0].read_bytes), 16);
  EXPECT_GT(deferred.beside_seconds, 0);
  // One of three experts in two of three layers.
  EXPECT_NEAR(deferred.beside_seconds, plain.devices[0].seconds * 2 / 9,
              0.1 * deferred.beside_seconds);
  // On a slow CPU they hide all that the GPU does in between.
  model.state.target.cpu.read_gbps = 0.1;
  const double gpu = predict(model, 1).devices.back().seconds;
  EXPECT_LT(predict(model, 1).beside_seconds, gpu);
  EXPECT_GT(predict(model, 1).beside_seconds, gpu / 3);
}

}  // namespace
}  // namespace ktx::passes
