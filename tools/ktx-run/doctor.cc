// ktx-run doctor: what this machine can run, and why not.
//
//   processor     ok       AMD EPYC 9654 96-Core Processor: 96 cores, 192 hardware threads
//   huge pages    note     transparent: never
//                          --huge-pages has no effect until: echo madvise > /sys/kernel/mm/...
//   ...
//   plans for the CPU run here, those for GPUs do not
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lib/support/strings.h"
#include "lib/target/diagnose.h"
#include "lib/target/gpu_driver.h"
#include "tools/build_facts.h"
#include "tools/ktx-run/commands.h"
#include "tools/ktx-run/loaded_model.h"
#include "tools/ktx-run/self_test_outcome.h"

namespace ktx::tools {
namespace {

using target::Diagnosis;
using target::Finding;
using target::Health;

target::GpuFacts gpu_facts() {
  const target::GpuDriver driver = target::GpuDriver::open();
  return {driver.problem(), driver.version(), driver.gpus(), !gpu_generations().empty(),
          cuda_version()};
}

// Whether the plan opens here as `ktx-run chat` would open it,
// with a draft plan where one is given.
Finding open_plan(const std::string& path, const EngineFlags& flags, const DraftFlags& draft) {
  const Result<LoadedModel> model = load_model(path, flags, draft);
  if (!model) return {"plan", Health::Problem, path + " does not open", model.error().message};
  const plan::MemoryEstimate& memory = model->engine->memory();
  const std::string text =
      fmt::format("{} opens: {} of weights, {} of cache for a context of {}, {} of activations",
                  path, human_bytes(memory.weight_bytes), human_bytes(memory.kv_bytes),
                  model->engine->ctx(), human_bytes(memory.arena_bytes));
  const std::vector<std::string>& notes = model->notes;
  return {"plan", notes.empty() ? Health::Ok : Health::Note, text, join(notes, "\n")};
}

// Nothing where the plan has none, or does not open.
std::optional<Finding> self_test(const std::string& path, const EngineFlags& flags) {
  const Result<plan::PlanFile> file = plan::PlanFile::open(path);
  if (!file || !plan::read_self_test(file->view())) return {};
  const Result<LoadedModel> model = load_model(path, flags);
  if (!model) return {};
  const auto outcome = run_self_test(*model->engine);
  if (!outcome) return Finding{"self-test", Health::Problem, outcome.error().message, ""};
  if (outcome->passed()) {
    return Finding{"self-test", Health::Ok, answers_text(outcome->answers), ""};
  }
  return Finding{"self-test", Health::Problem, failure_text(*outcome),
                 fmt::format("`ktx-run selftest {}` locates the faulty step", shell_word(path))};
}

std::string summary(const Diagnosis& diagnosis) {
  if (!diagnosis.runs_on_cpu) return "no plan can run here; see the problems above";
  return diagnosis.runs_on_gpu ? "plans for the CPU and for GPUs run here"
                               : "plans for the CPU can run here, those for GPUs cannot";
}

void print_text(const Diagnosis& diagnosis) {
  for (const Finding& finding : diagnosis.findings) {
    fmt::print("{:<13} {:<8} {}\n", finding.what, target::name(finding.health), finding.text);
    if (finding.advice.empty()) continue;
    for (const std::string_view line : split(finding.advice, '\n')) {
      fmt::print("{:<22} {}\n", "", line);
    }
  }
  fmt::print("{}\n", summary(diagnosis));
}

void print_json(const Diagnosis& diagnosis) {
  nlohmann::ordered_json json;
  json["version"] = KTX_VERSION;
  json["runs_on_cpu"] = diagnosis.runs_on_cpu;
  json["runs_on_gpu"] = diagnosis.runs_on_gpu;
  json["findings"] = nlohmann::ordered_json::array();
  for (const Finding& finding : diagnosis.findings) {
    json["findings"].push_back({{"what", finding.what},
                                {"health", target::name(finding.health)},
                                {"text", finding.text},
                                {"advice", finding.advice}});
  }
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

int run_doctor(const Options& options) {
  Diagnosis diagnosis = target::diagnose(gpu_facts(), detect_isa());
  if (!options.plan.empty()) {
    diagnosis.findings.push_back(open_plan(options.plan, options.engine, options.draft));
    if (auto found = self_test(options.plan, options.engine)) {
      diagnosis.findings.push_back(std::move(*found));
    }
  }
  options.json ? print_json(diagnosis) : print_text(diagnosis);
  for (const Finding& finding : diagnosis.findings) {
    if (finding.health == Health::Problem) return 1;
  }
  return 0;
}

}  // namespace ktx::tools
