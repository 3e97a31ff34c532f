#include "tools/ktx-run/step_profile.h"
#include "lib/runtime/engine/plan_runner.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace ktx::tools {

Result<std::unique_ptr<StepProfile>> StepProfile::create(const std::string& path,
                                                         runtime::Engine& engine, Limits limits) {
  LineFile file = KTX_TRY(LineFile::open(path, LineFile::Old::Goes, "{"));
  engine.runner().enable_times(true);
  return std::unique_ptr<StepProfile>(new StepProfile(std::move(file), limits));
}

Status StepProfile::finish() {
  const std::lock_guard lock(mutex_);
  return file_.finish();
}

void StepProfile::add(runtime::Engine& engine) {
  const std::lock_guard lock(mutex_);
  const bool full = limits_.bytes > 0 && written_ >= limits_.bytes;
  if (full) engine.runner().enable_times(false);
  if (full) return;
  const plan::PlanView& plan = engine.plan();
  const std::vector<runtime::StepTime> times = engine.runner().step_times();
  before_.resize(times.size());
  const int64_t tokens = engine.stats().tokens - std::exchange(tokens_, engine.stats().tokens);
  const bool write = steps_++ % limits_.every == 0;
  for (size_t i = 0; i < times.size(); ++i) {
    const runtime::StepTime& time = times[i];
    const double seconds = time.seconds - std::exchange(before_[i], time.seconds);
    if (!write) continue;
    nlohmann::ordered_json line;
    line["step"] = steps_;
    line["tokens"] = tokens;
    line["module"] = std::string(time.module);
    line["op"] = std::string(time.op);
    line["layer"] = time.layer;
    line["device"] = plan.program->steps[time.step].device;
    line["seconds"] = seconds;
    const std::string text = line.dump() + "\n";
    written_ += static_cast<int64_t>(text.size());
    file_.add(text);
  }
}

}  // namespace ktx::tools
