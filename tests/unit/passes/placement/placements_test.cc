// Automatic placements of real shapes on the machines of targets/: goldens, and what is true of
// every placement. Needs no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "lib/arch/build_graph.h"
#include "lib/ir/expert_numbers.h"
#include "lib/passes/cost/estimate_text.h"
#include "lib/passes/cost/launched_steps.h"
#include "lib/passes/cost/price.h"
#include "lib/passes/lower/expert_groups.h"
#include "lib/passes/pass.h"
#include "lib/passes/placement/chunk_tokens.h"
#include "lib/plan/expert_memory.h"
#include "lib/rules/rule.h"
#include "lib/rules/target_yaml.h"
#include "tests/support/golden.h"
#include "tests/support/paths.h"

namespace ktx::passes {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

// A config placed on a machine by the compiler alone, or around rules.
class Placed {
 public:
  Placed(const std::string& config, const target::Target& target, const std::string& rules = "",
         std::optional<plan::ExpertProfile> profile = std::nullopt) {
    config_ = input::HfConfig::read(source_dir() + "/tests/configs/" + config + ".json").take();
    state.modules = arch::build_graph(config_, diags_).take();
    state.config = &config_;
    state.diags = &diags_;
    state.target = target;
    state.check.only = state.check.target_given = true;
    if (profile) state.expert_profile = std::make_shared<plan::ExpertProfile>(*profile);
    state.check.shape.ctx = 8192;
    state.check.shape.step_tokens = chunk_tokens(state.modules, 0);
    if (!rules.empty()) rules::add_rules_text(state.rules, rules, "rules.yaml", diags_);
    PassOptions options;
    options.stop_after = "place-devices";
    const Status status = run_passes(state, options);
    EXPECT_TRUE(status) << status.error().message;
  }
  Estimate predict() const {
    auto estimate = estimate_of(state);
    EXPECT_TRUE(estimate) << estimate.error().message;
    return estimate.take();
  }
  std::vector<std::string> devices() const {
    std::vector<std::string> all;
    for (const ir::Module& module : state.modules.modules) {
      all.push_back(module.decision.device);
      for (const ir::ExpertSet& set : module.decision.expert_sets) {
        all.push_back(ir::expert_numbers_text(set.experts) + " on " + set.device);
      }
    }
    return all;
  }
  // Layers whose attention, or routed experts, are on GPUs.
  int attention_on_gpus() const {
    return on_gpus([](ir::Role role) { return ir::kind_of(role) == ir::Kind::Attention; });
  }
  double experts_on_gpus() const {
    double layers = 0;
    for (const ir::Module& module : state.modules.modules) {
      if (module.role != ir::Role::Experts) continue;
      const int32_t all = std::get<ir::ExpertsInfo>(module.info).experts;
      layers += 1 - static_cast<double>(passes::experts_on(place_of(module), {})) / all;
    }
    return layers;
  }

  CompileState state;

 private:
  template <class Has>
  int on_gpus(const Has& has) const {
    std::set<int32_t> layers;
    for (const ir::Module& module : state.modules.modules) {
      const bool weights = has(module.role) && module.decision.device != "cpu";
      if (weights) layers.insert(module.layer);
    }
    return static_cast<int>(layers.size());
  }

  input::HfConfig config_;
  DiagSink diags_;
};

target::Target profile(const std::string& name) {
  DiagSink diags;
  return rules::read_target(source_dir() + "/targets/" + name + ".yaml", diags).take();
}

target::Target with_memory(target::Target target, uint64_t bytes) {
  for (target::GpuTarget& gpu : target.gpus) gpu.memory_bytes = bytes;
  return target;
}

constexpr const char* kProfiles[] = {"a100", "h200",     "l4",       "rtx-3090",
                                     "t4",   "rtx-4090", "rtx-5090", "zen4"};
// All of tests/configs.
std::vector<std::string> configs() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/tests/configs")) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

double conversation_seconds(const Placed& placed) {
  return price(PricedModel(placed.state), placement_of(placed.state)).seconds();
}

class Placements : public ::testing::TestWithParam<std::string> {};

TEST_P(Placements, AreThoseOfTheGoldenAndFit) {
  std::string text;
  for (const char* machine : kProfiles) {
    const Placed placed(GetParam(), profile(machine));
    const Estimate estimate = placed.predict();
    for (const DeviceUse& use : estimate.devices) {
      EXPECT_FALSE(use.name != "cpu" && use.too_small()) << machine << " " << use.name;
    }
    text += fmt::format("{:9} attention {:>2}, experts {:>5.2f} on the GPU; ", machine,
                        placed.attention_on_gpus(), placed.experts_on_gpus());
    text += placed.state.prefer.stream_tokens > 0
                ? fmt::format("by {:6} from {:>4} of {} tokens; ",
                              word(estimate.devices.back().stream_slots),
                              placed.state.prefer.stream_tokens, estimate.shape.step_tokens)
                : "not streamed;                      ";
    const auto rate = [](const ForwardTime& pass) {
      return static_cast<double>(pass.tokens) / pass.seconds;
    };
    text += estimate.token.known
                ? fmt::format("{:6.1f}, {:7.1f} and {:7.1f} tokens/s\n", rate(estimate.token),
                              rate(estimate.short_chunk), rate(estimate.chunk))
                : "speed unknown\n";
  }
  ktx::testing::expect_golden(fmt::format("placements/{}.golden", GetParam()), text);
}

TEST_P(Placements, AreTheSameEveryTime) {
  const target::Target machine = with_memory(profile("rtx-4090"), 12 * kGiB);
  EXPECT_EQ(Placed(GetParam(), machine).devices(), Placed(GetParam(), machine).devices());
}

// What whole layers leave of a GPU's memory holds experts of one more.
TEST(PlacementsOfOneModel, SplitTheLayerThatDoesNotFitWhole) {
  const Placed placed("Qwen3-30B-A3B", with_memory(profile("rtx-4090"), 12 * kGiB));
  int split = 0;
  for (const ir::Module& module : placed.state.modules.modules) {
    split += !module.decision.expert_sets.empty();
  }
  EXPECT_EQ(split, 1);
  const Estimate estimate = placed.predict();
  for (const DeviceUse& use : estimate.devices) {
    if (use.name == "cpu") continue;
    EXPECT_FALSE(use.too_small());
    const uint64_t expert = (uint64_t{1} << 20) * 11 / 2;  // of 2.6 to 3.0 MiB
    EXPECT_LT(use.capacity - use.total(), expert);
  }
}

// Where few experts get most activations, the most used ones of all layers go to the GPU: the share
// that they serve is theirs, and tokens are faster.
TEST(PlacementsOfOneModel, TakeTheMostUsedExpertsOfAProfile) {
  const target::Target machine = with_memory(profile("rtx-4090"), 12 * kGiB);
  plan::ExpertProfile profile{"qwen3moe", {}};
  for (int32_t layer = 0; layer < 48; ++layer) {
    std::vector<uint64_t>& counts = profile.layers[layer];
    for (int32_t e = 0; e < 128; ++e) counts.push_back((e * 37 + layer) % 128 < 32 ? 970 : 10);
  }
  const Placed even("Qwen3-30B-A3B", machine);
  const Placed skewed("Qwen3-30B-A3B", machine, "", profile);
  double use = 0;
  for (const ir::Module& module : skewed.state.modules.modules) {
    if (module.role != ir::Role::Experts) continue;
    const auto& sets = module.decision.expert_sets;
    const double here = sets.empty() ? module.decision.device != "cpu" : sets[0].use;
    EXPECT_GT(here, 0.9) << module.path;
    use += here / 48;
  }
  EXPECT_GT(use, 0.9);
  for (const DeviceUse& device : skewed.predict().devices) EXPECT_FALSE(device.too_small());
  EXPECT_LT(skewed.predict().token.seconds, 0.75 * even.predict().token.seconds);
}

// Where slots of whole layers would take the room of experts that are used for every token, smaller
// ones are taken: everything that is counted is faster, and a prompt of 512 tokens is not slower
// than by the CPU.
TEST(PlacementsOfOneModel, TakeSmallSlotsWhereTheyLeaveRoomForExperts) {
  for (const uint64_t gib : {12, 16, 20, 24}) {
    const target::Target machine = with_memory(profile("h200"), gib * kGiB);
    const Placed placed("GLM-4.5-Air", machine);
    ASSERT_GT(placed.state.prefer.stream_tokens, 0) << gib;
    ASSERT_TRUE(placed.state.stream_slots);
    EXPECT_NE(*placed.state.stream_slots, plan::StreamSlots::Layer) << gib;
    const StreamTrial* chosen = nullptr;
    const StreamTrial *none = nullptr, *layer = nullptr;
    for (const StreamTrial& trial : placed.state.stream_trials) {
      if (trial.chosen) chosen = &trial;
      if (!trial.way.slots) none = &trial;
      if (trial.way.slots == plan::StreamSlots::Layer) layer = &trial;
    }
    ASSERT_TRUE(chosen && none);
    EXPECT_EQ(chosen->way.slots, placed.state.stream_slots);
    EXPECT_LE(chosen->time.short_prompt, none->time.short_prompt) << gib;
    if (!layer) continue;  // no room for it
    EXPECT_GT(chosen->gpu_expert_use, layer->gpu_expert_use) << gib;
    EXPECT_LT(chosen->time.token, layer->time.token) << gib;
    EXPECT_LT(chosen->time.short_prompt, layer->time.short_prompt) << gib;
  }
}

// Beside experts that rules hold smaller slots are taken where larger ones do not fit, and none
// where there is no room.
TEST(PlacementsOfOneModel, TakeSlotsThatFitBesideExpertsThatRulesHold) {
  const std::string rules =
      "- {match: {kind: experts}, replace: {device: cpu}, recursive: false}\n"
      "- {match: {name: .}, replace: {device: 'cuda:0'}}\n";
  const auto slots = [&](uint64_t gib) {
    const Placed placed("GLM-4.5-Air", with_memory(profile("h200"), gib * kGiB), rules);
    EXPECT_EQ(placed.experts_on_gpus(), 0);
    for (const DeviceUse& use : placed.predict().devices) EXPECT_FALSE(use.too_small()) << gib;
    return placed.state.prefer.stream_tokens > 0 ? placed.state.stream_slots : std::nullopt;
  };
  ASSERT_TRUE(slots(24));
  EXPECT_NE(*slots(24), plan::StreamSlots::Eighth);
  EXPECT_EQ(slots(9), plan::StreamSlots::Eighth);
  EXPECT_EQ(slots(7), std::nullopt);
}

// More memory of a GPU never makes prompts of 4096 and 512 tokens and an answer of 512 slower.
TEST_P(Placements, AreNotSlowerWithMoreMemory) {
  double before = 1e9;
  for (const uint64_t gib : {6, 12, 24, 80}) {
    const double seconds =
        conversation_seconds(Placed(GetParam(), with_memory(profile("rtx-4090"), gib * kGiB)));
    EXPECT_LE(seconds, before * 1.01) << gib << " GiB";
    before = seconds;
  }
}

// Nor does a faster memory of the GPU or of the processor, or a faster PCIe.
TEST_P(Placements, AreNotSlowerWithMoreBandwidth) {
  using Faster = void (*)(target::Target&, double);
  constexpr Faster kFaster[] = {
      [](target::Target& t, double factor) { t.gpus[0].bandwidth_gbps *= factor; },
      [](target::Target& t, double factor) { t.gpus[0].pcie_gbps *= factor; },
      [](target::Target& t, double factor) { t.cpu.bandwidth_gbps *= factor; },
  };
  for (size_t i = 0; i < std::size(kFaster); ++i) {
    double before = 1e9;
    for (const double factor : {0.5, 1.0, 2.0}) {
      target::Target machine = with_memory(profile("rtx-4090"), 16 * kGiB);
      kFaster[i](machine, factor);
      const double seconds = conversation_seconds(Placed(GetParam(), machine));
      EXPECT_LE(seconds, before * 1.01) << "rate " << i << " times " << factor;
      before = seconds;
    }
  }
}

TEST_P(Placements, KeepWhatRulesSay) {
  const Placed placed(GetParam(), profile("h200"),
                      "- {match: {kind: attention}, replace: {device: cpu}}\n");
  EXPECT_EQ(placed.attention_on_gpus(), 0);
}

// Two layers of DeepSeek-V3's experts and one of tiles take 19 GB. By parts of a matrix they can be
// streamed all the same, and prompts are several times as fast.
TEST(PlacementsOfDeepSeekV3, StreamOnTwentyFourGigabytes) {
  target::Target machine = with_memory(profile("rtx-4090"), 24 * kGiB);
  machine.cpu.memory_bytes = 512 * kGiB;
  const Placed placed("DeepSeek-V3", machine);
  EXPECT_GT(placed.state.prefer.stream_tokens, 0);
  EXPECT_EQ(placed.attention_on_gpus(), 61);
  const Estimate estimate = placed.predict();
  ASSERT_EQ(estimate.devices.size(), 2u);
  EXPECT_FALSE(estimate.devices[0].too_small());
  EXPECT_FALSE(estimate.devices[1].too_small());
  EXPECT_GT(estimate.devices[1].stream_bytes, 0u);
  EXPECT_NE(estimate.devices[1].stream_slots, plan::StreamSlots::Layer);
  machine.gpus[0].memory_bytes = 12 * kGiB;
  const Placed smaller("DeepSeek-V3", machine);
  EXPECT_EQ(smaller.state.prefer.stream_tokens, 0);
  const ForwardTime with = estimate.chunk, without = smaller.predict().chunk;
  EXPECT_GT(static_cast<double>(with.tokens) / with.seconds,
            3 * static_cast<double>(without.tokens) / without.seconds);
}

// Layers that are spread over GPUs take turns: what one of them holds stays there, and more are
// used only where they must be.
TEST(PlacementsOnSeveralGpus, UseAsFewAsHoldTheModel) {
  std::string text;
  for (const char* config : {"Llama-3.1-8B-Instruct", "Qwen3-30B-A3B", "EXAONE-4.0-32B",
                             "GLM-4.5-Air", "gpt-oss-120b"}) {
    for (const char* machine : {"h100", "rtx-3090", "t4"}) {
      target::Target two = profile(machine);
      two.gpus.push_back(two.gpus[0]);
      const Placed one_gpu(config, profile(machine)), two_gpus(config, two);
      std::set<std::string> used;
      for (const ir::Module& module : two_gpus.state.modules.modules) {
        if (!module.params.empty()) used.insert(module.decision.device);
      }
      const Estimate one = one_gpu.predict(), both = two_gpus.predict();
      for (const DeviceUse& use : both.devices) EXPECT_FALSE(use.name != "cpu" && use.too_small());
      if (one.devices.front().weight_bytes == 0) {
        EXPECT_EQ(used, std::set<std::string>{"cuda:0"}) << config << " " << machine;
      }
      EXPECT_LE(conversation_seconds(two_gpus), 1.01 * conversation_seconds(one_gpu))
          << config << " " << machine;
      text += fmt::format("{:21} {:8} on {}: decode {:5.1f} tokens/s, with one {:5.1f}\n", config,
                          machine, fmt::join(used, ", "), 1 / both.token.seconds,
                          1 / one.token.seconds);
    }
  }
  ktx::testing::expect_golden("placements/two-gpus.golden", text);
}

// Where GPUs reach each other's memory, they compute the layers together if that is faster: not
// where a token takes so little that the sums are more.
TEST(PlacementsOnSeveralGpus, ComputeLayersTogetherWhereThatIsFaster) {
  std::string text;
  for (const char* config : {"Llama-3.1-8B-Instruct", "c4ai-command-r-plus", "Qwen3-30B-A3B",
                             "Qwen3-235B-A22B", "GLM-4.5-Air"}) {
    for (const bool reach : {true, false}) {
      target::Target two = profile("h200");
      if (!reach) two.gpus[0].peer_gbps = two.gpus[0].sum_us = 0;
      two.gpus.push_back(two.gpus[0]);
      const Placed one_gpu(config, profile("h200")), two_gpus(config, two);
      const bool together = std::ranges::any_of(
          two_gpus.state.modules.modules,
          [](const ir::Module& module) { return !module.decision.team.empty(); });
      EXPECT_FALSE(together && !reach) << config;
      EXPECT_LE(conversation_seconds(two_gpus), 1.01 * conversation_seconds(one_gpu)) << config;
      const Estimate one = one_gpu.predict(), both = two_gpus.predict();
      for (const DeviceUse& use : both.devices) EXPECT_FALSE(use.name != "cpu" && use.too_small());
      text += fmt::format("{:21} {:9} decode {:5.1f} tokens/s, with one {:5.1f}\n", config,
                          together ? "together:" : "apart:", 1 / both.token.seconds,
                          1 / one.token.seconds);
    }
  }
  ktx::testing::expect_golden("placements/gpus-together.golden", text);
}

// Cards that do not reach each other's memory add up by way of the host, where that is predicted to
// be faster than layers that take turns: large models, not those of which a token takes little.
TEST(PlacementsOnSeveralGpus, OfConsumerCardsComputeTogetherByWayOfTheHost) {
  std::string text;
  for (const char* machine : {"rtx-4090-x2", "rtx-4090-x4", "rtx-5090-x2", "rtx-5090-x4"}) {
    for (const char* config : {"Llama-3.1-8B-Instruct", "EXAONE-4.0-32B", "Qwen3-30B-A3B",
                               "Qwen3.5-35B-A3B", "c4ai-command-r-plus"}) {
      target::Target turns = profile(machine);
      for (target::GpuTarget& gpu : turns.gpus) gpu.sum_us = 0;
      const Placed placed(config, profile(machine)), apart(config, turns);
      EXPECT_LE(conversation_seconds(placed), 1.001 * conversation_seconds(apart)) << config;
      const Estimate here = placed.predict(), there = apart.predict();
      for (const DeviceUse& use : here.devices) EXPECT_FALSE(use.name != "cpu" && use.too_small());
      std::string divided = "nothing";
      for (const TeamTrial& trial : here.team_trials) {
        if (trial.chosen) divided = names_of(trial.kinds);
      }
      text +=
          fmt::format("{:11} {:21} decode {:5.1f} tokens/s, taking turns {:5.1f}; divided: {}\n",
                      machine, config, 1 / here.token.seconds, 1 / there.token.seconds, divided);
    }
  }
  ktx::testing::expect_golden("placements/consumer-gpus-together.golden", text);
}

// What rules say of the device of prompts, beside the CPU for tokens: never a GPU, or a GPU even
// where that is not predicted to pay.
TEST(PlacementsByRules, ExpertsHaveTheDeviceOfPromptsThatTheRuleSays) {
  target::Target slow = profile("t4");
  slow.gpus[0].pcie_gbps = 1;
  const auto tokens = [&](const target::Target& machine, const std::string& prefill) {
    const Placed placed("Qwen3-30B-A3B", machine,
                        fmt::format("- match: {{kind: experts}}\n"
                                    "  recursive: false\n"
                                    "  replace:\n"
                                    "    class: KTransformersExperts\n"
                                    "    kwargs: {{generate_device: cpu, prefill_device: {}}}\n",
                                    prefill));
    EXPECT_EQ(placed.experts_on_gpus(), 0);
    for (const DeviceUse& use : placed.predict().devices) EXPECT_FALSE(use.too_small());
    return placed.state.prefer.stream_tokens;
  };
  EXPECT_GT(tokens(profile("t4"), "auto"), 0);
  EXPECT_EQ(tokens(profile("t4"), "cpu"), 0);
  EXPECT_EQ(tokens(slow, "auto"), 0);
  EXPECT_GT(tokens(slow, "cuda"), 0);
}

// Single layers can be exempt: experts that a rule keeps on the CPU are computed there in any pass.
TEST(PlacementsByRules, SomeLayersAreNeverStreamed) {
  const std::string rules =
      "- {match: {kind: experts, layers: 0..9}, recursive: false, replace: {class: "
      "KTransformersExperts, kwargs: {generate_device: cpu, prefill_device: cpu}}}\n"
      "- {match: {kind: experts}, recursive: false, replace: {device: cpu}}\n";
  const Placed placed("Qwen3-30B-A3B", profile("h200"), rules);
  EXPECT_GT(placed.state.prefer.stream_tokens, 0);
  const auto graph = launched_steps(placed.state);
  ASSERT_TRUE(graph) << graph.error().message;
  std::set<int32_t> streamed;
  for (const program::Launch& launch : graph->launches) {
    const program::Step& step = graph->steps[static_cast<size_t>(launch.steps[0])];
    if (step.device == "cpu") streamed.insert(step.layer);
  }
  EXPECT_EQ(streamed.size(), 38u);
  EXPECT_EQ(*streamed.begin(), 10);
  const ForwardTime pass = predict_forward(*graph, placed.state.target, {.tokens = 4096});
  EXPECT_GT(pass.devices.front().read_bytes, kGiB) << "of the CPU";
  EXPECT_GT(pass.devices.back().copied_bytes, 10 * kGiB);
}

// KTransformers' experts on the GPU in prompts and on the CPU in decode: streamed experts.
TEST(PlacementsOfKTransformers, ExpertsOfTwoDevicesAreStreamed) {
  const std::string rules = R"(
- match: {name: "^model\\.layers\\..*\\.mlp\\.experts$"}
  replace:
    class: ktransformers.operators.experts.KTransformersExperts
    kwargs:
      prefill_device: "cuda"
      prefill_op: "KExpertsTorch"
      generate_device: "cpu"
      generate_op: "KExpertsCPU"
      out_device: "cuda"
  recursive: False
- match: {name: "^model"}
  replace: {class: default, kwargs: {generate_device: "cuda", prefill_device: "cuda"}}
)";
  const Placed placed("DeepSeek-V3", profile("h200"), rules);
  EXPECT_EQ(placed.experts_on_gpus(), 0);
  EXPECT_EQ(placed.attention_on_gpus(), 61);
  const int64_t threshold = placed.state.prefer.stream_tokens;
  EXPECT_GT(threshold, 0);
  const auto graph = launched_steps(placed.state);
  ASSERT_TRUE(graph) << graph.error().message;
  // What runs in a token and in a long pass.
  for (const int64_t tokens : {int64_t{1}, int64_t{4096}}) {
    const ForwardTime time = predict_forward(*graph, placed.state.target, {.tokens = tokens});
    uint64_t copied = 0, cpu = 0;
    for (const DeviceTime& device : time.devices) {
      copied += device.copied_bytes;
      if (device.device == "cpu") cpu += device.read_bytes;
    }
    EXPECT_EQ(copied > 0, tokens >= threshold);
    EXPECT_EQ(cpu > kGiB, tokens < threshold) << "experts of the CPU are read";
  }
}

// What modules say of experts that may be on disk is what the steps of the plan say.
TEST(PlacementsLargerThanMemory, ReadExpertsFromDisk) {
  target::Target target = profile("rtx-4090");
  for (const std::string config : {"Qwen3-235B-A22B", "gpt-oss-120b", "DeepSeek-V3"}) {
    SCOPED_TRACE(config);
    target.cpu.memory_bytes = uint64_t{48} << 30;
    const Placed placed(config, target);
    const Estimate estimate = placed.predict();
    const DeviceUse& cpu = estimate.devices.front();
    const auto program = launched_steps(placed.state);
    ASSERT_TRUE(program) << program.error().message;
    const plan::ExpertMemory memory = plan::expert_memory(*program);
    EXPECT_NEAR(cpu.expert_bytes, memory.bytes, 0.001 * memory.bytes);
    EXPECT_NEAR(cpu.least_expert_bytes, memory.least_bytes(), 0.001 * memory.least_bytes());
    ASSERT_TRUE(cpu.needs_disk());
    EXPECT_GT(estimate.max_ctx, 0);
    EXPECT_GT(estimate.disk.slots, 0);
    EXPECT_DOUBLE_EQ(estimate.token.disk_seconds, estimate.disk.token_bytes / (kDiskGbps * 1e9));
    EXPECT_GT(estimate.token.seconds, estimate.token.disk_seconds);
    EXPECT_GE(estimate.chunk.seconds, estimate.chunk.disk_seconds);
  }
  // Plans of several hosts are mapped.
  for (const char* const name : {"a", "b"}) {
    target.hosts.push_back({.name = name, .cpu = target.cpu, .gpus = {}});
  }
  const Placed placed("DeepSeek-V3", target);
  for (const DeviceUse& use : placed.predict().devices) EXPECT_FALSE(use.needs_disk());
}

TEST(PlacementsLargerThanMemory, LeaveRoomForALayersExpertsInTheLargestContext) {
  target::Target target = profile("rtx-4090");
  target.cpu.memory_bytes = uint64_t{48} << 30;
  Placed placed("DeepSeek-V3", target);
  placed.state.check.largest_ctx = true;
  placed.state.fact = Fact::Built;
  PassOptions options;
  options.stop_after = "choose-context";
  const Status chosen = run_passes(placed.state, options);
  EXPECT_TRUE(chosen) << chosen.error().message;
  EXPECT_GT(placed.state.check.shape.ctx, 8192);
}

// Hosts with GPUs and without: what each holds, and what crosses between them.
TEST(PlacementsOverHosts, HaveTheGpusOfEachHost) {
  DiagSink diags;
  const target::Target target = rules::parse_target(
      "name: lab\n"
      "network: {gbit: 100, latency_us: 10}\n"
      "hosts:\n"
      "  - name: n\n"
      "    count: 2\n"
      "    cpu: {isa: avx512, cores: 16, memory_gib: 128, bandwidth_gbps: 300}\n"
      "    gpus: [{compute_capability: 9.0, memory_gib: 6, bandwidth_gbps: 3350, pcie_gbps: 50}]\n"
      "  - {name: c, cpu: {isa: avx512, cores: 16, memory_gib: 64, bandwidth_gbps: 300}}\n",
      "lab.yaml", diags);
  ASSERT_EQ(diags.errors(), 0);
  const Placed placed("Qwen3-30B-A3B", target);
  const Estimate estimate = placed.predict();
  for (const DeviceUse& use : estimate.devices) EXPECT_FALSE(use.too_small()) << use.name;
  ktx::testing::expect_golden("placements/gpus-of-hosts.golden", print_estimate(estimate));
}

INSTANTIATE_TEST_SUITE_P(All, Placements, ::testing::ValuesIn(configs()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

}  // namespace
}  // namespace ktx::passes
