#include "tools/ktx-run/step_profile.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "lib/support/may_replace.h"

namespace ktx::tools {

Result<std::unique_ptr<StepProfile>> StepProfile::create(const std::string& path,
                                                         runtime::Engine& engine) {
  KTX_TRY(may_replace(path, "{"));
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    return Error{fmt::format("{}: cannot write the profile: {}", path, std::strerror(errno))};
  }
  engine.enable_step_stats(true);
  return std::unique_ptr<StepProfile>(new StepProfile(file));
}

StepProfile::~StepProfile() {
  std::fclose(file_);
}

void StepProfile::add(runtime::Engine& engine) {
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
    fmt::print(file_, "{}\n", line.dump());
  }
}

}  // namespace ktx::tools
