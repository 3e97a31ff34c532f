#include "tools/ktx-run/step_profile.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace ktx::tools {

Result<std::unique_ptr<StepProfile>> StepProfile::create(const std::string& path,
                                                         runtime::Engine& engine) {
  LineFile file = KTX_TRY(LineFile::open(path, LineFile::Old::Goes, "{"));
  engine.enable_step_stats(true);
  return std::unique_ptr<StepProfile>(new StepProfile(std::move(file)));
}

Status StepProfile::finish() {
  const std::lock_guard lock(mutex_);
  return file_.finish();
}

void StepProfile::add(runtime::Engine& engine) {
  const std::lock_guard lock(mutex_);
  const plan::PlanView& plan = engine.plan();
  const std::vector<runtime::StepTime> times = engine.step_times();
  before_.resize(times.size());
  const int64_t tokens = engine.stats().tokens - std::exchange(tokens_, engine.stats().tokens);
  ++steps_;
  for (size_t i = 0; i < times.size(); ++i) {
    const runtime::StepTime& time = times[i];
    nlohmann::ordered_json line;
    line["step"] = steps_;
    line["tokens"] = tokens;
    line["module"] = std::string(time.module);
    line["op"] = std::string(time.op);
    line["layer"] = time.layer;
    line["device"] = std::string(plan.string_or_empty(plan.steps[time.step].device));
    line["seconds"] = time.seconds - std::exchange(before_[i], time.seconds);
    file_.add(line.dump() + "\n");
  }
}

}  // namespace ktx::tools
