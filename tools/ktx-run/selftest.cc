// ktx-run selftest: whether this machine computes a plan's answers as the source's weights do, and
// if not, which step is wrong.
//
//   weights   ok      93 weights in memory are those of the plan
//   answers   ok      34 answers: 0.0021 from the source's in the median (at most 0.02) ...
//   steps     FAILED  step 13 (rope of model.layers.0.self_attn on cpu) gives 0.41 of it otherwise
//                     than the scalar kernel, of at most 0.02
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "lib/runtime/quality/locate_fault.h"
#include "lib/support/strings.h"
#include "lib/support/timer.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/interrupt.h"
#include "tools/ktx-run/loaded_model.h"
#include "tools/ktx-run/quality_report.h"
#include "tools/ktx-run/report.h"
#include "tools/ktx-run/self_test_outcome.h"

namespace ktx::tools {
namespace {

// What a part of the test found.
struct Line {
  std::string what;
  bool ok = true;
  std::string text;
};

struct Report {
  std::vector<Line> lines;
  std::string run;

  bool passed() const {
    return std::ranges::all_of(lines, [](const Line& line) { return line.ok; });
  }
};

// For one prompt at a time.
runtime::EngineOptions small_engine(const EngineFlags& flags) {
  runtime::EngineOptions options = engine_options(flags);
  options.largest_ctx = false;
  options.max_batch = 1;
  return options;
}

Line weights_line(const SelfTestOutcome& outcome, size_t weights) {
  if (outcome.damaged.empty()) {
    return {"weights", true, fmt::format("{} weights in memory are those of the plan", weights)};
  }
  return {"weights", false, join(outcome.damaged, "\n")};
}

Line steps_line(const runtime::FaultSearch& search, const plan::PlanView& plan) {
  if (search.wrong_step) {
    return {"steps", false,
            fmt::format("{} differs from the scalar kernel by {:.3g}, at most {:g} is allowed",
                        step_text(plan, search.wrong_step->step), search.wrong_step->difference,
                        search.most_difference)};
  }
  return {"steps", true,
          fmt::format(
              "{} steps of the CPU compared with the scalar kernel: at most {:.3g} apart, {:g} is "
              "allowed",
              search.steps, search.worst_step.difference, search.most_difference)};
}

// The steps of a layer, where no single step could be identified.
std::string steps_of_layer(const plan::PlanView& plan, int32_t layer) {
  std::optional<uint32_t> first;
  uint32_t last = 0;
  for (uint32_t i = 0; i < plan.program->steps.size(); ++i) {
    if (plan.program->steps[i].layer != layer) continue;
    if (!first) first = i;
    last = i;
  }
  if (!first) return "no step";
  return fmt::format("one of {} to {}", step_text(plan, *first), step_text(plan, last));
}

// Says where; whether, say the other lines.
Line layers_line(const runtime::FaultSearch& search, const plan::PlanView& plan, bool failed) {
  if (!failed || !search.parting_layer) {
    return {
        "layers", true,
        fmt::format("each layer's output is within {:.3g} of the source's", search.worst_stream)};
  }
  return {
      "layers", false,
      fmt::format(
          "layers' outputs differ from the source's by up to {:.3g}, and drift most at layer {}: {}",
          search.worst_stream, *search.parting_layer, steps_of_layer(plan, *search.parting_layer))};
}

Result<Report> test(const Options& options) {
  Report report;
  const std::atomic<bool>* const stop = &interrupt_flag();
  const runtime::EngineOptions settings = small_engine(options.engine);
  plan::SelfTest prompts;
  bool on_cpu = false;
  {
    const auto engine = KTX_TRY(runtime::Engine::open(options.plan, settings));
    for (const std::string& line : engine->notes()) note(line);
    const Timer timer;
    SelfTestOutcome outcome = KTX_TRY(run_self_test(*engine, stop));
    while (timer.seconds() < static_cast<double>(options.test_seconds) && outcome.passed()) {
      outcome = KTX_TRY(run_self_test(*engine, stop));
    }
    const plan::PlanView& plan = engine->plan();
    report.run = run_text(*engine);
    report.lines.push_back(weights_line(outcome, plan.program->blobs.size()));
    report.lines.push_back({"answers", outcome.answers.passed(), answers_text(outcome.answers)});
    prompts = std::move(outcome.test);
    on_cpu = std::ranges::any_of(plan.program->steps,
                                 [](const program::Step& step) { return step.device == "cpu"; });
  }
  if (options.quick_test && report.passed()) return report;
  if (!on_cpu && report.passed()) return report;
  // With the engine's memory free again.
  const plan::PlanFile plan = KTX_TRY(plan::PlanFile::open(options.plan));
  const auto search = KTX_TRY(runtime::locate_fault(options.plan, settings, prompts, stop));
  if (on_cpu) report.lines.push_back(steps_line(search, plan.view()));
  report.lines.push_back(layers_line(search, plan.view(), !report.passed()));
  return report;
}

void print_text(const Report& report, const std::string& path) {
  for (const Line& line : report.lines) {
    std::string_view what = line.what, health = line.ok ? "ok" : "FAILED";
    for (const std::string_view text : split(line.text, '\n')) {
      fmt::print("{:<9} {:<7} {}\n", what, health, text);
      what = health = "";
    }
  }
  fmt::print("{} {} its self-test: {}\n", path, report.passed() ? "passes" : "FAILS", report.run);
}

void print_json(const Report& report) {
  nlohmann::ordered_json json = {{"passed", report.passed()}, {"run", report.run}};
  for (const Line& line : report.lines) {
    json["findings"].push_back({{"what", line.what}, {"ok", line.ok}, {"text", line.text}});
  }
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

int run_selftest(const Options& options) {
  catch_interrupts(SecondInterrupt::Ends);
  const Result<Report> report = test(options);
  if (interrupted()) return end_interrupted();
  if (!report) {
    const bool named = report.error().message.starts_with(options.plan);
    return fail(named ? report.error().message
                      : fmt::format("{}: {}", options.plan, report.error().message));
  }
  options.json ? print_json(*report) : print_text(*report, options.plan);
  return report->passed() ? 0 : 1;
}

}  // namespace ktx::tools
