#include "lib/runtime/quality/locate_fault.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "lib/runtime/quality/layer_streams.h"
#include "lib/runtime/quality/replay_answers.h"

namespace ktx::runtime {
namespace {

// What steps of right kernels stay below (docs/cli.md#selftest). In fast precision a rounding to
// int8 goes the other way where the scalar kernel's input differs in its last bit.
constexpr double kMostExactStep = 1e-3, kMostFastStep = 0.05;

class FaultWatch {
 public:
  // For the engine that compute() gets.
  EngineOptions watching(EngineOptions options) {
    options.on_repeat = [this](const StepRepeat& repeat) { take(repeat); };
    options.on_result = [this](const StepResult& result) { streams_.take(result); };
    return options;
  }

  Status compute(Engine& engine, const plan::SelfTestPrompt& prompt) {
    const bool exact = engine.precision() == Precision::Exact;
    found_.most_difference = exact ? kMostExactStep : kMostFastStep;
    noise_ = exact && engine.gpus().empty() ? kExactNoise : kFastNoise;
    Sequence whole = engine.new_sequence(), one_by_one = engine.new_sequence();
    KTX_TRY(pass(engine, whole, prompt.tokens));
    compare_streams(prompt);
    whole.truncate(0);
    const std::span<const int32_t> tokens = prompt.tokens;
    for (size_t i = 0; i < tokens.size() && !found_.wrong_step; ++i) {
      KTX_TRY(pass(engine, one_by_one, tokens.subspan(i, 1)));
    }
    if (!found_.wrong_step) compare_streams(prompt);
    return {};
  }

  bool has_wrong_step() const { return found_.wrong_step.has_value(); }
  FaultSearch found() const {
    FaultSearch found = found_;
    std::vector<StreamDifference> layers;
    for (const auto& [layer, square] : squares_) layers.push_back({layer, std::sqrt(square)});
    if (const StreamDifference* most = parting(layers, noise_)) found.parting_layer = most->layer;
    return found;
  }

 private:
  Status pass(Engine& engine, Sequence& sequence, std::span<const int32_t> tokens) {
    streams_.clear();
    return append_tokens(engine, sequence, tokens);
  }

  void take(const StepRepeat& repeat) {
    ++found_.steps;
    const WorstStep step{repeat.step, repeat.difference};
    if (!(repeat.difference <= found_.most_difference)) {
      if (!found_.wrong_step) found_.wrong_step = step;
    } else if (repeat.difference > found_.worst_step.difference) {
      found_.worst_step = step;
    }
  }

  // The last token's, which is the last row.
  void compare_streams(const plan::SelfTestPrompt& prompt) {
    for (const plan::SelfTestStream& source : prompt.streams) {
      const auto own = streams_.layers().find(source.layer);
      if (own == streams_.layers().end()) continue;
      const auto width = static_cast<size_t>(streams_.width());
      const double difference = source.difference(std::span(own->second).last(width));
      found_.worst_stream = std::max(found_.worst_stream, difference);
      squares_[source.layer] += difference * difference;
    }
  }

  LayerStreams streams_;
  double noise_ = 0;
  std::map<int32_t, double> squares_;  // of differences, by layer
  FaultSearch found_;
};

}  // namespace

Result<FaultSearch> locate_fault(const std::string& path, const EngineOptions& options,
                                 const plan::SelfTest& test, const std::atomic<bool>* stop) {
  FaultWatch watch;
  const std::unique_ptr<Engine> engine = KTX_TRY(Engine::open(path, watch.watching(options)));
  for (const plan::SelfTestPrompt& prompt : test.prompts) {
    if (stop != nullptr && *stop) return Error{"stopped"};
    KTX_TRY(watch.compute(*engine, prompt));
    if (watch.has_wrong_step()) break;
  }
  return watch.found();
}

std::vector<uint32_t> readers_of(const plan::PlanView& plan, uint32_t blob) {
  std::vector<uint32_t> steps;
  const std::vector<program::Step>& all = plan.program->steps;
  for (uint32_t i = 0; i < all.size(); ++i) {
    if (std::ranges::count(all[i].weights, static_cast<program::BlobId>(blob)) > 0) {
      steps.push_back(i);
    }
  }
  return steps;
}

}  // namespace ktx::runtime
